"""What a report looks like at a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console

from scanopt_cli.reports import as_rich
from scanopt_cli.reports.document import Block


def printed(blocks: Iterable[Block], width: int = 100) -> str:
    """Return what a terminal without colours shows."""
    console = Console(width=width, no_color=True, color_system=None)
    with console.capture() as captured:
        as_rich.show(console, blocks, folds=True)
    return captured.get()
