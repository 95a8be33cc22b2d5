"""How much memory a process has taken at most: its resident set, which holds all arrays."""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


def peak() -> int | None:
    """Return the most bytes that this process has had, since `begin` if that can be known.

    ``None`` if the system does not tell.
    """
    found = _status("VmHWM")
    if found is not None:
        return found
    try:
        import resource
    except ImportError:
        return None
    most: int = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most << 10


def begin() -> int | None:
    """Give back what is free, forget the peak if the system can, and return what is taken now.

    Where the system cannot, this is the peak so far: then only what exceeds it is seen.
    """
    gc.collect()
    with suppress(OSError, AttributeError):  # of the GNU C library
        ctypes.CDLL(None).malloc_trim(0)
    try:
        _CLEAR.write_text(_RESET_PEAK)
    except OSError:
        return peak()
    now = _status("VmRSS")
    return peak() if now is None else now


def _status(name: str) -> int | None:
    """Return what Linux says of this process, in bytes."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:")), None)
