"""The errors that users see, each one line: where, what is wrong, and how to fix it."""

from __future__ import annotations

from typing import Any

from scanopt_cli.text import printable


class ScanoptError(Exception):
    """scanopt cannot do what the caller asked for.

    ``str(error)`` is one line: ``where: what; hint``. The command line prints it on stderr and
    exits with code 2; library users catch it.
    """

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        self.what = " ".join(what.split())
        self.where = where
        self.hint = " ".join(hint.split()) if hint else None
        super().__init__(what)

    def __str__(self) -> str:
        line = f"{self.where}: {self.what}" if self.where else self.what
        return printable(f"{line}; {self.hint}" if self.hint else line)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.what, self.where, self.hint)


def _rebuild(
    cls: type[ScanoptError], what: str, where: str | None, hint: str | None
) -> ScanoptError:
    return cls(what, where=where, hint=hint)


class LoadError(ScanoptError):
    """A file does not hold a graph that can be read."""


class UnsafeFileError(LoadError):
    """A file refers to an object that the safe loader does not build."""


class ConfusedGraphError(LoadError):
    """PyTensor takes an inner graph in a file for another one that the process has."""


class NotDataError(ScanoptError):
    """A graph holds something that cannot be written as data."""


class PassError(ScanoptError):
    """A pass or the text of a pipeline is invalid, or a pass broke its contract."""


class PassFailedError(PassError):
    """A pass raised an error, or broke the graph."""


class PlugInWarning(UserWarning):
    """A package is said to add a pass and does not."""


class GradientError(ScanoptError):
    """A requested derivative does not exist or would be wrong."""


class VerificationError(ScanoptError):
    """A graph could not be evaluated, so nothing was verified."""


class NanError(ScanoptError):
    """A function that `nan_guard` watches returned a NaN or an infinity.

    ``found`` is the `FirstNan` that says where it was made, if that could be found out.
    """

    found: Any = None


def brief(error: BaseException) -> str:
    """Return an exception's class name and the first 200 characters of its message.

    The message may come from a file, so its length is bounded.
    """
    return f"{type(error).__name__}: {str(error)[:200]}" if str(error) else type(error).__name__
