"""The work of a command on one file: a function of what the user wants and of the file alone.

A command is a `Task`, plain data that can be sent to another process, and what it makes of a file
is a `FileResult`, plain data as well: what was printed, an entry in JSON, and what the command sums
up. So the same function serves in this process, in a worker, and on another machine.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from scanopt_cli.cli.error_text import debugging, told
from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.recording import Printed, Screen, joined, recorded
from scanopt_cli.errors import ScanoptError


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
    """

    found: T
    entry: str | None = None
    code: ExitCode = ExitCode.CLEAN


class Task[T](Protocol):
    """What a command does with a file. Of plain data, since it is sent to workers."""

    def work(self, path: Path, title: str, /) -> Done[T]:
        """Work on a file, which is called ``title`` where progress is shown."""
        ...

    def patience(self, path: Path) -> float | None:
        """Return how many seconds a worker may take for a file, ``None`` for any time."""
        ...


@dataclass(frozen=True, slots=True)
class FileResult[T]:
    """What became of a file: what was ``done``, or an ``error``; and what was printed meanwhile."""

    path: Path
    done: Done[T] | None = None
    error: ScanoptError | None = None
    printed: Printed = ()

    @property
    def size(self) -> int:
        """About how much memory it takes, in bytes."""
        entry = self.done.entry if self.done is not None else None
        return sum(len(text) for _, text in self.printed) + len(entry or "")


def work_on[T](task: Task[T], path: Path, title: str) -> FileResult[T]:
    """Do a command's work on a file; an error of any kind is part of the result."""
    try:
        return FileResult(path, done=task.work(path, title))
    except ScanoptError as error:
        return FileResult(path, error=error)
    except Exception as error:
        failure = ScanoptError(told(error), where=str(path))
        failure.__cause__ = error
        return FileResult(path, error=failure)


def work_in_worker[T](task: Task[T], path: Path, screens: Mapping[str, Screen]) -> FileResult[T]:
    """Do the same where nothing can be shown; what is printed is part of the result."""
    with recorded(screens) as entries:
        result = work_on(task, path, str(path))
        cause = result.error.__cause__ if result.error is not None else None
        if debugging.get() and cause is not None:  # it is not sent along
            traceback.print_exception(cause)
    return replace(result, printed=joined(entries))
