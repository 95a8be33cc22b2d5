"""Where output goes: results to stdout, everything else to stderr."""

from __future__ import annotations

import os
import re
import shutil
import sys
from functools import cache
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from rich.console import Console

# A pipe has no width. Wide enough that tables are not folded, narrow enough for a CI log.
_PIPE_WIDTH = 120
_TRAILING = re.compile(r"[ \t]+(?=\n)")


@cache
def out() -> Console:
    """Return the console for results. Plain text in a pipe; honours NO_COLOR and COLUMNS."""
    return _console(stderr=False)


@cache
def err() -> Console:
    """Return the console for errors, remarks, progress and timings."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.file = cast(IO[str], _WithoutTrailingBlanks("stderr" if stderr else "stdout"))
        if "COLUMNS" not in os.environ:
            console.width = max(shutil.get_terminal_size((_PIPE_WIDTH, 24)).columns, _PIPE_WIDTH)
    return console


class _WithoutTrailingBlanks:
    """A standard stream without the blanks with which tables fill up their lines."""

    def __init__(self, name: str) -> None:
        self._name = name

    def write(self, text: str) -> int:
        """Write text that ends with a line."""
        written: int = getattr(sys, self._name).write(_TRAILING.sub("", text))
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(sys, self._name), name)
