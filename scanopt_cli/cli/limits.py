"""Limits of processor time and memory for work on files that a stranger may have made."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from types import FrameType

from scanopt_cli.errors import LoadError
from scanopt_cli.serialization.files import Blob, is_data_path

SECONDS = 20
"""Processor time for reading a file, in seconds. An honest file of 100,000 nodes takes half."""
SECONDS_FOR_A_KILOBYTE = 4
"""Processor time for each KB of a file that is rewritten, differentiated or compared.
The third derivatives of the sample graphs take half."""
PATIENCE = 10
"""How many seconds are waited for each second of processor time that a file may take."""
BYTES = 1 << 30
"""Memory for a file, beside what the process has already."""

# A signal that is lost, since it arrives in a finalizer, comes again after so many seconds.
_AGAIN = 0.5
# A file of data has a fifth of the size of a pickle of the same graph (docs/explain/format.md).
_SMALLER = 5
_STATUS = Path("/proc/self/status")


class _OutOfTime(BaseException):
    """Time is up; no Exception, so that nobody takes it for a fault of what is being read."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline


@contextmanager
def limited(*paths: Path | Blob, trust: bool = False, only_read: bool = True) -> Iterator[None]:
    """Bound the processor time and the memory of what is done inside, as far as the system can.

    Time is bounded where there are interval timers (not on Windows) and in the main thread, memory
    where private memory can be (Linux). With ``trust``, neither is. Limits may be nested.

    Parameters
    ----------
    paths
        The files that are worked on.
    trust
        Whether there is no limit.
    only_read
        Whether they are only read, which takes `SECONDS` for each at most. Other work may take
        `SECONDS_FOR_A_KILOBYTE` for each KB of a file, if that is more.

    Raises
    ------
    LoadError
        If time or memory is not enough.
    """
    if trust:
        yield
        return
    seconds = sum(_seconds(path, only_read=only_read) for path in paths)
    deadline = time.process_time() + seconds
    doing = "read" if only_read else "work on"
    try:
        # The limits end before an error is reported.
        with _limited_memory(), _limited_time(deadline):
            yield
    except _OutOfTime as over:
        if over.deadline != deadline:
            raise
        raise _refused(paths, f"{seconds} seconds of processor time to {doing}") from None
    except Exception as error:
        if _is_out_of_memory(error):
            raise _refused(paths, f"{BYTES >> 30} GB of memory to {doing}") from None
        raise


def patience(
    path: Path, *, trust: bool, only_read: bool = False, more: float = 0.0
) -> float | None:
    """Return how many seconds work on a file may take that mostly waits, ``None`` for any time.

    That is `PATIENCE` for each second of processor time, and for each of ``more`` such seconds that
    its own children may use.
    """
    return None if trust else PATIENCE * (_seconds(path, only_read=only_read) + more)


def _seconds(path: Path | Blob, *, only_read: bool) -> float:
    return max(SECONDS, (0 if only_read else SECONDS_FOR_A_KILOBYTE) * _kilobytes(path))


def _kilobytes(path: Path | Blob) -> int:
    """Return the size of a file; of one of data, that of a pickle of the same graph."""
    try:
        size = path.size if isinstance(path, Blob) else path.stat().st_size
    except OSError:
        return 0
    return (size * (_SMALLER if is_data_path(Path(str(path))) else 1)) >> 10


def _refused(paths: tuple[Path | Blob, ...], much: str) -> LoadError:
    is_lone = len(paths) == 1
    return LoadError(
        f"{'takes' if is_lone else 'take'} more than {much}",
        where=" and ".join(map(str, paths)),
        hint=f"use --trust, if you trust {'its author' if is_lone else 'their authors'}",
    )


def _is_out_of_memory(error: BaseException | None) -> bool:
    """Whether the cause is a `MemoryError`, even if it was reported as another error."""
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


class _Alarm:
    """What the timer calls once ``deadline`` has passed, in seconds of `time.process_time`."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline

    def set(self) -> None:
        """Have the timer call it, and no other."""
        signal.signal(signal.SIGPROF, self)
        left = self.deadline - time.process_time()
        signal.setitimer(signal.ITIMER_PROF, max(left, _AGAIN), _AGAIN)

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        if self.deadline < inf:
            raise _OutOfTime(self.deadline)


@contextmanager
def _limited_time(deadline: float) -> Iterator[None]:
    can_stop = (
        hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    )
    around = signal.getsignal(signal.SIGPROF) if can_stop else None
    if not (isinstance(around, _Alarm) or around is signal.SIG_DFL):
        yield
        return
    # Of nested limits, the timer waits for the one that ends first.
    outer = around.deadline if isinstance(around, _Alarm) else inf
    alarm = _Alarm(min(deadline, outer))
    alarm.set()
    try:
        yield
    finally:
        alarm.deadline = inf
        if isinstance(around, _Alarm):
            around.set()
        else:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, signal.SIG_DFL)


@contextmanager
def _limited_memory() -> Iterator[None]:
    private = _private_memory()
    if private is None:
        yield
        return
    import resource

    before, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = private + BYTES
    bounds = [limit for limit in (before, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([wanted, *bounds]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, hard))


def _private_memory() -> int | None:
    """Return the bytes of private memory of this process, or ``None`` where nobody says."""
    try:
        lines = _STATUS.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return None
    sizes = [line.split()[1] for line in lines if line.startswith("VmData:")]
    return int(sizes[0]) << 10 if sizes else None
