"""Atomic writing of files.

The data goes to a scratch file beside the target, which then takes the target's place. The writer
holds a lock on its scratch file, which the system ends with the process. So a scratch file without
a lock was left behind by a process that was killed, and the next one that writes there removes it.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO
from uuid import uuid4

from scanopt_cli.errors import ScanoptError
from scanopt_cli.serialization.files import GIVE_A_FILE

_MOST_LINKS = 40

# How much of the target's name the name of a scratch file holds, so that it is not too long.
_LONGEST_STEM = 100
# The names of scratch files: of this version, and of earlier ones for a target.
_SCRATCH = r"\..+\.[0-9a-f]{32}\.scratch"
_EARLIER_SCRATCH = r"\.%s\.[0-9a-f]{32}(?:\.scanopt)?"
# Seconds after which a scratch file is old where files cannot be locked.
_OLD = 24 * 60 * 60


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path``, whole or not at all; a file that was there keeps its mode.

    What processes that were killed left behind in the directory is removed.

    Raises
    ------
    ScanoptError
        If the file cannot be written, or something else than a file is there. What was there before
        is untouched.
    """
    if any(str(hop).startswith(("/dev/", "/proc/")) for hop in _hops(path)):
        # A link to where standard output goes, or to it.
        raise ScanoptError("is not a regular file", where=str(path), hint=GIVE_A_FILE)
    target = Path(os.path.realpath(path))
    if target.exists() and not (target.is_file() or target.is_dir()):
        raise ScanoptError("is not a regular file", where=str(path), hint=GIVE_A_FILE)
    _clear(target)
    try:
        with _scratch_file(target) as (scratch, file):
            with file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileNotFoundError):
                scratch.chmod(stat.S_IMODE(target.stat().st_mode))
            scratch.replace(target)
    except OSError as error:
        raise ScanoptError(
            f"cannot be written: {error.strerror or error}",
            where=str(path),
            hint="check the directory and its permissions",
        ) from None


def _hops(path: Path) -> Iterator[Path]:
    """Yield ``path`` and where its links lead, one after the other; each parent is resolved."""
    for _ in range(_MOST_LINKS):
        path = Path(os.path.realpath(path.parent)) / path.name
        yield path
        if not path.is_symlink():
            break
        path = path.parent / path.readlink()


@contextmanager
def _scratch_file(target: Path) -> Iterator[tuple[Path, IO[bytes]]]:
    """Make a file beside ``target``; lock it, and remove it if it has the same name at the end."""
    with ExitStack() as stack:
        is_mine = False
        while not is_mine:
            scratch = target.with_name(f".{target.name[:_LONGEST_STEM]}.{uuid4().hex}.scratch")
            file = stack.enter_context(scratch.open("xb"))
            stack.callback(_remove, scratch)
            if sys.platform != "win32":  # which replaces no file by one that is open
                # The lock is that of both descriptors, so it outlives the file.
                descriptor = os.dup(file.fileno())
                stack.callback(os.close, descriptor)
                _lock(descriptor, waits=True)
            # Until it was locked, another process could take it for left behind.
            is_mine = scratch.exists()
        yield scratch, file


def _clear(target: Path) -> None:
    """Remove the scratch files beside ``target`` that were left behind."""
    earlier = _EARLIER_SCRATCH % re.escape(target.name[:_LONGEST_STEM])
    is_scratch = re.compile(f"{_SCRATCH}|{earlier}", re.DOTALL).fullmatch
    # Who may write here, but not look around, clears nothing.
    with suppress(OSError):
        for name in filter(is_scratch, os.listdir(target.parent)):
            scratch = target.with_name(name)
            if _is_left_behind(scratch):
                _remove(scratch)


def _is_left_behind(scratch: Path) -> bool:
    """Whether no process has locked ``scratch``; where files cannot be locked, whether it is old.

    What cannot be opened is not this user's to remove.
    """
    with suppress(OSError):
        # To open a pipe that is named so would wait for somebody to write to it.
        descriptor = os.open(scratch, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        try:
            is_free = _lock(descriptor, waits=False)
            if is_free is None:
                return time.time() - os.fstat(descriptor).st_mtime > _OLD
            return is_free
        finally:
            os.close(descriptor)
    return False


def _lock(descriptor: int, *, waits: bool) -> bool | None:
    """Lock an open file; return whether nobody else has, and nothing if there are no locks."""
    if sys.platform == "win32":
        return None
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # not on this file system
        return None
    return True


def _remove(scratch: Path) -> None:
    with suppress(OSError):
        scratch.unlink(missing_ok=True)
