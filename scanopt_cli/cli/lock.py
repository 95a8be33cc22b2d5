"""``scanopt lock``: write down what is known of graphs, for `status` to compare."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scanopt_cli.cli.batch import Batch
from scanopt_cli.cli.console import tell
from scanopt_cli.cli.exits import ExitCode, finding
from scanopt_cli.cli.file_work import Done, Task
from scanopt_cli.cli.graph_files import graph_files, listed
from scanopt_cli.cli.locked_graphs import Looking, limits_of_all
from scanopt_cli.cli.options import (
    AllowPackages,
    ClusterAddress,
    FilesFrom,
    Jobs,
    LockedGraphs,
    SchedulerFile,
    Trust,
)
from scanopt_cli.cli.session import Session
from scanopt_cli.cli.targets import require_target
from scanopt_cli.cli.where import where_to_work
from scanopt_cli.errors import ScanoptError
from scanopt_cli.serialization.files import Blob
from scanopt_cli.text import plural

if TYPE_CHECKING:
    from scanopt_cli.diff.budgets import Budget
    from scanopt_cli.gates.lock_file import Lock, LockedGraph

_NONE = "none"
"""What drops the budgets of graphs."""


def lock(
    graphs: LockedGraphs = None,
    files_from: FilesFrom = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output-file",
            metavar="FILE",
            help="The lock file; by default the nearest scanopt.lock here or above, or one here.",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="COUNTS",
            help="Upper limits for these graphs in place of their counts, such as "
            "'scans=2,outer=100'; they stay when the graphs are locked again. 'none' drops them.",
        ),
    ] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Take these graphs out of the lock file.")
    ] = False,
    jobs: Jobs = None,
    cluster: ClusterAddress = None,
    scheduler_file: SchedulerFile = None,
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Write what is known of graphs into a lock file: digests, counts, and findings of check.

    Other graphs in the file stay as they are; what is gone from a directory that is locked leaves
    it. Commit the file: `scanopt status` says what is different, and `check --baseline` leaves out
    what it holds. Exits with 1 if a graph is over a budget.
    """
    from scanopt_cli.gates.lock_file import NAME, Lock, find_lock, is_below, read_lock

    path = output or find_lock() or Path(NAME)
    require_target(path, path, force=True)
    old = read_lock(path) if os.path.lexists(path) else Lock(path)
    more = listed(files_from)
    named = [*(graphs or ()), *more]
    if remove:
        if not named or budget is not None:
            hint = "name the graphs that leave the lock file, and give no --budget"
            raise ScanoptError("is for graphs that are named", where="--remove", hint=hint)
        return _write(old, _without(old, named))
    if not named and not (old.graphs or old.directories):
        hint = "name graphs, or directories of them"
        raise ScanoptError("holds no graphs to lock again", where=str(path), hint=hint)
    own = None if budget is None else _budget(budget)
    wanted = named or _all_of(old)
    folders = tuple(old.name_of(each) for each in wanted if os.path.isdir(each))
    files = graph_files(graphs, more=more) if named else graph_files(wanted)
    found: dict[str, LockedGraph] = {}
    where = where_to_work(jobs, cluster, scheduler_file)
    batch = Batch(files, where)
    looking = Looking.here(trust=trust, allow_packages=allow_package)

    def locking(path: Path) -> _Locking:
        known = old.graphs.get(old.name_of(path))
        kept = {} if known is None else known.budget
        return _Locking(kept if own is None else own, looking)

    batch.run(
        locking,
        lambda path, entry: found.update({old.name_of(path): entry}),
        prepare=looking.require_rules,
    )
    if batch.finish(ExitCode.CLEAN) is not ExitCode.CLEAN:
        tell(f"wrote nothing, since not every graph can be locked; {path} is as it was")
        return ExitCode.FAILED
    left = {
        name: entry for name, entry in old.graphs.items() if named and not is_below(name, folders)
    }
    new = replace(
        old,
        graphs=left | found,
        directories=tuple(sorted({*old.directories, *folders})),
    )
    return _write(old, new)


@dataclass(frozen=True, slots=True)
class _Locking(Task["LockedGraph"]):
    """What is done with a graph that has a budget of its own."""

    budget: Budget
    looking: Looking

    def work(self, path: Path, files: Sequence[Blob], _title: str, /) -> Done[LockedGraph]:
        """Return what is known of a graph."""
        (file,) = files
        return Done(self.looking.at(path, file, self.budget))

    def permissions(self) -> Session:
        """Return what may be loaded."""
        return self.looking.permissions()

    def patience(self, path: Path) -> float | None:
        """Return how many seconds it may take."""
        return self.looking.patience(path)


def _all_of(lock: Lock) -> list[Path]:
    """Return the directories and the other graphs of a lock file; not those that are gone."""
    from scanopt_cli.gates.lock_file import is_below

    files = [lock.path_of(name) for name in lock.graphs if not is_below(name, lock.directories)]
    return [*map(lock.path_of, lock.directories), *filter(os.path.lexists, files)]


def _without(lock: Lock, paths: Sequence[Path]) -> Lock:
    """Return a lock file without some graphs, and without those in some directories.

    Raises
    ------
    ScanoptError
        If nothing of that name is locked.
    """
    from scanopt_cli.gates.lock_file import is_below

    names = {lock.name_of(path): path for path in paths}
    for name, path in names.items():
        if name not in (*lock.graphs, *lock.directories) and not any(
            is_below(each, [name]) for each in lock.graphs
        ):
            raise ScanoptError("is not locked", where=str(path), hint=f"see {lock.path}")
    left = {n: e for n, e in lock.graphs.items() if n not in names and not is_below(n, names)}
    folders = tuple(name for name in lock.directories if name not in names)
    return replace(lock, graphs=left, directories=folders)


def _write(old: Lock, new: Lock) -> ExitCode:
    """Write a lock file, say what is different in it, and whether a graph is over a budget."""
    from scanopt_cli.gates.comparing import status_of
    from scanopt_cli.gates.lock_file import write_lock
    from scanopt_cli.reports.status_report import count_text

    write_lock(new)
    added, removed = new.graphs.keys() - old.graphs.keys(), old.graphs.keys() - new.graphs.keys()
    changed = [n for n, e in new.graphs.items() if n in old.graphs and e != old.graphs[n]]
    counts = {"new": len(added), "changed": len(changed), "removed": len(removed)}
    told = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    known = sum(len(entry.findings) for entry in new.graphs.values())
    held = f"; known findings: {known}" if known else ""
    tell(f"wrote {new.path}: {plural(len(new.graphs), 'graph')}, {told or 'all as before'}{held}")
    limits, is_over = limits_of_all(), False
    for name, entry in new.graphs.items():
        for change in status_of(name, entry, entry, limits).counts:
            is_over = True
            tell(f"over budget: {new.path.parent / name}: {count_text(change)}")
    return finding(is_over)


def _budget(text: str) -> Budget:
    from scanopt_cli.diff.budgets import parse_budget

    return {} if text == _NONE else parse_budget(text)
