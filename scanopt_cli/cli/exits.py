"""The exit codes of all commands."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The meaning of a command's exit code."""

    CLEAN = 0
    """Done, and nothing was found."""
    FINDING = 1
    """Done, and something was found: graphs or values differ, a budget is broken, and so on."""
    FAILED = 2
    """scanopt could not do its work: a bad file, a bad option, a crash."""
    INTERRUPTED = 130
    """Stopped from the keyboard, as shells report it."""


def finding(found: bool) -> ExitCode:
    """Return the exit code of a command that did its work."""
    return ExitCode.FINDING if found else ExitCode.CLEAN
