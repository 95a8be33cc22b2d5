"""What is being compiled, told while it is: for ``enabled(progress=True)``.

At a terminal a line says which function it is and at which stage. When a stage is over, one that is
printed for good says how long it took, on stderr.
"""

from __future__ import annotations

import threading
from functools import cached_property
from typing import TYPE_CHECKING

from scanopt_cli.live_line import LiveLine
from scanopt_cli.text import printable

if TYPE_CHECKING:
    from rich.console import Console


class Progress:
    """Tells on stderr what is compiled in a block."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._has_ended = False

    def doing(self, what: str, stage: str) -> None:
        """Tell that a function is at a stage, while the block lasts."""
        with self._lock:
            if self._line is not None and not self._has_ended:
                self._line.say(f"{stage}: {what}")

    def done(self, what: str, text: str) -> None:
        """Tell that a function has come to the end of a stage."""
        with self._lock:
            if self._line is not None:
                self._line.stop()
            self._console.print(printable(f"scanopt: {what}: {text}"), soft_wrap=True)

    def end(self) -> None:
        """Tell no more that something is being done."""
        with self._lock:
            self._has_ended = True
            if self._line is not None:
                self._line.stop()

    @cached_property
    def _console(self) -> Console:
        from rich.console import Console

        return Console(stderr=True, highlight=False, markup=False)

    @cached_property
    def _line(self) -> LiveLine | None:
        return LiveLine(self._console) if self._console.is_terminal else None
