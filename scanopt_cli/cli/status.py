"""``scanopt status``: how graphs are beside what is locked."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scanopt_cli.cli.batch import Batch
from scanopt_cli.cli.console import out, tell
from scanopt_cli.cli.exits import ExitCode, finding
from scanopt_cli.cli.graph_files import graph_files
from scanopt_cli.cli.locked_graphs import Looking, limits_of_all
from scanopt_cli.cli.options import AllowPackages, Format, GateFormat, Trust
from scanopt_cli.cli.results import add_to_step_summary, print_blocks, print_json
from scanopt_cli.errors import ScanoptError
from scanopt_cli.serialization.files import read_bytes

if TYPE_CHECKING:
    from scanopt_cli.gates.comparing import GraphStatus
    from scanopt_cli.gates.lock_file import Lock


def status(
    graphs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="GRAPH|DIR...",
            help="Graph files, or directories of them; by default all that is locked.",
            readable=False,
        ),
    ] = None,
    lock: Annotated[
        Path | None,
        typer.Option(
            "--lock",
            metavar="FILE",
            help="The lock file; by default the nearest scanopt.lock here or above.",
        ),
    ] = None,
    output_format: Annotated[GateFormat, typer.Option("--format", help="How to print it.")] = (
        GateFormat.RICH
    ),
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Compare graphs with the lock file: what is worse, what is better, what is new or missing.

    Exits with 1 if anything is worse: a finding that is not locked, a count above what is locked or
    above its budget, a graph that is missing, or one that is not locked in what is looked at. A
    file with the same bytes is not read as a graph.
    """
    from scanopt_cli.gates.comparing import State, written_by
    from scanopt_cli.gates.lock_file import NAME, find_lock, read_lock

    path = lock or find_lock()
    if path is None:
        hint = "write one by scanopt lock GRAPH..., or name it by --lock"
        raise ScanoptError("there is no lock file here or above", where=NAME, hint=hint)
    locked = read_lock(path)
    files = _files(locked, graphs)
    if not files:
        hint = "name graphs to lock: scanopt lock GRAPH..."
        raise ScanoptError("holds no graph to compare", where=str(path), hint=hint)
    limits = limits_of_all()
    looking = Looking(trust, allow_package)
    batch = Batch(list(files))
    for file, problem in files.items():
        with batch.attempt(file):
            if problem is not None:
                raise problem
            batch.results.append(_status(locked, file, looking, limits))
    found = [each for each in batch.results if hasattr(each, "state")]
    _print(found, batch, path, output_format)
    others = {each.by for each in found if each.state is State.UNCHANGED} - {written_by()}
    if others:
        told = " and ".join(sorted(map(str, others)))
        tell(f"note: what is unchanged was locked by {told}; `scanopt lock` looks at it again")
    return batch.finish(finding(any(each.is_worse for each in found)))


def _files(lock: Lock, paths: Sequence[Path] | None) -> Mapping[Path, ScanoptError | None]:
    """Return the graphs that are asked for, and those that are locked and gone, once each."""
    from scanopt_cli.gates.lock_file import is_below

    all_of_it = (*lock.directories, *lock.graphs)
    found: dict[str, tuple[Path, ScanoptError | None]] = {}
    for path in paths or map(lock.path_of, all_of_it):
        below: Mapping[str, Path] = {}
        if not os.path.isfile(path):
            folder = [lock.name_of(path)]
            below = {name: lock.path_of(name) for name in lock.graphs if is_below(name, folder)}
        for file, problem in graph_files([path]).items():
            # A directory may have none of the graphs that are locked in it.
            if not (below and file == path):
                found.setdefault(lock.name_of(file), (file, problem))
        for name, file in below.items():
            found.setdefault(name, (file, None))
    return dict(found.values())


def _status(lock: Lock, path: Path, looking: Looking, limits: Mapping[str, int]) -> GraphStatus:
    from scanopt_cli.gates.comparing import status_of

    name = lock.name_of(path)
    known = lock.graphs.get(name)
    if known is not None and not os.path.lexists(path):
        return status_of(str(path), known, None, limits)
    data = read_bytes(path)
    if known is not None and hashlib.sha256(data).hexdigest() == known.sha256:
        return status_of(str(path), known, known, limits)
    return status_of(str(path), known, looking.at(path, data, {}), limits)


def _print(
    found: Sequence[GraphStatus], batch: Batch, lock: Path, output_format: GateFormat
) -> None:
    from scanopt_cli.reports import status_report as report

    match output_format:
        case GateFormat.JSON:
            entries = [report.as_json(e) if e in found else e for e in batch.results]
            print_json("status", {"lock": str(lock), "graphs": entries})
        case _ if not found:
            return  # each file has an error of its own
        case GateFormat.GITHUB:
            for line in report.workflow_commands(found):
                out().out(line)
            add_to_step_summary(report.status_report(found, stands_alone=True))
        case _:
            stands_alone = output_format is GateFormat.MARKDOWN
            blocks = report.status_report(found, stands_alone=stands_alone)
            print_blocks(Format(output_format.value), blocks)
