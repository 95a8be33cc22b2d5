"""Graph files, and what they were: which belong together."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from scanopt_cli.cli.graph_files import graph_files
from scanopt_cli.errors import ScanoptError
from scanopt_cli.serialization.files import Blob, read_blob, read_bytes, stem_of


class Earlier(Protocol):
    """What a file was; as text, where that is."""

    def holds(self, data: bytes) -> bool:
        """Whether it had this content."""

    def read(self) -> Blob:
        """Return its content; `ScanoptError` if it cannot be read."""


@dataclass(frozen=True, slots=True)
class FileInDirectory:
    """A file that is there, and was not changed."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def holds(self, data: bytes) -> bool:
        """Whether it has this content."""
        return read_bytes(self.path) == data

    def read(self) -> Blob:
        """Return its content."""
        return read_blob(self.path)


@dataclass(frozen=True, slots=True)
class FilePair[E: Earlier]:
    """A graph file, and what it was: each may be missing.

    Attributes
    ----------
    path
        The file; of one that is gone, what it was.
    earlier
        What it was, ``None`` if it is new.
    exists
        Whether it is there.
    renamed
        The path that it had, if it is another.
    problem
        Why it cannot be read.
    """

    path: Path
    earlier: E | None
    exists: bool
    renamed: Path | None = None
    problem: ScanoptError | None = None


def are_directories(a: Path, b: Path) -> bool:
    """Return whether there are two directories, and not two files.

    Raises
    ------
    ScanoptError
        If there is one of each.
    """
    folders = [path for path in (a, b) if os.path.isdir(path)]
    if len(folders) == 1:
        hint = "give two files, or two directories"
        raise ScanoptError("is a directory", where=str(folders[0]), hint=hint)
    return bool(folders)


def pairs_of_directories(a: Path, b: Path) -> list[FilePair[FileInDirectory]]:
    """Return the graphs of the directories ``a`` and ``b``, in the order of their paths in these.

    Graphs of one path belong together. So do those whose paths differ in how they end alone, as
    ``a/model.pkl`` and ``b/model.scanopt``, if there is one of each.
    """
    before, after = graph_files([a]), graph_files([b])
    problems: list[FilePair[FileInDirectory]] = [
        FilePair(path, None, exists=False, problem=why)
        for found in (before, after)
        for path, why in found.items()
        if why is not None
    ]
    old, new = (
        {path.relative_to(folder): path for path, why in found.items() if why is None}
        for folder, found in ((a, before), (b, after))
    )
    names = {name: name for name in old.keys() & new.keys()}
    gone, come = _by_stem(old.keys() - new.keys()), _by_stem(new.keys() - old.keys())
    names |= {come[stem]: gone[stem] for stem in gone.keys() & come.keys()}
    pairs = {
        name: FilePair(path, _earlier(old, names.get(name)), True) for name, path in new.items()
    }
    for name in old.keys() - set(names.values()):
        pairs[name] = FilePair(old[name], _earlier(old, name), exists=False)
    return problems + [pairs[name] for name in sorted(pairs)]


def _earlier(files: Mapping[Path, Path], name: Path | None) -> FileInDirectory | None:
    return None if name is None else FileInDirectory(files[name])


def _by_stem(names: Iterable[Path]) -> dict[Path, Path]:
    """Return the paths without how they end that one path has alone, each with that one."""
    found = [(name.with_name(stem_of(name)), name) for name in names]
    times = Counter(stem for stem, _ in found)
    return {stem: name for stem, name in found if times[stem] == 1}
