"""Child processes for threads: each works on one file at a time, for the thread that waits for it.

They bound time and memory and die alone, as workers of `--jobs` do. So the threads of a Dask worker
have them, and those that read pickles for a cluster.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

from scanopt_cli.cli.file_work import FileResult, Task
from scanopt_cli.cli.jobs import Pool, Setting, SideBySide

_IDLE = 60.0
"""Seconds after which a process ends that nobody needed."""


class Children:
    """Processes that are started when they are needed, and end when they are not for long.

    Parameters
    ----------
    setting
        What they are told.
    share
        How many of them share the cores.
    idle
        Seconds after which one ends that nobody needed.
    """

    def __init__(self, setting: Setting, share: int, idle: float = _IDLE) -> None:
        self._setting = setting
        self._share = share
        self._idle = idle
        self._lock = threading.Lock()
        self._waiting: list[tuple[float, Pool]] = []
        self._busy: list[Pool] = []
        self._timer: threading.Timer | None = None
        self._is_over = False

    @property
    def is_empty(self) -> bool:
        """Whether there is no process."""
        with self._lock:
            return not (self._waiting or self._busy)

    def work[T](self, task: Task[T], path: Path) -> FileResult[T]:
        """Let a process do a command's work on a file, and wait for it; a fault is the result."""
        pool = self._take()
        try:
            (result,) = SideBySide({path: task}, 1, _show_nothing, pool).results()
            return result
        finally:
            self._give_back(pool)

    def stop(self) -> None:
        """End all processes; what they are doing is lost."""
        with self._lock:
            self._is_over = True
            pools = [*self._busy, *(pool for _, pool in self._waiting)]
            self._waiting.clear()
            if self._timer is not None:
                self._timer.cancel()
        for pool in pools:
            pool.stop()

    def _take(self) -> Pool:
        with self._lock:
            pool = self._waiting.pop()[1] if self._waiting else Pool(self._setting, self._share)
            self._busy.append(pool)
            return pool

    def _give_back(self, pool: Pool) -> None:
        with self._lock:
            self._busy.remove(pool)
            if not self._is_over:
                self._waiting.append((time.monotonic(), pool))
                self._look_later()
                return
        pool.stop()

    def _look_later(self) -> None:
        if self._timer is None and self._waiting:
            left = self._idle - (time.monotonic() - self._waiting[0][0])
            self._timer = threading.Timer(max(left, 0), self._end_idle)
            self._timer.daemon = True
            self._timer.start()

    def _end_idle(self) -> None:
        with self._lock:
            self._timer = None
            since = time.monotonic() - self._idle
            ended = [pool for began, pool in self._waiting if began <= since]
            self._waiting = [each for each in self._waiting if each[0] > since]
            self._look_later()
        for pool in ended:
            pool.stop()


def _show_nothing(_working: Sequence[Path], _done: int) -> None:
    pass
