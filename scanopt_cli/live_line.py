"""One line at a terminal that says what is being done, for how long, and what remains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from scanopt_cli.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, Task
    from rich.table import Table
    from rich.text import Text

# How often the line is drawn, in a second.
_REFRESHES = 10
_BAR = 20
_ROOM = 3


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
        from rich.progress import SpinnerColumn, TimeElapsedColumn

        columns = (SpinnerColumn(style="status.spinner"), _text_column(), TimeElapsedColumn())
        return _progress(self._console, *columns)


class LiveBar:
    """A bar that says how many things are done, which are in work, and how long the rest takes.

    Parameters
    ----------
    console
        A console at a terminal.
    total
        How many things there are.
    """

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._start = monotonic()
        self._progress: Progress | None = None

    def show(self, names: Sequence[str], done: int) -> None:
        """Show that so many things are done, and which are in work."""
        text = printable(", ".join(names))
        if self._progress is None:
            self._progress = self._made()
            self._progress.add_task(text, total=self._total, completed=done)
            self._progress.tasks[0].start_time = self._start  # it may have been hidden meanwhile
            self._progress.start()
        else:
            self._progress.update(self._progress.task_ids[0], description=text, completed=done)

    def hide(self) -> None:
        """Remove the bar, so that something can be printed."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _made(self) -> Progress:
        from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeElapsedColumn
        from rich.text import Text

        start, total = self._start, self._total

        class Left(ProgressColumn):
            """How long the rest takes, if it takes as long as what was done."""

            def render(self, task: Task) -> Text:
                done, seconds = int(task.completed), monotonic() - start
                left = f"{_clock(seconds / done * (total - done))} left" if done else ""
                return Text(f"{left:>12}", style="progress.remaining")

        count = f"{{task.completed:{len(str(total))}.0f}}/{total}"
        return _progress(
            self._console,
            BarColumn(bar_width=_BAR),
            TextColumn(count, markup=False),
            _text_column(),
            TimeElapsedColumn(),
            Left(),
        )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _text_column() -> ProgressColumn:
    from rich.progress import TextColumn
    from rich.table import Column

    column = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    return TextColumn("{task.description}", markup=False, table_column=column)


def _progress(console: Console, *columns: ProgressColumn) -> Progress:
    from rich.progress import Progress

    class Narrow(Progress):
        """Leaves room behind the line for ``^C``, which would move what is to be removed."""

        def make_tasks_table(self, tasks: Iterable[Task]) -> Table:
            table = super().make_tasks_table(tasks)
            table.width = max(console.width - _ROOM, 1)
            return table

    # Rich must not put streams of its own in place of stdout and stderr: it would look for the
    # terminal behind what it found there, which may be a stream that escapes texts.
    return Narrow(
        *columns,
        console=console,
        refresh_per_second=_REFRESHES,
        expand=True,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
