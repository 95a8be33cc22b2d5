"""The settings of `check` in pyproject.toml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from scanopt_cli.errors import ScanoptError
from scanopt_cli.serialization.pyproject import table_in_pyproject

_TABLE = "tool.scanopt.check"


@dataclass(frozen=True, slots=True)
class Settings:
    """What ``[tool.scanopt.check]`` says.

    Attributes
    ----------
    select, ignore
        Codes of rules, or what they begin with.
    per_file_ignores
        Such codes by patterns of files.
    baseline
        The lock file of known findings, beside pyproject.toml unless its path is absolute.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    baseline: Path | None = None

    def ignored_in(self, path: Path) -> tuple[str, ...]:
        """Return the codes that are ignored in a file, by the patterns that its path fits."""
        texts = (path.name, path.as_posix())
        return tuple(
            code
            for pattern, codes in self.per_file_ignores.items()
            if any(fnmatch(text, pattern) for text in texts)
            for code in codes
        )


def settings_from_pyproject(start: Path) -> Settings:
    """Return ``[tool.scanopt.check]`` of the nearest pyproject.toml at or above ``start``.

    Raises
    ------
    ScanoptError
        If the file cannot be read, or its table has other entries.
    """
    found = table_in_pyproject(start, "check")
    if found is None:
        return Settings()
    path, table = found
    known = {"select", "ignore", "per-file-ignores", "baseline"}
    unknown = sorted(table.keys() - known)
    if unknown:
        raise ScanoptError(
            f"[{_TABLE}] has no entry {unknown[0]!r}",
            where=str(path),
            hint=f"it may have {', '.join(sorted(known))}",
        )
    ignores = table.get("per-file-ignores", {})
    if not isinstance(ignores, dict):
        raise ScanoptError(f"[{_TABLE}] per-file-ignores is no table", where=str(path))
    file = table.get("baseline")
    if not isinstance(file, str | None):
        raise ScanoptError(f"[{_TABLE}] baseline is no path", where=str(path))
    return Settings(
        _codes(table.get("select", []), "select", path),
        _codes(table.get("ignore", []), "ignore", path),
        {pattern: _codes(codes, "per-file-ignores", path) for pattern, codes in ignores.items()},
        None if file is None else path.parent / file,
    )


def _codes(found: Any, entry: str, path: Path) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(code, str) for code in found):
        raise ScanoptError(f"[{_TABLE}] {entry} is no list of codes", where=str(path))
    return tuple(found)
