"""Where output goes: results to stdout, everything else to stderr."""

from __future__ import annotations

import os
import shutil
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

# A pipe has no width. Wide enough that tables are not folded, narrow enough for a CI log.
_PIPE_WIDTH = 120


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
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = max(shutil.get_terminal_size((_PIPE_WIDTH, 24)).columns, _PIPE_WIDTH)
    return console
