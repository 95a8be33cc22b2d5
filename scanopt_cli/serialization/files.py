"""Bounded reading of files."""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path

from scanopt_cli.errors import LoadError

MAX_BYTES = 128 << 20
"""The largest file that is read, in bytes, compressed and decompressed."""

# A gzip file may hold this many times its own bytes; and this many, however small it is. Memory is
# then in proportion to what a stranger has to send.
_MOST_EXPANSION = 100
_SMALL = 32 << 20

_CHUNK = 1 << 20
_O_BINARY = getattr(os, "O_BINARY", 0)  # Windows


class Suffix(StrEnum):
    """How the names of graph files end, which says what they hold."""

    DATA = ".scanopt"
    ZIPPED_DATA = ".scanopt.gz"
    PICKLE = ".pkl"
    ZIPPED_PICKLE = ".pkl.gz"


DATA_SUFFIX = Suffix.DATA.value
"""How the names of files end that hold a graph as data."""
GRAPH_SUFFIXES = tuple(suffix.value for suffix in Suffix)
"""How the names of graph files end that are looked for in a directory."""
GIVE_A_FILE = "give the path of a graph file"
_UNPACK_IT = "unpack it by gzip -d, if you trust its author"
DATA_MAGIC = b"PK\x03\x04"
"""What the content of a file begins with that holds a graph as data."""
_GZIP = b"\x1f\x8b"
_LFS = b"version https://git-lfs.github.com/spec/"
_OTHER_KINDS = (
    (b"\x7fELF", "an ELF binary"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x93NUMPY", "a NumPy array file"),
    (b"\xfd7zXZ", "an xz archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"%PDF", "a PDF document"),
)


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What is known of a file without its content: the digest of that, and how many bytes."""

    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Blob:
    """The content of a graph file, which may be sent to where the file is not.

    Attributes
    ----------
    name
        What people call it: a path, or ``main:graphs/model.pkl`` of a file at a revision.
    data
        The bytes of the file.
    values
        Those of the recorded values beside it, or the error of reading them; ``None`` if there are
        none, or nobody asked for them.
    stands_for
        What is known of the file, if its graph is in another form here.
    """

    name: str
    data: bytes
    values: bytes | LoadError | None = None
    stands_for: FileFacts | None = None

    @property
    def facts(self) -> FileFacts:
        """What is known of the file that was read."""
        return self.stands_for or FileFacts(sha256(self.data).hexdigest(), len(self.data))

    @property
    def size(self) -> int:
        """How many bytes the file has that was read."""
        return len(self.data) if self.stands_for is None else self.stands_for.size

    @property
    def is_data(self) -> bool:
        """Whether it holds a graph as data, and no pickle."""
        try:
            return unpacked(self.data, self.name).startswith(DATA_MAGIC)
        except LoadError:
            return False

    def __str__(self) -> str:
        return self.name


def read_blob(path: Path, *, recorded: bool = False) -> Blob:
    """Return the content of a graph file, and of the ``recorded`` values beside it if asked for.

    Raises
    ------
    LoadError
        As in `read_bytes`, of the graph file.
    """
    return Blob(str(path), read_bytes(path), _values_beside(path) if recorded else None)


def _values_beside(path: Path) -> bytes | LoadError | None:
    place = values_path(path)
    if not os.path.lexists(place):
        return None
    try:
        return read_bytes(place)
    except LoadError as error:
        return error


def unpacked(data: bytes, where: str) -> bytes:
    """Return the contents of a graph file that holds ``data``, decompressed if that is gzipped.

    Raises
    ------
    LoadError
        If the file is empty, evidently no graph, a damaged gzip file, or unpacks to more than
        `MAX_BYTES`.
    """
    if data.startswith(_GZIP):
        try:
            data = _unzipped(data, where)
        except (EOFError, zlib.error) as error:
            raise LoadError(
                f"a damaged gzip file: {error}", where=where, hint="write it again"
            ) from None
    if not data:
        raise LoadError("is empty", where=where, hint="write it again")
    if data.startswith(_LFS):
        hint = "run git lfs pull"
        raise LoadError("is a pointer of Git LFS, not the graph itself", where=where, hint=hint)
    for magic, kind in _OTHER_KINDS:
        if data.startswith(magic):
            raise LoadError(f"is {kind}, not a graph", where=where, hint="give a graph file")
    return data


def read_bytes(path: Path) -> bytes:
    """Return the contents of a regular file, no more bytes than the file system reports.

    Raises
    ------
    LoadError
        If the file is missing, unreadable, not a regular file, or larger than `MAX_BYTES`.
    """
    where = str(path)
    try:
        # Opening a pipe waits for somebody to write to it, unless told otherwise.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _O_BINARY)
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise LoadError("is not a regular file", where=where, hint=GIVE_A_FILE)
            check_size(found.st_size, where)
            return file.read(found.st_size)
    except FileNotFoundError:
        raise LoadError("no such file", where=where, hint="check the path") from None
    except IsADirectoryError:
        raise LoadError("is a directory", where=where, hint=GIVE_A_FILE) from None
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise LoadError(
            f"cannot be read: {reason}", where=where, hint="check the path and its permissions"
        ) from None


def zipped(data: bytes) -> bytes:
    """Return ``data`` gzipped, the same bytes each time, in a way that `unpacked` takes.

    What would unpack to more than 100 times its size, as many zeros would, is stored as it is.
    """
    packed = gzip.compress(data, mtime=0)
    if is_bomb(len(data), len(packed)):
        return gzip.compress(data, compresslevel=0, mtime=0)
    return packed


def is_bomb(unpacked: int, packed: int) -> bool:
    """Whether so many bytes unpack to more than a file of that size may hold."""
    return unpacked > max(_SMALL, _MOST_EXPANSION * packed)


def _unzipped(data: bytes, where: str) -> bytes:
    chunks, most, held = [], max(_SMALL, _MOST_EXPANSION * len(data)), 0
    member = zlib.decompressobj(wbits=31)
    while not member.eof:
        chunk = member.decompress(data, _CHUNK)
        data = member.unconsumed_tail
        if not chunk and not data and not member.eof:
            raise EOFError("it ends too early")
        held += len(chunk)
        check_size(held, where)
        if held > most:
            problem = f"unpacks to more than {_MOST_EXPANSION} times its size"
            raise LoadError(problem, where=where, hint=_UNPACK_IT)
        chunks.append(chunk)
    if member.unused_data.strip(b"\0"):
        raise LoadError("has more behind its gzipped data", where=where, hint=_UNPACK_IT)
    return b"".join(chunks)


def check_size(size: int, where: str) -> None:
    """Refuse ``size`` bytes if no graph file may hold so many; `LoadError` as in `unpacked`."""
    if size > MAX_BYTES:
        raise LoadError(
            f"holds more than {MAX_BYTES:,} bytes",
            where=where,
            hint="a graph file is far smaller; make inputs of large constants and shared variables",
        )


def is_data_path(path: Path) -> bool:
    """Whether a graph is written to ``path`` as data: to ``a.scanopt`` and ``a.scanopt.gz``."""
    return path.name.removesuffix(".gz").endswith(DATA_SUFFIX)


def stem_of(path: Path) -> str:
    """Return what a graph file is called, without how its name ends: ``a`` for ``a.pkl.gz``."""
    return Path(path.name.removesuffix(".gz")).stem


def values_path(path: Path) -> Path:
    """Return the name of the values beside a graph: ``a.values.npz`` for ``a.pkl.gz``."""
    return path.with_name(f"{stem_of(path)}.values.npz")
