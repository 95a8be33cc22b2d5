"""The exit codes of all commands."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scanopt_cli.verification.result import Verdict


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


def code_of(verdict: Verdict) -> ExitCode:
    """Return the exit code of a verification: that nothing could be compared is no finding."""
    from scanopt_cli.verification.result import Verdict

    match verdict:
        case Verdict.DIFFERS:
            return ExitCode.FINDING
        case Verdict.COULD_NOT_RUN:
            return ExitCode.FAILED
        case _:
            return ExitCode.CLEAN


def finding(found: bool) -> ExitCode:
    """Return the exit code of a command that did its work."""
    return ExitCode.FINDING if found else ExitCode.CLEAN
