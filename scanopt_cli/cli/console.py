"""Where output goes: results to stdout, everything else to stderr."""

from __future__ import annotations

import codecs
import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from scanopt_cli.errors import PlugInWarning, ScanoptError
from scanopt_cli.live_line import LiveLine
from scanopt_cli.text import printable

if TYPE_CHECKING:
    from rich.console import Console

NAMES = ("stdout", "stderr")
"""The standard streams that are written to."""

# The width for pipes: wide enough that tables are not folded, narrow enough for a CI log.
_PIPE_WIDTH = 120
# Rich pads lines to the width, which may be any number that COLUMNS holds.
_WIDEST = 10_000
# The width of a terminal that does not know it.
_UNKNOWN_WIDTH = 80
_TRAILING = re.compile(r"[ \t]+(?=\n)")
_LOOKALIKES = str.maketrans(
    {
        "→": "->",
        "…": "...",
        "≤": "<=",
        "≥": ">=",
        "×": "x",
        "µ": "u",
        **dict(zip("▁▂▃▄▅▆▇█", "_.-~=+*#", strict=True)),
        **dict.fromkeys("─━", "-"),
        **dict.fromkeys("│├┃", "|"),
        **dict.fromkeys("└╰", "`"),
    }
)


@cache
def out() -> Console:
    """Return the console for results: plain text in a pipe; honours NO_COLOR and COLUMNS."""
    return _console("stdout")


@cache
def err() -> Console:
    """Return the console for errors, remarks, progress and timings."""
    return _console("stderr")


def tell(text: str) -> None:
    """Print a message of scanopt on stderr, on one line and escaped."""
    print_line(err(), f"scanopt: {printable(text)}")


@contextmanager
def plug_in_warnings() -> Iterator[None]:
    """Tell of packages that are said to add passes and do not, unless an error does."""
    told = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", PlugInWarning)
        try:
            yield
        except ScanoptError as error:
            told = str(error)
            raise
        finally:
            for problem in (str(warning.message) for warning in caught):
                if problem not in told:
                    tell(f"warning: {problem}")


def print_line(console: Console, text: str) -> None:
    """Print a text of one line; a terminal folds it, at blanks where it can."""
    console.print(text, soft_wrap=not console.file.isatty())


@contextmanager
def status(subject: str, doing: str) -> Iterator[Callable[[str], None]]:
    """Show on a terminal what is being done to ``subject``; yield a function that updates it.

    Nothing may be printed on stdout meanwhile. What is printed on stderr through its console, as by
    `tell` and inside of `harmless_stderr`, stands above the line that is shown.
    """
    console = err() if has_live_lines() else live_console.get()
    if console is None:
        yield lambda _: None
        return

    line = LiveLine(console)
    line.say(f"{subject}: {doing}")
    try:
        yield lambda now: line.say(f"{subject}: {now}")
    finally:
        line.stop()


def terminal() -> Console | None:
    """Return a console of what is stderr now, if lines can be drawn on it again and again."""
    return _console("stderr", sys.stderr) if has_live_lines() else None


live_console: ContextVar[Console | None] = ContextVar("live_console", default=None)
"""The console that shows what is being done while what is printed is recorded."""


def has_live_lines() -> bool:
    """Whether stderr is a terminal on which a line may be drawn again and again."""
    # FORCE_COLOR makes Rich take a pipe for a terminal, which it is not.
    stream = Stream("stderr")
    return err().is_interactive and stream.isatty() and not hasattr(stream.target, "columns")


@contextmanager
def harmless_stderr() -> Iterator[None]:
    """Escape, line by line, what other code prints on stderr.

    It becomes plain text of the console, which alone writes commands to the terminal.
    """
    stream = _EscapingStream(Stream("stderr").target)
    try:
        with redirect_stderr(cast(IO[str], stream)):
            yield
    finally:
        stream.end_line()


def finish() -> None:
    """Flush stdout and stderr.

    Raises
    ------
    ScanoptError
        If one of them cannot be written to.
    """
    for name in NAMES:
        Stream(name).flush()


def set_up() -> None:
    """Make the standard streams accept any text; replace what their encoding lacks.

    What is printed to a stream that is closed (``>&-``) is dropped.
    """
    for name in NAMES:
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    codecs.register_error("scanopt", _lookalike)
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):
            stream.reconfigure(errors="scanopt")  # type: ignore[union-attr]


def _lookalike(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_LOOKALIKES)
    return text.encode("ascii", "backslashreplace").decode(), error.end


def _console(name: str, target: Any = None) -> Console:
    from rich.console import Console

    stream = Stream(name, target)
    console = Console(
        file=cast(IO[str], stream),
        highlight=False,
        markup=False,
        emoji=False,
        # Rich leaves out colours for NO_COLOR, but not bold and dim letters.
        color_system=None if is_without_colour() else "auto",
    )
    # Rich sizes a dumb terminal by no width that is given without a height.
    console.size = min(_width(stream), _WIDEST), console.height
    return console


def is_without_colour() -> bool:
    """Whether the user wants plain letters: no colour, and neither bold nor dim."""
    return bool(os.environ.get("NO_COLOR"))


def _width(stream: Stream) -> int:
    """Return the columns of a terminal; Rich would ask other streams, and none that is dumb."""
    if hasattr(stream.target, "columns"):  # it is recorded for a screen so wide
        return int(stream.target.columns)
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    with suppress(OSError, ValueError, AttributeError):
        if stream.isatty():
            return os.get_terminal_size(stream.fileno()).columns or _UNKNOWN_WIDTH
    return max(shutil.get_terminal_size((_PIPE_WIDTH, 24)).columns, _PIPE_WIDTH)


class _EscapingStream:
    """Stands in for stderr and escapes what is printed, which may contain names from a file."""

    def __init__(self, target: IO[str]) -> None:
        self.target = target
        self._rest = ""

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._print(line)
        return len(text)

    def end_line(self) -> None:
        """Print what was not ended by a line feed."""
        rest, self._rest = self._rest, ""
        if rest:
            self._print(rest)

    def _print(self, line: str) -> None:
        print_line(err(), printable(line))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)


class Stream:
    """A standard stream whose reader may close it; in a pipe, lines have no trailing blanks.

    It is what has the name whenever it is used, or a ``target``.
    """

    def __init__(self, name: str, target: Any = None) -> None:
        self._name = name
        self._target = target

    def write(self, text: str) -> int:
        """Write ``text``, which must end at the end of a line."""
        if not self.isatty():
            text = _TRAILING.sub("", text)
        self._try("write", text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        self._try("flush")

    @property
    def target(self) -> Any:
        """The stream itself."""
        stream = getattr(sys, self._name) if self._target is None else self._target
        return stream.target if isinstance(stream, _EscapingStream) else stream

    def _try(self, action: str, *arguments: str) -> None:
        stream = self.target
        try:
            getattr(stream, action)(*arguments)
        except BrokenPipeError:
            # The reader has closed the pipe. Discard the rest, so that the exit code is the same.
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        except OSError as error:
            raise ScanoptError(
                f"cannot be written: {error.strerror or error}",
                where=self._name,
                hint="check the disk, or write elsewhere",
            ) from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)
