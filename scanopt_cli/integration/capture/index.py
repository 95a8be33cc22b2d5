"""``index.json`` of a directory of captured graphs: what each is, and what became of it.

Several processes may capture into one directory. Each changes its own entries, under a lock of the
directory where the system has such locks, and the file is replaced whole.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from scanopt_cli.errors import ScanoptError
from scanopt_cli.serialization.files import read_bytes
from scanopt_cli.serialization.writing import write_atomically

NAME = "index.json"
_FORMAT = "scanopt-captures"
_VERSION = 1


def enter(path: Path, **entries: Any) -> None:
    """Change the entry of the graph file ``path``, or make one, in the index beside it.

    Raises
    ------
    ScanoptError
        If the file of this name is something else than such an index, or cannot be written.
    """
    index = path.with_name(NAME)
    with _locked(path.parent):
        graphs = _read(index)
        graphs.setdefault(path.name, {"file": path.name}).update(entries)
        table = {"format": _FORMAT, "version": _VERSION, "graphs": list(graphs.values())}
        write_atomically(index, (json.dumps(table, indent=2) + "\n").encode())


def _read(index: Path) -> dict[str, dict[str, Any]]:
    if not os.path.lexists(index):
        return {}
    try:
        table = json.loads(read_bytes(index))
        if table["format"] != _FORMAT or table["version"] != _VERSION:
            raise ValueError("another format")
        return {str(entry["file"]): dict(entry) for entry in table["graphs"]}
    except (ValueError, TypeError, LookupError, RecursionError):
        raise ScanoptError(
            "is no index of captured graphs, and stays as it is",
            where=str(index),
            hint="capture into another directory",
        ) from None


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(directory, os.O_RDONLY)
    try:
        with suppress(OSError):  # no locks on this file system
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
