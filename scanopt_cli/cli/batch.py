"""Files that a command works on, of which some may fail: side by side, or one after the other."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from scanopt_cli.cli.console import Stream, err, has_live_lines, tell
from scanopt_cli.cli.error_text import debugging
from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.file_work import FileResult, Task, work_on, work_recorded
from scanopt_cli.cli.kept_results import KeptResults
from scanopt_cli.cli.recording import replay
from scanopt_cli.cli.results import entry_of_failure
from scanopt_cli.cli.where import Cluster, ClusterError, Where
from scanopt_cli.errors import ScanoptError
from scanopt_cli.live_line import LiveBar

if TYPE_CHECKING:
    from scanopt_cli.reports.as_json import JsonList


@dataclass
class Batch:
    """Files that a command works on; an error in one does not stop the others.

    What a file leads to is printed in the order of the files, as soon as it can be.

    Attributes
    ----------
    files
        The files; of what is none, the error.
    jobs
        How many worker processes there are: 0 to do all in this one, ``None`` for as many as there
        are cores. A single file needs none. Or the cluster that does all.
    json
        The JSON to be printed, if any.
    failures
        The errors, as text, of the files that had one.
    """

    files: Mapping[Path, ScanoptError | None]
    jobs: Where = None
    json: JsonList | None = None
    failures: dict[Path, str] = field(default_factory=dict)
    _first_error: ScanoptError | None = None
    _codes: list[ExitCode] = field(default_factory=lambda: [ExitCode.CLEAN])
    _entries: int = 0
    _count: int = 0

    @property
    def is_lone(self) -> bool:
        """Whether there is one file."""
        return len(self.files) == 1

    def run[T](
        self,
        task_of: Callable[[Path], Task[T]],
        take: Callable[[Path, T], None] = lambda _path, _found: None,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        """Work on all files, with each as its task says.

        Parameters
        ----------
        task_of
            Returns what is done with a file.
        take
            Is given what was found in each file that has no error, in their order.
        prepare
            Is called once, before there is any work; it may raise the error of an option.

        Raises
        ------
        KeyboardInterrupt
            If the user stops it; what is done is printed, and told.
        """
        tasks: dict[Path, Task[T]] = {}
        errors: dict[Path, ScanoptError] = {}
        for path, error in self.files.items():
            try:
                if error is not None:
                    raise error
                tasks[path] = task_of(path)
            except ScanoptError as problem:
                errors[path] = problem
        keeper = KeptResults.here() if any(task.is_kept for task in tasks.values()) else None
        kept = {} if keeper is None else keeper.keys_of(tasks)
        work = {path: task for path, task in tasks.items() if path not in kept}
        if work:
            prepare()

        def take_one(result: FileResult[T]) -> None:
            self._take(result, take)
            if keeper is not None and result.path in work:
                keeper.keep(work[result.path], result)

        def known(path: Path) -> FileResult[T] | None:
            if path in errors:
                return FileResult(path, error=errors[path])
            if keeper is None or path not in kept:
                return None
            # A result that is gone meanwhile is made again.
            return keeper.read(kept[path]) or work_on(tasks[path], path, str(path))

        try:
            is_here = self.is_lone and not isinstance(self.jobs, Cluster)
            if not work or self.jobs == 0 or is_here:
                self._run_here(work, known, take_one, records=keeper is not None)
            else:
                self._run_side_by_side(work, known, take_one)
        except (KeyboardInterrupt, ClusterError):  # or there is no worker any more
            if not self.is_lone:
                tell(f"stopped: {self._count} of {len(self.files)} graphs are done{self._failed()}")
            raise
        if self.json is not None:
            self._print(self.json.end(self._entries))

    def finish(self, code: ExitCode = ExitCode.CLEAN) -> ExitCode:
        """Return the exit code: the worst of ``code`` and those of the files.

        Raises
        ------
        ScanoptError
            The error of the file, if it is the only one.
        """
        if self.is_lone and self._first_error is not None:
            raise self._first_error
        if self.failures:
            tell(f"{len(self.failures)} of {len(self.files)} graphs failed")
            return ExitCode.FAILED
        return max(code, *self._codes)

    def _failed(self) -> str:
        return f", {len(self.failures)} of them failed" if self.failures else ""

    def _run_here[T](
        self,
        tasks: Mapping[Path, Task[T]],
        known: Callable[[Path], FileResult[T] | None],
        take: Callable[[FileResult[T]], None],
        *,
        records: bool,
    ) -> None:
        for number, path in enumerate(self.files, 1):
            title = str(path) if self.is_lone else f"{path} ({number} of {len(self.files)})"
            result = known(path)
            if result is None:
                work = work_recorded if records and tasks[path].is_kept else work_on
                result = work(tasks[path], path, title)
            take(result)

    def _run_side_by_side[T](
        self,
        tasks: Mapping[Path, Task[T]],
        known: Callable[[Path], FileResult[T] | None],
        take: Callable[[FileResult[T]], None],
    ) -> None:
        bar = LiveBar(err(), len(tasks)) if has_live_lines() else None

        def show(working: Sequence[Path], done: int) -> None:
            if bar is not None:
                bar.show([path.name for path in working], done)

        def print_result(result: FileResult[T]) -> None:
            if bar is not None:
                bar.hide()
            take(result)

        side_by_side = _runner(tasks, self.jobs, show)
        results = side_by_side.results()
        # A worker that keeps much memory is replaced by loky, which is nothing to tell.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
        try:
            for path in self.files:
                print_result(known(path) or next(results))
        except (KeyboardInterrupt, ClusterError):
            for result in side_by_side.stop():
                print_result(result)
            raise
        finally:
            if bar is not None:
                bar.hide()
            side_by_side.stop()

    def _take[T](self, result: FileResult[T], take: Callable[[Path, T], None]) -> None:
        """Print what belongs to a file, and let the command have what was found in it."""
        self._count += 1
        replay(result.printed)
        result = _written(result)
        if result.error is not None:
            self._first_error = self._first_error or result.error
            self.failures[result.path] = str(result.error)
            if not self.is_lone:
                if debugging.get() and result.error.__cause__ is not None:
                    traceback.print_exception(result.error.__cause__)
                tell(f"error: {result.error}")
            self._print_entry(entry_of_failure(result.path, str(result.error)))
        if result.done is not None:
            self._codes.append(result.done.code)
            take(result.path, result.done.found)
            self._print_entry(result.done.entry)

    def _print_entry(self, entry: str | Mapping[str, Any] | None) -> None:
        if self.json is not None and entry is not None:
            text = entry if isinstance(entry, str) else self.json.entry(entry)
            self._print(self.json.before(self._entries) + text)
            self._entries += 1

    def _print(self, text: str) -> None:
        stream = Stream("stdout")
        stream.write(text)
        stream.flush()


class _Runner[T](Protocol):
    """Who works on files: processes here, or a cluster."""

    def results(self) -> Iterator[FileResult[T]]:
        """Yield the result of each file, in their order."""

    def stop(self) -> list[FileResult[T]]:
        """End the work; return the results that are there and were not yielded, in order."""


def _runner[T](
    tasks: Mapping[Path, Task[T]], where: Where, shows: Callable[[Sequence[Path], int], None]
) -> _Runner[T]:
    if isinstance(where, Cluster):
        from scanopt_cli.cli.cluster import OnCluster
        from scanopt_cli.cli.cluster_workers import DaskWorkers

        return OnCluster(tasks, DaskWorkers(where), shows)
    from scanopt_cli.cli.jobs import SideBySide, cores

    jobs = min(cores() if where is None else where, max(len(tasks), 1))
    return SideBySide(tasks, jobs, shows)


def _written[T](result: FileResult[T]) -> FileResult[T]:
    """Write the files that a result is to be written to; if that fails, that is the result."""
    from scanopt_cli.cli.targets import write_file

    try:
        for target, data in () if result.done is None else result.done.files.items():
            write_file(target, data)
    except ScanoptError as error:
        return FileResult(result.path, error=error)
    return result
