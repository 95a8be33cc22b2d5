"""A command that is run and watched: its time, and the most memory of it and of its workers.

The kernel notes the most memory of each process (``VmHWM`` in ``/proc``); it is read until the
process ends, as is the processor time. Only Linux has these.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

_LOOKS = 0.1
"""Seconds between two looks; what a process does after the last one is not seen."""
_PROC = Path("/proc")
_PARENT, _USER, _SYSTEM = 1, 11, 12  # fields of /proc/PID/stat behind the name
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass(frozen=True, slots=True)
class Watched:
    """What a command took.

    Attributes
    ----------
    code
        Its exit code; None if it was stopped, since it took too long.
    seconds
        Wall time.
    own_seconds, worker_seconds
        Processor time: of the command's own process, and of all others.
    own_megabytes, worker_megabytes
        The most memory: of its own process, and of the largest other one; 0 if there is none.
    errors
        What it wrote to stderr, in lines.
    """

    code: int | None
    seconds: float
    own_seconds: float
    worker_seconds: float
    own_megabytes: float
    worker_megabytes: float
    errors: tuple[str, ...]


@dataclass
class _Seen:
    """What was seen of a process."""

    kilobytes: int = 0
    seconds: float = 0.0


@dataclass
class _Watch:
    """Looks at a process, and at those that it and ``others`` have started."""

    pid: int
    others: Collection[int]
    seen: dict[int, _Seen] = field(default_factory=dict)

    def look(self) -> None:
        children: dict[int, list[int]] = {}
        seconds: dict[int, float] = {}
        for pid, fields in _processes():
            children.setdefault(int(fields[_PARENT]), []).append(pid)
            seconds[pid] = (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS
        waiting = [self.pid, *self.others]
        while waiting:
            pid = waiting.pop()
            waiting += children.get(pid, ())
            seen = self.seen.setdefault(pid, _Seen())
            seen.kilobytes = max(seen.kilobytes, _most_kilobytes(pid))
            seen.seconds = max(seen.seconds, seconds.get(pid, 0.0))


def watched(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    limit: float,
    others: Collection[int] = (),
) -> Watched:
    """Run a command for ``limit`` seconds at most; what it prints is dropped.

    ``others`` are processes that work for it and are no children of it, such as Dask's workers.
    """
    before = _Watch(-1, others)
    before.look()
    started = time.monotonic()
    process = subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    lines: list[str] = []
    assert process.stderr is not None
    reader = Thread(target=lines.extend, args=(process.stderr,), daemon=True)
    reader.start()
    watch, is_stopped = _Watch(process.pid, others), False
    while process.poll() is None:
        watch.look()
        if time.monotonic() - started > limit and not is_stopped:
            os.killpg(process.pid, signal.SIGKILL)
            is_stopped = True
        time.sleep(_LOOKS)
    seconds = time.monotonic() - started
    reader.join(timeout=10)
    watch.look()
    own = watch.seen.pop(process.pid)
    for pid, seen in before.seen.items():
        if pid in watch.seen:
            watch.seen[pid].seconds -= seen.seconds
    workers = watch.seen.values()
    return Watched(
        code=None if is_stopped else process.returncode,
        seconds=seconds,
        own_seconds=own.seconds,
        worker_seconds=sum(seen.seconds for seen in workers),
        own_megabytes=own.kilobytes / 1_024,
        worker_megabytes=max((seen.kilobytes for seen in workers), default=0) / 1_024,
        errors=tuple(line.rstrip("\n") for line in lines),
    )


def _processes() -> Iterator[tuple[int, list[str]]]:
    """Yield all processes, each with the fields of its ``stat`` behind the name."""
    for name in os.listdir(_PROC):
        if name.isdecimal():
            try:
                text = (_PROC / name / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:  # it has ended
                continue
            # The name is in parentheses, and may hold some.
            yield int(name), text.rpartition(")")[2].split()


def _most_kilobytes(pid: int) -> int:
    try:
        lines = (_PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    sizes = [line.split()[1] for line in lines.splitlines() if line.startswith("VmHWM:")]
    return int(sizes[0]) if sizes else 0  # a process that has ended and is not waited for has none
