"""Where results go: checked before any work is done."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from scanopt_cli.cli.console import tell
from scanopt_cli.errors import ScanoptError

if TYPE_CHECKING:
    from scanopt_cli.ir.graph import Graph


def require_target(target: Path, graph: Path, *, force: bool, option: str = "-o") -> None:
    """Check that the result of ``graph`` may become the file ``target``, which ``option`` names.

    Raises
    ------
    ScanoptError
        If its directory does not exist, it is a directory itself, or it is ``graph`` and there is
        no ``force``.
    """
    if target.is_dir():
        hint = "give the path of a file"
        raise ScanoptError("is a directory", where=f"{option} {target}", hint=hint)
    if not target.parent.is_dir():
        raise ScanoptError(
            "there is no such directory", where=f"{option} {target}", hint="create it first"
        )
    if is_same_file(target, graph) and not force:
        can_force = option in ("-o", "OUT")
        hint = "write elsewhere" + (", or replace it by --force" if can_force else "")
        raise ScanoptError("would be overwritten", where=str(graph), hint=hint)


def targets(
    graphs: Sequence[Path],
    output: Path,
    *,
    force: bool,
    option: str = "-o",
    named: Callable[[Path], Path] = lambda name: name,
) -> dict[Path, Path]:
    """Return where the result of each graph goes: to the file ``output``, or into the directory.

    There it has the file's name, as ``named`` returns it; files of one name keep the directories in
    which they differ.

    Raises
    ------
    ScanoptError
        If there is no such directory, two results would have one name, or a graph would be
        overwritten: by the result of another, or without ``force`` by its own.
    """
    if not output.is_dir():
        if len(graphs) > 1:
            raise ScanoptError(
                "several graphs need a directory to write to",
                where=f"{option} {output}",
                hint="create the directory first",
            )
        require_target(output, graphs[0], force=force, option=option)
        return {graphs[0]: output}
    found = {graph: output / named(name) for graph, name in _names(graphs).items()}
    by_target: dict[Path, Path] = {}
    for graph, target in found.items():
        other = by_target.setdefault(target, graph)
        if not (other is graph or is_same_file(other, graph)):
            what = f"would be written twice: for {other} and for {graph}"
            hint = "write them to different directories"
            raise ScanoptError(what, where=str(target), hint=hint)
    by_file = {file: path for path in reversed(graphs) if (file := _file(path)) is not None}
    for graph, target in found.items():
        file = _file(target)
        overwritten = None if file is None else by_file.get(file)
        if overwritten is not None and not (force and is_same_file(graph, overwritten)):
            hint = f"give another directory than {output}"
            if is_same_file(graph, overwritten):
                hint += ", or replace it by --force"
            raise ScanoptError("would be overwritten", where=str(overwritten), hint=hint)
    return found


def write(graph: Graph, target: Path, *, trust: bool) -> None:
    """Save a graph where its result goes, and say so.

    Raises
    ------
    ScanoptError
        If it cannot be written.
    """
    from scanopt_cli.serialization.saving import file_of

    write_file(target, file_of(graph, target, trust=trust))


def write_file(target: Path, data: bytes) -> None:
    """Write the file of a graph, and the directory that it is in, and say so.

    Raises
    ------
    ScanoptError
        If it cannot be written.
    """
    from scanopt_cli.serialization.writing import write_atomically

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise ScanoptError(f"cannot be made: {reason}", where=str(target.parent)) from None
    write_atomically(target, data)
    tell(f"wrote {target}")


def _names(graphs: Sequence[Path]) -> dict[Path, Path]:
    """Return a relative path for each graph, different ones for different files."""
    whole = {graph: Path(os.path.abspath(graph)) for graph in graphs}
    times = Counter(path.name for path in set(whole.values()))
    alike = [path for path in whole.values() if times[path.name] > 1]
    common = os.path.commonpath([path.parent for path in alike]) if alike else ""
    return {
        graph: path.relative_to(common) if times[path.name] > 1 else Path(path.name)
        for graph, path in whole.items()
    }


def _file(path: Path) -> tuple[int, int] | None:
    """Return what tells a file that exists from all others."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_same_file(one: Path, other: Path) -> bool:
    """Whether two paths are of one file that exists."""
    try:
        return one.samefile(other)
    except OSError:  # one of them does not exist
        return False
