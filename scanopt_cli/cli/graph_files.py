"""Which files a command reads: those that are named, those in directories, and those that fit."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from glob import glob, has_magic
from pathlib import Path

from scanopt_cli.errors import ScanoptError
from scanopt_cli.serialization.files import GRAPH_SUFFIXES

_NAMES = "graphs end in .scanopt or .pkl"
_STDIN = Path("-")

type Found = dict[Path, ScanoptError | None]
"""Files, each once; of what cannot be read, or holds no graph, the error."""


def graph_files(
    paths: Sequence[Path] | None, listed_in: Path | None = None, *, more: Sequence[Path] = ()
) -> Found:
    """Return the files that the user means, once each, in the order in which they are named.

    Parameters
    ----------
    paths
        Files; directories, for the graphs in them and in those inside, by name; and patterns such
        as ``graphs/**/*.pkl``, for what fits them, by name. What exists is no pattern.
    listed_in
        A file that lists files and directories, ``-`` for stdin: one on each line or, if there is
        any NUL, between these, as ``find -print0`` and ``git diff -z`` write them.
    more
        Files and directories that `listed` returned.

    Raises
    ------
    ScanoptError
        If nothing is named, or the list cannot be read.
    """
    if not paths and listed_in is None and not more:
        raise ScanoptError("GRAPH... is missing", hint="name graphs, or list them in --files-from")
    found: Found = {}
    for path in paths or ():
        if path == _STDIN:
            hint = "--files-from - takes a list of files from there"
            raise ScanoptError("a graph cannot be read from stdin", where="-", hint=hint)
        fitting = _fitting(path)
        for each in fitting:
            _add(each, found)
        if not fitting:
            found[path] = ScanoptError("no file fits", where=str(path), hint="check the pattern")
    for path in (*more, *listed(listed_in)):
        _add(path, found)
    return found


def _fitting(path: Path) -> list[Path]:
    """Return the files and directories that fit a pattern; a path that is none as it is."""
    if os.path.lexists(path) or not has_magic(str(path)):
        return [path]
    return sorted(map(Path, glob(str(path), recursive=True)))


def _add(path: Path, found: Found) -> None:
    if not os.path.isdir(path):  # unlike Path.is_dir, of any name
        found.setdefault(path)
        return
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


def listed(file: Path | None) -> list[Path]:
    """Return the files and directories that a file lists, as `graph_files` reads it; of none, none.

    Raises
    ------
    ScanoptError
        If the list cannot be read, or is empty.
    """
    if file is None:
        return []
    where = f"--files-from {file}"
    try:
        data = sys.stdin.buffer.read() if file == _STDIN else file.read_bytes()
    except (OSError, AttributeError, ValueError) as error:  # stdin may be closed
        reason = getattr(error, "strerror", None) or error
        raise ScanoptError(f"cannot be read: {reason}", where=where) from None
    names = data.split(b"\0") if b"\0" in data else data.splitlines()
    paths = [Path(os.fsdecode(name)) for name in names if name]
    if not paths:
        raise ScanoptError("lists no file", where=where)
    return paths
