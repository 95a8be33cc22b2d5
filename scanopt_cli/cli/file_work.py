"""The work of a command on one file: a function of what the user wants and of the content alone.

A command is a `Task`, plain data that can be sent to another process, and what it makes of a file
is a `FileResult`, plain data as well: what was printed, an entry in JSON, what the command sums up,
and the files that are to be written. So the same function serves in this process, in a worker, and
on another machine, and what it returned once can be kept.
"""

from __future__ import annotations

import os
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import count
from pathlib import Path

from scanopt_cli.cli.error_text import debugging, told
from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.recording import Printed, Screen, joined, recorded, screens
from scanopt_cli.cli.session import Session
from scanopt_cli.errors import ScanoptError
from scanopt_cli.ir.older_objects import is_own
from scanopt_cli.serialization.files import Blob, read_blob

_begun = count()


@dataclass(frozen=True, slots=True)
class Done[T]:
    """What a command made of a file.

    Attributes
    ----------
    found
        What the command sums up.
    entry
        What it says in JSON, as the text of an entry of a `JsonList`, if that is wanted.
    code
        The exit code, for this file.
    files
        The files that the result is written to, with their contents.
    is_kept
        Whether it is the same each time, so that it can be kept: not what ran out of time.
    """

    found: T
    entry: str | None = None
    code: ExitCode = ExitCode.CLEAN
    files: Mapping[Path, bytes] = field(default_factory=dict)
    is_kept: bool = True


class Task[T](ABC):
    """What a command does with one file. Of plain data, since it is sent to workers."""

    __slots__ = ()

    @property
    def is_kept(self) -> bool:
        """Whether results are kept for later, since they depend on nothing but what is read."""
        return self.permissions().is_strict

    def read(self, path: Path) -> Sequence[Blob]:
        """Return all that is read from disk: the content of the file, and of what it needs.

        Raises
        ------
        ScanoptError
            If it cannot be read.
        """
        return (read_blob(path),)

    @abstractmethod
    def work(self, path: Path, files: Sequence[Blob], title: str, /) -> Done[T]:
        """Work on what was read of a file, which is called ``title`` where progress is shown."""

    @abstractmethod
    def permissions(self) -> Session:
        """Return what may be loaded."""

    @abstractmethod
    def patience(self, path: Path) -> float | None:
        """Return how many seconds a worker may take for a file, ``None`` for any time."""


@dataclass(frozen=True, slots=True)
class FileResult[T]:
    """What became of a file: what was ``done``, or an ``error``; and what was printed meanwhile.

    Of what was read, it has the ``digest``, by which the result can be kept. It has ``died`` if the
    process that worked on it did, or had no memory left; on another machine that may be otherwise.
    """

    path: Path
    done: Done[T] | None = None
    error: ScanoptError | None = None
    printed: Printed = ()
    digest: bytes = b""
    died: bool = False

    @property
    def size(self) -> int:
        """About how much memory it takes, in bytes."""
        entry = self.done.entry if self.done is not None else None
        files = self.done.files.values() if self.done is not None else ()
        printed = sum(len(text) for _, text in self.printed)
        return printed + len(entry or "") + sum(map(len, files))


def digest_of(files: Iterable[Blob]) -> bytes:
    """Return a digest of what was read: of names, contents and recorded values."""
    content = sha256()
    for file in files:
        values = file.values if isinstance(file.values, bytes) else repr(file.values).encode()
        for part in (os.fsencode(file.name), file.facts.sha256.encode(), values):
            content.update(b"%d:" % len(part))
            content.update(part)
    return content.digest()


def work_on[T](task: Task[T], path: Path, title: str) -> FileResult[T]:
    """Do a command's work on a file; an error of any kind is part of the result."""
    if next(_begun):
        _forget_other_graphs()
    try:
        read = task.read(path)
        return FileResult(path, done=task.work(path, read, title), digest=digest_of(read))
    except Exception as error:
        is_out = isinstance(error, MemoryError)
        return FileResult(path, error=failure_of(path, error), died=is_out)


def _forget_other_graphs() -> None:
    """Forget the graphs of other files, which PyTensor may confuse with that of the next one."""
    if is_own() and "pytensor" in sys.modules:
        from scanopt_cli.ir.remembering import forget_graphs

        forget_graphs()


def failure_of(path: Path, error: BaseException) -> ScanoptError:
    """Return what is told of a file if an error of any kind ended the work on it."""
    if isinstance(error, ScanoptError):
        return error
    failure = ScanoptError(told(error), where=str(path))
    failure.__cause__ = error
    return failure


def work_recorded[T](task: Task[T], path: Path, title: str) -> FileResult[T]:
    """Do the same; what is printed is part of the result, and is not shown yet."""
    with recorded(screens()) as entries:
        result = work_on(task, path, title)
    return replace(result, printed=joined(entries))


def work_in_worker[T](task: Task[T], path: Path, screens: Mapping[str, Screen]) -> FileResult[T]:
    """Do the same where nothing can be shown; what is printed is part of the result."""
    with recorded(screens) as entries:
        result = work_on(task, path, str(path))
        cause = result.error.__cause__ if result.error is not None else None
        if debugging.get() and cause is not None:  # it is not sent along
            traceback.print_exception(cause)
    return replace(result, printed=joined(entries))
