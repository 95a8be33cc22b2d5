"""What is told of an error that ends a command, or the work on one file."""

from __future__ import annotations

from contextvars import ContextVar

from scanopt_cli.errors import ScanoptError

debugging: ContextVar[bool] = ContextVar("debugging", default=False)
"""Whether the user asked for tracebacks, by ``--debug``."""


def told(error: BaseException) -> str:
    """Return an error as text: what is wrong and, of a fault of scanopt's own, what to do."""
    if isinstance(error, ScanoptError):
        return str(error)
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, OSError):
        return f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
    kind = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"{kind}; this is a bug in scanopt, run again with --debug for the traceback"
