"""Files worked on by the workers of a cluster: nothing is lost, and nothing comes twice.

This process reads the files, and sends their graphs as data. A pickle is made data by a child
process; a graph that cannot be is worked on by that child, so that there is the same result for it
too. A worker that is lost has its files taken away. What was lost with a worker goes to one that
does nothing else, so that a file that ends workers is known; and what ended a process of a worker
is done once more by another.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from uuid import uuid4

from scanopt_cli.cli.children import Children
from scanopt_cli.cli.cluster_contract import LostError, Workers
from scanopt_cli.cli.cluster_work import Order
from scanopt_cli.cli.file_work import FileResult, Task, failure_of
from scanopt_cli.cli.jobs import MOST_HELD, Setting, cores
from scanopt_cli.cli.making_data import AsData, MakingData
from scanopt_cli.errors import ScanoptError
from scanopt_cli.serialization.files import Blob

_MOST_LOSSES = 3
"""How many workers may be lost that had a file, until it is told that the file is the reason."""
_LOOKS = 0.5
"""Seconds between two looks at the workers, at most."""


@dataclass
class _Ready:
    """A file that can be sent.

    Attributes
    ----------
    index
        The number of the file.
    files
        What was read of it, as data.
    lost
        How many workers were lost that had it.
    killed
        The worker whose process it ended.
    """

    index: int
    files: Sequence[Blob]
    lost: int = 0
    killed: str | None = None

    @property
    def size(self) -> int:
        """How many bytes are held for it."""
        return sum(len(file.data) for file in self.files)


@dataclass
class OnCluster[T]:
    """The work on several files by a cluster.

    Attributes
    ----------
    tasks
        What is done with each file.
    workers
        Who does it.
    shows
        Called while results are waited for, with the files in work and how many are done.
    """

    tasks: Mapping[Path, Task[T]]
    workers: Workers
    shows: Callable[[Sequence[Path], int], None]
    _reading: dict[Future[FileResult[Any]], int] = field(default_factory=dict)
    _ready: deque[_Ready] = field(default_factory=deque)
    _sent: dict[Any, tuple[str, _Ready]] = field(default_factory=dict)
    _done: dict[int, FileResult[T]] = field(default_factory=dict)
    _next: int = 0

    def __post_init__(self) -> None:
        self._run = uuid4().hex
        self._setting = Setting.here()
        self._paths = list(self.tasks)
        self._waiting = deque(range(len(self._paths)))
        self._events: SimpleQueue[Any] = SimpleQueue()
        self._children = Children(self._setting, cores())
        self._threads = ThreadPoolExecutor(cores())
        self._is_over = False

    def results(self) -> Iterator[FileResult[T]]:
        """Yield the result of each file, in their order.

        Raises
        ------
        ScanoptError
            If there are no workers any more.
        """
        while self._next < len(self._paths):
            self.workers.look()
            self._take_from_lost_workers()
            self._begin()
            while self._next in self._done:
                result = self._done.pop(self._next)
                self._next += 1
                yield result
            if self._next < len(self._paths):
                self._collect()

    def stop(self) -> list[FileResult[T]]:
        """Leave the workers; return the results that are there and were not yielded, in order."""
        if not self._is_over:
            self._is_over = True
            for work in [each for each in self._sent if each.done()]:
                self._take(work)
            for work in self._sent:
                self.workers.cancel(work)
            self._sent.clear()
            self.workers.end(self._run)
            self._children.stop()
            self._threads.shutdown(wait=False, cancel_futures=True)
        return [self._done[index] for index in sorted(self._done)]

    def _begin(self) -> None:
        """Give files to workers that have room, and read more."""
        while True:
            worker = self._worker_for(self._ready[0]) if self._ready else None
            if worker is not None:
                self._send(self._ready.popleft(), worker)
            elif self._waiting and self._may_read():
                self._read(self._waiting.popleft())
            else:
                return

    def _may_read(self) -> bool:
        beginning = len(self._reading) + len(self._ready)
        # A look at the workers gives time to find out which there are.
        if beginning >= max(sum(self.workers.usable.values()), 1):
            return False
        held = sum(each.size for each in self._done.values())
        held += sum(ready.size for ready in self._ready)
        held += sum(ready.size for _, ready in self._sent.values())
        return held < MOST_HELD or not (beginning or self._sent)

    def _read(self, index: int) -> None:
        path = self._paths[index]
        task = self.tasks[path]
        try:
            files = task.read(path)
        except Exception as error:
            self._done[index] = FileResult(path, error=failure_of(path, error))
            return
        if all(file.is_data for file in files):
            self._ready.append(_Ready(index, files))
            return
        reading = self._threads.submit(self._children.work, MakingData(task), path)
        self._reading[reading] = index
        reading.add_done_callback(self._events.put)

    def _worker_for(self, ready: _Ready) -> str | None:
        """Return the worker that has most room for a file, if one has any."""
        loads = dict.fromkeys(self.workers.usable, 0)
        alone = set()
        for worker, other in self._sent.values():
            if worker in loads:
                loads[worker] += 1
            if other.lost:
                alone.add(worker)
        # One that waits at the worker saves the way there and back, while there is much to do.
        more = len(self._waiting) > sum(self.workers.usable.values())
        rooms = {
            worker: threads + more - loads[worker]
            for worker, threads in self.workers.usable.items()
            if threads  # or it pauses
            and worker not in alone
            and worker != ready.killed
            and not (ready.lost and loads[worker])
        }
        best = max(rooms, key=rooms.__getitem__, default=None)
        return best if best is not None and rooms[best] > 0 else None

    def _send(self, ready: _Ready, worker: str) -> None:
        path = self._paths[ready.index]
        task = self.tasks[path]
        order = Order(
            run=self._run,
            setting=self._setting,
            share=self.workers.usable[worker],
            task=task,
            path=path,
            files=ready.files,
            seconds=task.patience(path),
        )
        work = self.workers.start(worker, pickle.dumps(order), self._events.put)
        self._sent[work] = worker, ready

    def _collect(self) -> None:
        """Wait until something is read or done, for some time."""
        indices = sorted(
            [*self._reading.values(), *(ready.index for _, ready in self._sent.values())]
        )
        self.shows([self._paths[index] for index in indices], self._next + len(self._done))
        until = time.monotonic() + _LOOKS
        try:
            while True:
                event = self._events.get(timeout=max(until - time.monotonic(), 0))
                if event in self._reading:
                    self._take_data(event)
                elif event in self._sent:
                    self._take(event)
                else:
                    continue  # of a worker that was taken for lost
                if self._events.empty():
                    return
        except Empty:
            return

    def _take_data(self, reading: Future[FileResult[Any]]) -> None:
        """Take what became of a pickle: data, or the result of the work on it."""
        index = self._reading.pop(reading)
        error = reading.exception()
        if error is not None:
            path = self._paths[index]
            self._done[index] = FileResult(path, error=failure_of(path, error))
            return
        result = reading.result()
        if result.done is not None and isinstance(result.done.found, AsData):
            self._ready.append(_Ready(index, result.done.found.files))
        else:
            self._done[index] = result

    def _take(self, work: Any) -> None:
        """Take what a worker returned."""
        worker, ready = self._sent.pop(work)
        path = self._paths[ready.index]
        try:
            result: FileResult[T] = pickle.loads(self.workers.result(work))
        except LostError:
            self._lose(ready)
        except Exception as error:
            self._done[ready.index] = FileResult(path, error=failure_of(path, error))
        else:
            others = self.workers.usable.keys() - {worker}
            if result.died and ready.killed is None and others and not self._is_over:
                ready.killed = worker
                self._ready.appendleft(ready)
            else:
                self._done[ready.index] = result

    def _take_from_lost_workers(self) -> None:
        for work, (worker, ready) in list(self._sent.items()):
            if worker not in self.workers.usable:
                del self._sent[work]
                self.workers.cancel(work)
                self._lose(ready)
        for ready in self._ready:
            if self.workers.usable.keys() == {ready.killed}:
                ready.killed = None  # there is no other any more

    def _lose(self, ready: _Ready) -> None:
        ready.lost += 1
        if ready.lost < _MOST_LOSSES:
            self._ready.appendleft(ready)
            return
        path = self._paths[ready.index]
        what = f"{_MOST_LOSSES} workers of the cluster were lost while they worked on it"
        self._done[ready.index] = FileResult(path, error=ScanoptError(what, where=str(path)))
