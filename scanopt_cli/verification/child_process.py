"""How a child process begins: it reads what to do, and bounds its own time and memory."""

from __future__ import annotations

import pickle
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from scanopt_cli.verification.spawning import PATIENCE, REQUEST

MEMORY = 8 << 30
"""Bytes of address space."""

_LONGEST_FILE = 1 << 30
"""A graph may print. What is compiled, and what is found, is far shorter."""

# Seconds in which the clock of processor time becomes fine; that it is, so many differences tell,
# one after the other, each of at most so many seconds.
_TICKS = 0.1
_MOVES = 10
_FINE = 1e-3


def read_request(directory: str) -> Any:
    """Return what the parent wrote for its child."""
    with (Path(directory) / REQUEST).open("rb") as file:
        sys.setrecursionlimit(1_000_000)  # for deep graphs; Python frames use no C stack
        return pickle.load(file)


def limit_process(timeout: float, memory: int = MEMORY) -> None:
    """Bound processor time, memory and, in case the parent is gone, time, as far as possible."""
    if hasattr(signal, "setitimer"):
        # What the parent ignores, the child would ignore as well.
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, timeout)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE * timeout + 5)
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (_LONGEST_FILE, _LONGEST_FILE))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        # The command's own limit is not for evaluations.
        most = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


@contextmanager
def fine_clock() -> Iterator[None]:
    """Let `time.process_time` be exact inside, where nothing bounds processor time meanwhile.

    While a timer of processor time runs, Linux counts it in ticks of some milliseconds, until one
    tick after the timer is stopped.
    """
    if not hasattr(signal, "setitimer"):
        yield
        return
    left, _ = signal.setitimer(signal.ITIMER_PROF, 0)
    started = process_time()
    end = perf_counter() + _TICKS
    before, moves = started, 0
    while perf_counter() < end and moves < _MOVES:
        now = process_time()
        moves = moves + 1 if 0 < now - before < _FINE else 0
        before = now
    try:
        yield
    finally:
        if left:
            signal.setitimer(signal.ITIMER_PROF, max(left - (process_time() - started), _FINE))
