"""Results on disk that processes share: what one of them has computed, others read.

An entry is a file of its own, named by its key. It is written whole under another name and then
renamed, and it begins with a digest of its key and content: twenty processes may write and read at
once, and what a full disk or a crash leaves behind is no entry. Nothing here raises an error for
what is wrong with the disk. An entry that cannot be read is computed again, so it is written
without the lock and the wait for the disk that a user's file gets (`serialization.writing`), and
never through a link.

Entries may hold pickles and machine code, which nobody can check. So an entry is trusted as far as
the user is: the directory and each file must belong to the user who runs the program, and nobody
else may write to them. PyTensor trusts its own directory of compiled code, in which this one is.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import mkstemp
from time import time

from scanopt_cli.environment import CACHE, CACHE_LIMIT, directory_of_pytensor

LIMIT = 1024
"""How many MiB the entries may take, unless the environment says otherwise."""

_MAGIC = b"scanopt 1\n"
_SUFFIX = ".kept"
_DIGEST = sha256().digest_size
_OFF = frozenset({"0", "off", "no", "false"})
_HOUR = 3600.0
_LOOKS = 20
"""A process looks at all entries after each twentieth part of the limit that it writes."""
_sizes: dict[Path, tuple[int, int]] = {}
"""Of each directory that this process writes to, the bytes of all entries as far as it knows, and
how many of them it wrote since it looked."""
# Of a link nothing is read, and opening a pipe does not wait for somebody who writes to it.
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_NOT_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_USER: int | None = os.geteuid() if hasattr(os, "geteuid") else None


@dataclass(frozen=True, slots=True)
class Usage:
    """What a store holds: a number of ``entries``, which take some ``bytes`` together."""

    entries: int
    bytes: int


class Store:
    """Entries in a directory, the ones not used for longest removed when there is too much.

    Parameters
    ----------
    directory
        Where the entries are. It is made when the first one is written.
    limit
        How many bytes they may take together.
    """

    def __init__(self, directory: Path, limit: int) -> None:
        self.directory = directory
        self.limit = limit

    @property
    def distrust(self) -> str | None:
        """Why entries of the directory are neither read nor written; ``None`` if they are."""
        try:
            found = os.lstat(self.directory)
        except FileNotFoundError:
            return None
        except OSError as error:
            return f"{self.directory} cannot be read: {error.strerror}"
        if not stat.S_ISDIR(found.st_mode):
            return f"{self.directory} is no directory"
        return _distrust(self.directory, found)

    def get(self, key: str) -> bytes | None:
        """Return an entry; ``None`` if there is none that can be trusted and is whole."""
        path = self._path(key)
        if self.distrust is not None:
            return None
        try:
            descriptor = os.open(path, _READ)
        except OSError:
            return None
        try:
            found = os.fstat(descriptor)
            if (
                not stat.S_ISREG(found.st_mode)
                or found.st_size > self.limit
                or _distrust(path, found) is not None
            ):
                return None
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                read = file.read()
        except OSError:
            return None
        finally:
            os.close(descriptor)
        start = len(_MAGIC) + _DIGEST
        content = read[start:]
        if read[:start] != _MAGIC + _digest(key, content):
            self.discard(key)
            return None
        if time() - found.st_mtime > _HOUR:
            with suppress(OSError):
                os.utime(path)  # the entries not used for longest are removed first
        return content

    def has(self, key: str) -> bool:
        """Whether there is an entry, which may not be whole."""
        return self.distrust is None and self._path(key).is_file()

    def put(self, key: str, content: bytes) -> bool:
        """Keep an entry, and return whether it is kept: one that is a quarter of all is not."""
        size = len(_MAGIC) + _DIGEST + len(content)
        if 4 * size > self.limit:
            return False
        temporary = None
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.distrust is not None:
                return False
            descriptor, temporary = mkstemp(dir=self.directory, prefix=".")
            with os.fdopen(descriptor, "wb") as file:
                file.write(_MAGIC + _digest(key, content))
                file.write(content)
            os.replace(temporary, self._path(key))
        except OSError:
            if temporary is not None:
                with suppress(OSError):
                    os.unlink(temporary)
            return False
        self._trim_if_large(size)
        return True

    def discard(self, key: str) -> None:
        """Remove an entry, if there is one."""
        with suppress(OSError):
            os.unlink(self._path(key))

    def usage(self) -> Usage:
        """Return how much there is."""
        sizes = [found.st_size for path, found in self._files() if path.suffix == _SUFFIX]
        return Usage(len(sizes), sum(sizes))

    def clear(self) -> Usage:
        """Remove all entries, and what unfinished writes left; return what is gone."""
        gone = []
        for path, found in self._files():
            with suppress(OSError):
                path.unlink()
                gone.append(found.st_size)
        _sizes.pop(self.directory, None)
        return Usage(len(gone), sum(gone))

    def _path(self, key: str) -> Path:
        return self.directory / (key + _SUFFIX)

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Yield the entries and the unfinished ones; other files in the directory stay."""
        with suppress(OSError), os.scandir(self.directory) as entries:
            for entry in entries:
                if entry.name.endswith(_SUFFIX) or entry.name.startswith("."):
                    with suppress(OSError):
                        found = entry.stat(follow_symlinks=False)
                        if not stat.S_ISDIR(found.st_mode):
                            yield Path(entry.path), found

    def _trim_if_large(self, more: int) -> None:
        """Trim the store if it may be too large now that there are ``more`` bytes.

        To look at all entries each time would take time quadratic in their number.
        """
        known = _sizes.get(self.directory)
        if known is not None:
            total, new = known[0] + more, known[1] + more
            if total <= self.limit and _LOOKS * new <= self.limit:
                _sizes[self.directory] = total, new
                return
        _sizes[self.directory] = self._trim(), 0

    def _trim(self) -> int:
        """Remove the entries not used for longest if there are too many bytes, to four fifths.

        Returns how many bytes there are then.
        """
        total, kept = 0, []
        for path, found in self._files():
            if path.suffix == _SUFFIX:
                kept.append((found.st_mtime, found.st_size, path))
                total += found.st_size
            elif time() - found.st_mtime > _HOUR:
                with suppress(OSError):
                    path.unlink()
        if total <= self.limit:
            return total
        for _, size, path in sorted(kept):
            with suppress(OSError):
                path.unlink()
            total -= size
            if 5 * total <= 4 * self.limit:
                break
        return total


def _distrust(path: Path, found: os.stat_result) -> str | None:
    if _USER is None:
        return None
    if found.st_uid != _USER:
        return f"{path} belongs to another user"
    return f"others may write to {path}" if found.st_mode & _NOT_OTHERS else None


def _digest(key: str, content: bytes) -> bytes:
    return sha256(key.encode() + b"\0" + content).digest()


def is_on() -> bool:
    """Whether the environment lets results be kept on disk."""
    return os.environ.get(CACHE, "").strip().lower() not in _OFF


def limit() -> int:
    """Return how many bytes may be kept: MiB in the environment, if that is a number."""
    text = os.environ.get(CACHE_LIMIT, "")
    return (int(text) if text.isdecimal() else LIMIT) << 20


def user_store() -> Store:
    """Return the store of the user: in the directory where PyTensor keeps compiled code."""
    return Store(directory_of_pytensor() / "scanopt", limit())
