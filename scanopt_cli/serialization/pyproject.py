"""Reading the tables ``[tool.scanopt.…]`` of pyproject.toml, in bounded time."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from scanopt_cli.errors import ScanoptError
from scanopt_cli.serialization.files import read_bytes

_LARGEST_FILE = 1 << 20
_LONGEST_LINE = 10_000
_MOST_DOTS = 3_000


def table_in_pyproject(start: Path, name: str) -> tuple[Path, dict[str, Any]] | None:
    """Return the nearest pyproject.toml at or above ``start``, and its ``[tool.scanopt.name]``.

    ``None`` if there is no such file, or it has no such table.

    Raises
    ------
    ScanoptError
        If the file cannot be read, or the entry is no table.
    """
    start = start.resolve()
    files = (folder / "pyproject.toml" for folder in (start, *start.parents))
    path = next((file for file in files if file.is_file()), None)
    if path is None:
        return None
    table: Any = _content(path)
    for key in ("tool", "scanopt", name):
        table = table.get(key) if isinstance(table, dict) else None
    if table is None:
        return None
    if not isinstance(table, dict):
        where = f"{path} [tool.scanopt.{name}]"
        raise ScanoptError("is no table", where=where, hint="write lines such as name = value")
    return path, table


def _content(path: Path) -> dict[str, Any]:
    try:
        data = read_bytes(path)
        if len(data) > _LARGEST_FILE:
            raise ValueError(f"it has more than {_LARGEST_FILE:,} bytes")
        lines = data.splitlines()
        if max(map(len, lines), default=0) > _LONGEST_LINE:
            raise ValueError(f"a line is longer than {_LONGEST_LINE} characters")
        # Parsing a key takes time and memory quadratic in the number of its dots.
        if sum(line.count(b".") ** 2 for line in lines) > _MOST_DOTS**2:
            raise ValueError("its lines have too many dots")
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise ScanoptError(f"cannot be read ({error})", where=str(path)) from error
