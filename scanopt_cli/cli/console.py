"""Where output goes: results to stdout, everything else to stderr."""

from __future__ import annotations

import codecs
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from scanopt_cli.errors import ScanoptError
from scanopt_cli.text import printable

if TYPE_CHECKING:
    from rich.console import Console

# The width for pipes: wide enough that tables are not folded, narrow enough for a CI log.
_PIPE_WIDTH = 120
# Rich pads lines to the width, which may be any number that COLUMNS holds.
_WIDEST = 10_000
_TRAILING = re.compile(r"[ \t]+(?=\n)")
_LOOKALIKES = str.maketrans(
    {
        "→": "->",
        "…": "...",
        "≤": "<=",
        "≥": ">=",
        "×": "x",
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
    err().print(f"scanopt: {printable(text)}", soft_wrap=True)


@contextmanager
def status(subject: str, doing: str) -> Iterator[Callable[[str], None]]:
    """Show on a terminal what is being done to ``subject``; yield a function that updates it.

    Nothing may be printed on stdout meanwhile.
    """
    from rich.text import Text

    if not err().is_terminal:
        yield lambda _: None
        return

    def line(doing: str) -> Text:
        return Text(printable(f"{subject}: {doing}"), no_wrap=True, overflow="ellipsis")

    with err().status(line(doing)) as shown:
        yield lambda doing: shown.update(line(doing))


@contextmanager
def harmless_stderr() -> Iterator[None]:
    """Escape, line by line, what other code prints on stderr."""
    with redirect_stderr(cast(IO[str], _EscapingStream(Stream("stderr").target))):
        yield


def finish() -> None:
    """Flush stdout and stderr.

    Raises
    ------
    ScanoptError
        If one of them cannot be written to.
    """
    for name in ("stdout", "stderr"):
        Stream(name).flush()


def set_up() -> None:
    """Make the standard streams accept any text; replace what their encoding lacks.

    What is printed to a stream that is closed (``>&-``) is dropped.
    """
    for name in ("stdout", "stderr"):
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


def _console(name: str) -> Console:
    from rich.console import Console

    stream = cast(IO[str], Stream(name))
    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = max(shutil.get_terminal_size((_PIPE_WIDTH, 24)).columns, _PIPE_WIDTH)
    console.width = min(console.width, _WIDEST)
    return console


class _EscapingStream:
    """Stands in for stderr and escapes what is printed, which may contain names from a file."""

    def __init__(self, target: IO[str]) -> None:
        self.target = target

    def write(self, text: str) -> int:
        self.target.write("\n".join(map(printable, text.split("\n"))))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)


class Stream:
    """A standard stream whose reader may close it; in a pipe, lines have no trailing blanks."""

    def __init__(self, name: str) -> None:
        self._name = name

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
        stream = getattr(sys, self._name)
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
