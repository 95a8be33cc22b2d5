"""The graph files that a command is given, by themselves or by their directories."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from scanopt_cli.errors import ScanoptError
from scanopt_cli.serialization.files import GRAPH_SUFFIXES

_NAMES = "graphs end in .scanopt or .pkl"


def graph_files(paths: Iterable[Path]) -> dict[Path, ScanoptError | None]:
    """Return the graphs that are named, and those in directories that are, once each.

    Of a directory that cannot be read, or has no graph, the error stands in place of its graphs.
    """
    found: dict[Path, ScanoptError | None] = {}
    for path in paths:
        if not os.path.isdir(path):  # unlike Path.is_dir, of any name
            found[path] = None
            continue
        problems: list[OSError] = []
        inside = sorted(
            Path(folder, name)
            for folder, _, names in os.walk(path, onerror=problems.append)
            for name in names
            if name.endswith(GRAPH_SUFFIXES)
        )
        found |= dict.fromkeys(inside)
        for error in problems:
            where = str(error.filename or path)
            found[Path(where)] = ScanoptError(f"cannot be read: {error.strerror}", where=where)
        if not (inside or problems):
            found[path] = ScanoptError("holds no graph", where=str(path), hint=_NAMES)
    return found
