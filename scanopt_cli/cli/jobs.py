"""Files worked on side by side, by worker processes of loky's, which Joblib has.

No more files are given to workers than there are workers. So when one dies, which takes the others
with it, the files that were in work are known: a single worker does them again, one by one, and the
one that ends it is told. The results are those that there would be otherwise, in the order of the
files.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import current_process
from pathlib import Path
from types import FrameType
from typing import Any

from scanopt_cli.cli.error_text import debugging, told
from scanopt_cli.cli.file_work import FileResult, Task, work_in_worker
from scanopt_cli.cli.recording import Screen, screens
from scanopt_cli.environment import STRICT
from scanopt_cli.errors import ScanoptError
from scanopt_cli.ir.older_objects import collect_rarely

MOST_HELD = 64 << 20
"""Bytes of results that may wait for one of a file before; then no other file is begun."""
_GRACE = 2.0
"""Seconds in which a worker that is told to stop can end its own children, and clear up."""
_LOOKS = 0.5
"""Seconds between two looks of a worker at whether there still is somebody who wants results."""
# Each worker has a share of the cores; else the threads of all would fight for them.
_THREADS = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"),
    *("VECLIB_MAXIMUM_THREADS", "NUMBA_NUM_THREADS", "NUMEXPR_NUM_THREADS"),
)
_LOOKS_OF_RICH = (
    *("COLUMNS", "LINES", "TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR"),
    *("TTY_COMPATIBLE", "TTY_INTERACTIVE"),
)
_QUIETLY = "ignore:resource_tracker:UserWarning"
_EXIT_CODES = re.compile(r"exit codes of the workers are \{(.*)\}")


def cores() -> int:
    """Return how many processes can run at once: the cores that this one may use."""
    from joblib import cpu_count

    return max(int(cpu_count()), 1)


@dataclass(frozen=True, slots=True)
class Setting:
    """What a worker is told of the command that the user runs, beside the tasks.

    Attributes
    ----------
    is_debugging
        Whether there is ``--debug``.
    screens
        What the results are printed on.
    environment
        The variables that say how results look, and whether an error of a pass ends the work on a
        file: their values, ``None`` of one that is not set.
    """

    is_debugging: bool
    screens: Mapping[str, Screen]
    environment: Mapping[str, str | None]

    @classmethod
    def here(cls) -> Setting:
        """Return that of this process."""
        environment = {name: os.environ.get(name) for name in (*_LOOKS_OF_RICH, STRICT)}
        return cls(debugging.get(), screens(), environment)


class Pool:
    """Worker processes, which are started when there is something to do.

    Each is given the path of a file, and what is to be done with it.

    Parameters
    ----------
    setting
        What the workers are told; by default what this process is told.
    share
        How many processes share the cores; by default the workers.
    """

    def __init__(self, setting: Setting | None = None, share: int | None = None) -> None:
        self._given = os.getpid(), setting or Setting.here()
        self._share = share
        self._executor: Any = None
        self._size = 0
        self._futures: set[Future[Any]] = set()

    def submit(self, size: int, task: Task[Any], path: Path) -> Future[FileResult[Any]]:
        """Let one of ``size`` workers work on a file."""
        if size != self._size:
            self.stop()
        with _without_interrupts(), _no_daemon():  # workers inherit that
            if self._executor is None:
                self._executor, self._size = self._started(size), size
            future: Future[FileResult[Any]] = self._executor.submit(_work, task, path)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        return future

    def stop(self) -> None:
        """End all workers, with their own children; what they are doing is lost."""
        executor, self._executor = self._executor, None
        if executor is None:
            return
        if self._futures:
            for pid in dict(getattr(executor, "_processes", {})):
                with suppress(OSError):
                    os.kill(pid, signal.SIGTERM)
            wait(tuple(self._futures), timeout=_GRACE)
        executor.shutdown(wait=True, kill_workers=True)

    def _started(self, size: int) -> Any:
        from joblib.externals.loky import ProcessPoolExecutor

        threads = str(max(cores() // (self._share or size), 1))
        environment = {name: os.environ.get(name, threads) for name in _THREADS}
        # The process that clears up behind one that was killed has these options, and is to do so
        # without a word.
        sys.warnoptions.append(_QUIETLY)
        try:
            return ProcessPoolExecutor(
                size, initializer=_set_up, initargs=self._given, env=environment
            )
        except (OSError, NotImplementedError) as error:
            raise ScanoptError(
                f"no workers can be started: {error}", where="--jobs", hint="use --jobs 0"
            ) from None
        finally:
            sys.warnoptions.remove(_QUIETLY)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Put off ctrl-C; a process that is started inside never hears of it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_setting_aside = threading.Lock()


@contextmanager
def _no_daemon() -> Iterator[None]:
    """Let this process have children, even one that multiprocessing calls a daemon, as Dask's are.

    Those of a daemon would live on, which ours do not: see `_watch`.
    """
    config: dict[str, Any] = getattr(current_process(), "_config", {})
    with _setting_aside:
        before = config.pop("daemon", None)
        try:
            yield
        finally:
            if before is not None:
                config["daemon"] = before


_screens: dict[str, Screen] = {}
"""In a worker: the screens that it prints for."""


def _work(task: Task[Any], path: Path) -> FileResult[Any]:
    return work_in_worker(task, path, _screens)


def _set_up(parent: int, setting: Setting) -> None:
    """Set up a worker: it prints nothing by itself, and ends when it is told to or is alone."""
    from scanopt_cli.cli.console import set_up

    _screens.update(setting.screens)
    debugging.set(setting.is_debugging)
    for name, value in setting.environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    if not setting.is_debugging:
        # What a library writes past Python, or a crash does, would stand in the midst of results.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for descriptor in (1, 2):
            os.dup2(nowhere, descriptor)
        os.close(nowhere)
    set_up()
    collect_rarely()
    signal.signal(signal.SIGTERM, _stop)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _stop(_number: int, _frame: FrameType | None) -> None:
    """Leave what is being done as ctrl-C would, so that it clears up."""
    raise KeyboardInterrupt


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOKS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE)
    os._exit(1)


@dataclass
class SideBySide[T]:
    """The work on several files, by some workers.

    Attributes
    ----------
    tasks, jobs
        What is done with each file, and by how many workers.
    shows
        Called while results are waited for, with the files in work and how many are done.
    pool
        The workers.
    """

    tasks: Mapping[Path, Task[T]]
    jobs: int
    shows: Callable[[Sequence[Path], int], None]
    pool: Pool = field(default_factory=Pool)
    _running: dict[Future[FileResult[T]], tuple[int, float]] = field(default_factory=dict)
    _suspects: deque[int] = field(default_factory=deque)
    _is_alone: bool = False
    _done: dict[int, FileResult[T]] = field(default_factory=dict)
    _next: int = 0

    def __post_init__(self) -> None:
        self._paths = list(self.tasks)
        self._waiting = deque(range(len(self._paths)))
        self._limits = [task.patience(path) for path, task in self.tasks.items()]

    def results(self) -> Iterator[FileResult[T]]:
        """Yield the result of each file, in their order."""
        while self._next < len(self._paths):
            self._begin()
            while self._next in self._done:
                result = self._done.pop(self._next)
                self._next += 1
                yield result
            if self._running:
                self._collect()

    def stop(self) -> list[FileResult[T]]:
        """End the workers; return the results that are there and were not yielded, in order."""
        for future in [each for each in self._running if each.done()]:
            index, _ = self._running.pop(future)
            if future.exception() is None:
                self._done[index] = future.result()
        self.pool.stop()
        return [self._done[index] for index in sorted(self._done)]

    def _begin(self) -> None:
        """Give files to workers that have none; to one alone, if one of several files kills it."""
        if self._is_alone and self._running:
            return
        self._is_alone = bool(self._suspects)
        if self._is_alone:
            self.pool.stop()  # what a file before left running may end the process later
            self._start(self._suspects.popleft(), 1)
        else:
            while self._waiting and len(self._running) < self.jobs and self._has_room():
                self._start(self._waiting.popleft(), self.jobs)

    def _has_room(self) -> bool:
        return not self._running or sum(each.size for each in self._done.values()) < MOST_HELD

    def _start(self, index: int, size: int) -> None:
        path = self._paths[index]
        task = self.tasks[path]
        try:
            future = self.pool.submit(size, task, path)
        except BrokenProcessPool:  # a worker died that had nothing to do
            self.pool.stop()
            future = self.pool.submit(size, task, path)
        self._running[future] = index, time.monotonic()

    def _collect(self) -> None:
        """Wait until a worker has a result, dies or takes too long."""
        working = [self._paths[index] for index, _ in self._running.values()]
        self.shows(working, self._next + len(self._done))
        finished, _ = wait(self._running, self._seconds_left(), FIRST_COMPLETED)
        broken: dict[int, BaseException] = {}
        for future in finished:
            index, _ = self._running.pop(future)
            error = future.exception()
            if error is None:
                self._done[index] = future.result()
            elif isinstance(error, BrokenProcessPool):
                broken[index] = error
            elif isinstance(error, KeyboardInterrupt):
                self._fail(index, "the process that worked on it was told to stop")
            else:
                self._fail(index, told(error))
        if broken:
            self._renew(broken)
        else:
            self._end_late_ones()

    def _renew(self, broken: dict[int, BaseException]) -> None:
        """Go on after workers died: with the file that did that if it was alone, else one by one.

        One of several that runs while nothing else does is alone only in a new process: what a
        file before left running may have ended this one, or another that had nothing to do.
        """
        # The others that run get the same error, if not in this moment.
        broken |= {index: next(iter(broken.values())) for index, _ in self._running.values()}
        self._running.clear()
        self.pool.stop()
        if self._is_alone or len(self._paths) == 1:
            for index, error in broken.items():
                self._fail(index, _how_it_died(error), died=True)
        else:
            self._suspects.extend(sorted(broken))

    def _seconds_left(self) -> float | None:
        """Return how long the first of those that run may still take."""
        now = time.monotonic()
        ends = [
            began + limit - now
            for index, began in self._running.values()
            if (limit := self._limits[index]) is not None
        ]
        return max(min(ends), 0) if ends else None

    def _end_late_ones(self) -> None:
        now = time.monotonic()
        late = {
            index: limit
            for index, began in self._running.values()
            if (limit := self._limits[index]) is not None and now - began > limit
        }
        if not late:
            return
        # It is not known which worker has the file.
        others = sorted({index for index, _ in self._running.values()} - late.keys())
        self.pool.stop()
        self._running.clear()
        self._waiting.extendleft(reversed(others))
        for index, limit in late.items():
            self._fail(
                index, f"takes more than {limit:g} seconds", "use --trust, if you trust its author"
            )

    def _fail(self, index: int, what: str, hint: str | None = None, *, died: bool = False) -> None:
        path = self._paths[index]
        error = ScanoptError(what, where=str(path), hint=hint)
        self._done[index] = FileResult(path, error=error, died=died)


def _how_it_died(error: BaseException) -> str:
    """Return how the only worker that had something to do died, by the error of the pool."""
    found = _EXIT_CODES.search(str(error))
    codes = found[1] if found is not None and sys.platform != "win32" else ""
    how = f" ({codes})" if codes else ""
    return f"the process that worked on it died{how}"
