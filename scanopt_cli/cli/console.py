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
from typing import IO, TYPE_CHECKING, Any, cast

from scanopt_cli.errors import ScanoptError
from scanopt_cli.text import printable

if TYPE_CHECKING:
    from rich.console import Console

# A pipe has no width. Wide enough that tables are not folded, narrow enough for a CI log.
_PIPE_WIDTH = 120
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
    """Return the console for results. Plain text in a pipe; honours NO_COLOR and COLUMNS."""
    return _console("stdout")


@cache
def err() -> Console:
    """Return the console for errors, remarks, progress and timings."""
    return _console("stderr")


def tell(text: str) -> None:
    """Print one line of scanopt's own on stderr, whatever the names in it are made of."""
    err().print(f"scanopt: {printable(text)}", soft_wrap=True)


@contextmanager
def status(subject: str, doing: str) -> Iterator[Callable[[str], None]]:
    """Show at a terminal what is being done to ``subject``; yield what tells the next thing.

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
    """Have what others print on stderr made harmless, line by line."""
    with redirect_stderr(cast(IO[str], _Foreign(Stream("stderr").target))):
        yield


def finish() -> None:
    """Write what is still held back.

    Raises
    ------
    ScanoptError
        If stdout cannot be written to.
    """
    for name in ("stdout", "stderr"):
        Stream(name).flush()


def set_up() -> None:
    """Have the standard streams take any text, as well as their encoding can show it."""
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
    return console


class _Foreign:
    """Stands for stderr where somebody else prints: names from a file may be in the text."""

    def __init__(self, target: IO[str]) -> None:
        self.target = target

    def write(self, text: str) -> int:
        self.target.write("\n".join(map(printable, text.split("\n"))))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)


class Stream:
    """A standard stream that a reader may leave, without blanks at the ends of lines in a pipe."""

    def __init__(self, name: str) -> None:
        self._name = name

    def write(self, text: str) -> int:
        """Write text that ends with a line."""
        if not self.isatty():
            text = _TRAILING.sub("", text)
        self._try("write", text)
        return len(text)

    def flush(self) -> None:
        """Write what is still held back."""
        self._try("flush")

    @property
    def target(self) -> Any:
        """The stream itself."""
        stream = getattr(sys, self._name)
        return stream.target if isinstance(stream, _Foreign) else stream

    def _try(self, action: str, *arguments: str) -> None:
        stream = self.target
        try:
            getattr(stream, action)(*arguments)
        except BrokenPipeError:
            # The reader has what it wants. The command ends as it would have, for its exit code.
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
