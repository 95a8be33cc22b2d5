"""One line at a terminal that says what is being done, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scanopt_cli.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

# How often the line is drawn, in a second.
_REFRESHES = 10


class LiveLine:
    """A line that is drawn again while something is done, and is gone afterwards.

    What is printed on the console meanwhile stands above it.

    Parameters
    ----------
    console
        A console at a terminal.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: Progress | None = None

    def say(self, text: str) -> None:
        """Say what is being done now; the time since the first call stands behind it."""
        text = printable(text)
        if self._progress is None:
            self._progress = self._made()
            self._progress.add_task(text)
            self._progress.start()
        else:
            self._progress.update(self._progress.task_ids[0], description=text)
            self._progress.refresh()

    def stop(self) -> None:
        """Remove the line, if there is one."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _made(self) -> Progress:
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.table import Column

        text = Column(no_wrap=True, overflow="ellipsis", ratio=1)
        # Rich must not put streams of its own in place of stdout and stderr: it would look for the
        # terminal behind what it found there, which may be a stream that escapes texts.
        return Progress(
            SpinnerColumn(style="status.spinner"),
            TextColumn("{task.description}", markup=False, table_column=text),
            TimeElapsedColumn(),
            console=self._console,
            refresh_per_second=_REFRESHES,
            expand=True,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
