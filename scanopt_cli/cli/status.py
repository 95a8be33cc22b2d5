"""``scanopt status``: how graphs are beside what is locked."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scanopt_cli.cli.batch import Batch
from scanopt_cli.cli.console import out, tell
from scanopt_cli.cli.exits import ExitCode, finding
from scanopt_cli.cli.file_work import Done, Task
from scanopt_cli.cli.graph_files import graph_files, listed
from scanopt_cli.cli.locked_graphs import Looking, limits_of_all
from scanopt_cli.cli.options import (
    AllowPackages,
    ClusterAddress,
    FilesFrom,
    Format,
    GateFormat,
    Jobs,
    LockedGraphs,
    SchedulerFile,
    Trust,
)
from scanopt_cli.cli.results import add_to_step_summary, entries_of, print_blocks, print_json
from scanopt_cli.cli.session import Session
from scanopt_cli.cli.where import where_to_work
from scanopt_cli.errors import LoadError, ScanoptError
from scanopt_cli.serialization.files import Blob, read_bytes

if TYPE_CHECKING:
    from scanopt_cli.gates.comparing import GraphStatus
    from scanopt_cli.gates.lock_file import Lock, LockedGraph


def status(
    graphs: LockedGraphs = None,
    files_from: FilesFrom = None,
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
    jobs: Jobs = None,
    cluster: ClusterAddress = None,
    scheduler_file: SchedulerFile = None,
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
    files = _files(locked, graphs or (), listed(files_from))
    if not files:
        hint = "name graphs to lock: scanopt lock GRAPH..."
        raise ScanoptError("holds no graph to compare", where=str(path), hint=hint)
    limits = limits_of_all()
    # To compare bytes takes less than to have a worker do it.
    found = dict(_as_locked(locked, files, limits))
    where = where_to_work(jobs, cluster, scheduler_file)
    batch = Batch({file: files[file] for file in files if file not in found}, where)
    looking = Looking.here(trust=trust, allow_packages=allow_package)

    def comparing(file: Path) -> _Comparing:
        return _Comparing(locked.graphs.get(locked.name_of(file)), limits, looking)

    batch.run(
        comparing,
        lambda file, status: found.update({file: status}),
        prepare=looking.require_rules,
    )
    found = {file: found[file] for file in files if file in found}
    _print(files, found, batch.failures, path, output_format)
    others = {each.by for each in found.values() if each.state is State.UNCHANGED} - {written_by()}
    if others:
        told = " and ".join(sorted(map(str, others)))
        tell(f"note: what is unchanged was locked by {told}; `scanopt lock` looks at it again")
    return batch.finish(finding(any(each.is_worse for each in found.values())))


def _files(
    lock: Lock, paths: Sequence[Path], more: Sequence[Path]
) -> Mapping[Path, ScanoptError | None]:
    """Return the graphs that are asked for, and those that are locked and gone, once each."""
    from scanopt_cli.gates.lock_file import is_below

    found: dict[str, tuple[Path, ScanoptError | None]] = {}
    of_lock = map(lock.path_of, (*lock.directories, *lock.graphs))
    for path in [*paths, *more] or of_lock:
        below: Mapping[str, Path] = {}
        if not os.path.isfile(path):
            folder = [lock.name_of(path)]
            below = {name: lock.path_of(name) for name in lock.graphs if is_below(name, folder)}
        here = graph_files([path]) if path in paths else graph_files(None, more=[path])
        for file, problem in here.items():
            # A directory may have none of the graphs that are locked in it.
            if not (below and file == path):
                found.setdefault(lock.name_of(file), (file, problem))
        for name, file in below.items():
            found.setdefault(name, (file, None))
    return dict(found.values())


def _as_locked(
    lock: Lock, files: Iterable[Path], limits: Mapping[str, int]
) -> Iterator[tuple[Path, GraphStatus]]:
    """Yield the status of each file that is gone, and of each with the bytes that are locked."""
    from scanopt_cli.gates.comparing import status_of

    for path in files:
        known = lock.graphs.get(lock.name_of(path))
        if known is None:
            continue
        if not os.path.lexists(path):
            yield path, status_of(str(path), known, None, limits)
        elif _digest(path) == known.sha256:
            yield path, status_of(str(path), known, known, limits)


def _digest(path: Path) -> str | None:
    """Return the digest of what a file holds, ``None`` if it cannot be read: that is told later."""
    try:
        return hashlib.sha256(read_bytes(path)).hexdigest()
    except LoadError:
        return None


@dataclass(frozen=True, slots=True)
class _Comparing(Task["GraphStatus"]):
    """What is done with a graph that is not as it was, or is not locked."""

    known: LockedGraph | None
    limits: Mapping[str, int]
    looking: Looking

    def work(self, path: Path, files: Sequence[Blob], _title: str, /) -> Done[GraphStatus]:
        """Return how the graph is beside what is locked."""
        from scanopt_cli.gates.comparing import status_of

        (file,) = files
        now = self.looking.at(path, file, {})
        return Done(status_of(str(path), self.known, now, self.limits))

    def permissions(self) -> Session:
        """Return what may be loaded."""
        return self.looking.permissions()

    def patience(self, path: Path) -> float | None:
        """Return how many seconds it may take."""
        return self.looking.patience(path)


def _print(
    files: Iterable[Path],
    found: Mapping[Path, GraphStatus],
    failures: Mapping[Path, str],
    lock: Path,
    output_format: GateFormat,
) -> None:
    from scanopt_cli.reports import status_report as report

    statuses = tuple(found.values())
    match output_format:
        case GateFormat.JSON:
            entries = entries_of(files, found, failures, report.as_json)
            print_json("status", {"lock": str(lock), "graphs": entries})
        case _ if not found:
            return  # each file has an error of its own
        case GateFormat.GITHUB:
            for line in report.workflow_commands(statuses):
                out().out(line)
            add_to_step_summary(report.status_report(statuses, stands_alone=True))
        case _:
            stands_alone = output_format is GateFormat.MARKDOWN
            blocks = report.status_report(statuses, stands_alone=stands_alone)
            print_blocks(Format(output_format.value), blocks)
