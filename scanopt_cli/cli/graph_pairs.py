"""Which graphs of two directories belong together."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from scanopt_cli.cli.graph_files import graph_files
from scanopt_cli.errors import ScanoptError
from scanopt_cli.serialization.files import stem_of


@dataclass(frozen=True, slots=True)
class GraphPair:
    """A graph file in two directories: the one ``before`` and the one ``after``, if there are both.

    Attributes
    ----------
    path
        What the pair is called: the file after, or the one before if that is alone.
    before
        The file before, ``None`` if there is none.
    after
        The file after, ``None`` if there is none.
    problem
        Why there is neither, as of a directory that cannot be read.
    """

    path: Path
    before: Path | None
    after: Path | None
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


def graph_pairs(a: Path, b: Path) -> list[GraphPair]:
    """Return the graphs of the directories ``a`` and ``b``, in the order of their paths in these.

    Graphs of one path belong together. So do those whose paths differ in how they end alone, as
    ``a/model.pkl`` and ``b/model.scanopt``, if there is one of each.
    """
    before, after = graph_files([a]), graph_files([b])
    problems = [
        GraphPair(path, None, None, why)
        for found in (before, after)
        for path, why in found.items()
        if why is not None
    ]
    old, new = (
        {path.relative_to(folder): path for path, why in found.items() if why is None}
        for folder, found in ((a, before), (b, after))
    )
    earlier = {name: name for name in old.keys() & new.keys()}
    gone, come = _by_stem(old.keys() - new.keys()), _by_stem(new.keys() - old.keys())
    earlier |= {come[stem]: gone[stem] for stem in gone.keys() & come.keys()}
    alone = old.keys() - set(earlier.values())
    pairs = [
        (name, GraphPair(path, old.get(earlier.get(name, name)), path))
        for name, path in new.items()
    ]
    pairs += [(name, GraphPair(old[name], old[name], None)) for name in alone]
    return problems + [pair for _, pair in sorted(pairs, key=lambda pair: pair[0])]


def _by_stem(names: Iterable[Path]) -> dict[Path, Path]:
    """Return the paths without how they end that one path has alone, each with that one."""
    found = [(name.with_name(stem_of(name)), name) for name in names]
    times = Counter(stem for stem, _ in found)
    return {stem: name for stem, name in found if times[stem] == 1}
