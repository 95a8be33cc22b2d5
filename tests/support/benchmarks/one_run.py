"""Runs of functions in processes of their own, with their processor time and peak memory.

A run is a fork of this process: what it imports here is not counted there, and no run leaves
anything to the next one.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_MOST_WAITING = 8
"""On a busy machine, a second of processor time takes that many."""
_FAILED = 99


@dataclass(frozen=True, slots=True)
class Run:
    """What a run took.

    Attributes
    ----------
    code
        The exit code; None if the run was stopped after the time that it had.
    seconds
        Processor time, of the processes that it started as well.
    megabytes
        The most memory that it, or a process that it started, held at once.
    told
        The last line on stderr.
    """

    code: int | None
    seconds: float
    megabytes: int
    told: str


def run(function: Callable[[], int], limit: float, log: Path) -> Run:
    """Run a function, which returns an exit code, for ``limit`` seconds of processor time at most.

    ``log`` gets what it writes to stderr; what it prints is dropped. What waits is stopped, too.
    """
    child = os.fork()
    if child == 0:
        _be_child(function, limit, log)
    stopped = False
    deadline = time.monotonic() + _MOST_WAITING * limit
    while True:
        pid, status, usage = os.wait4(child, os.WNOHANG)
        if pid:
            break
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            _, status, usage = os.wait4(child, 0)
            stopped = True
            break
        time.sleep(0.02)
    code = os.waitstatus_to_exitcode(status)
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return Run(
        code=None if stopped or code == -signal.SIGXCPU else code,
        seconds=usage.ru_utime + usage.ru_stime,
        megabytes=usage.ru_maxrss >> 10,
        told=lines[-1] if lines else "",
    )


def _be_child(function: Callable[[], int], limit: float, log: Path) -> None:
    code = _FAILED
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, resource.RLIM_INFINITY))
        nowhere = os.open(os.devnull, os.O_RDWR)
        written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for target, source in ((0, nowhere), (1, nowhere), (2, written)):
            os.dup2(source, target)
        code = function()
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        sys.stderr.flush()
        os._exit(code)
