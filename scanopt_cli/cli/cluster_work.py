"""What a Dask worker does for `--cluster`: a child process of it works on what it is sent.

Dask calls this in a thread of the worker. Limits of time and memory need the main thread of a
process that may die, so there is a process for each thread.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scanopt_cli.cli.children import Children
from scanopt_cli.cli.file_work import Done, Task
from scanopt_cli.cli.jobs import Setting
from scanopt_cli.cli.session import Session
from scanopt_cli.errors import ScanoptError
from scanopt_cli.serialization.files import Blob


@dataclass(frozen=True, slots=True)
class Order:
    """What is sent to a worker: the work on one file.

    Attributes
    ----------
    run
        Which command of a user it is for.
    setting
        What that is like.
    share
        How many threads the worker has.
    task, path
        What is done with the file.
    files
        What was read of it, as data.
    seconds
        How long it may take, ``None`` for any time.
    """

    run: str
    setting: Setting
    share: int
    task: Task[Any]
    path: Path
    files: Sequence[Blob]
    seconds: float | None


@dataclass(frozen=True, slots=True)
class _Sent(Task[Any]):
    """A task whose file is elsewhere."""

    order: Order

    def read(self, path: Path) -> Sequence[Blob]:
        """Return what was sent; a pickle is none of it, since a trusted one could run code."""
        for file in self.order.files:
            if not file.is_data:
                raise ScanoptError("is a pickle, which is not sent", where=str(path))
        return self.order.files

    def work(self, path: Path, files: Sequence[Blob], title: str, /) -> Done[Any]:
        """Do the work of the task."""
        return self.order.task.work(path, files, title)

    def permissions(self) -> Session:
        """Return what may be loaded."""
        return self.order.task.permissions()

    def patience(self, _path: Path) -> float | None:
        """Return how many seconds it may take."""
        return self.order.seconds


_lock = threading.Lock()
_runs: dict[str, Children] = {}
"""The processes for each command that is running."""


def work(order: bytes) -> bytes:
    """Return the result of what is ordered."""
    wanted: Order = pickle.loads(order)
    result = _children_for(wanted).work(_Sent(wanted), wanted.path)
    return pickle.dumps(result)


def end(run: str) -> None:
    """End the processes for a command, without waiting for that: Dask calls this between others."""
    with _lock:
        children = _runs.pop(run, None)
    if children is not None:
        threading.Thread(target=children.stop).start()


def _children_for(order: Order) -> Children:
    with _lock:
        over = [run for run, children in _runs.items() if run != order.run and children.is_empty]
        for run in over:
            del _runs[run]  # its command ended without a word
        if order.run not in _runs:
            _runs[order.run] = Children(order.setting, order.share)
        return _runs[order.run]
