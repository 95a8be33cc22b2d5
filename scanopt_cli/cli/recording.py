"""Record what is printed, in a process that has not the terminal it is for, and print it there."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby

from scanopt_cli.cli.console import NAMES, Stream, err, live_console, out, terminal

type Printed = tuple[tuple[str, str], ...]
"""Names of streams, each with a text that was printed there, in the order of time."""


@dataclass(frozen=True, slots=True)
class Screen:
    """What is to be known of a standard stream to print what suits it."""

    columns: int
    is_terminal: bool
    encoding: str


def screens() -> dict[str, Screen]:
    """Return what the standard streams of this process are."""
    consoles = zip(NAMES, (out(), err()), strict=True)
    return {
        name: Screen(console.width, Stream(name).isatty(), console.encoding)
        for name, console in consoles
    }


@contextmanager
def recorded(like: Mapping[str, Screen]) -> Iterator[list[tuple[str, str]]]:
    """Record what is printed, as it would be on other screens; yield the list that it goes to.

    What is being done is still shown at the terminal, if there is one.
    """
    entries: list[tuple[str, str]] = []
    shown = live_console.set(terminal() or live_console.get())
    before = {name: getattr(sys, name) for name in NAMES}
    try:
        for name in NAMES:
            setattr(sys, name, _Recorder(name, like[name], entries))
        _forget_consoles()
        yield entries
    finally:
        for name, stream in before.items():
            setattr(sys, name, stream)
        live_console.reset(shown)
        _forget_consoles()


def joined(entries: Iterable[tuple[str, str]]) -> Printed:
    """Return what was recorded, as one text where a stream was written to several times."""
    return tuple(
        (name, "".join(text for _, text in texts))
        for name, texts in groupby(entries, key=lambda entry: entry[0])
    )


def replay(entries: Printed) -> None:
    """Print what was recorded for screens like these."""
    for name, text in entries:
        stream = Stream(name)
        stream.write(text)
        stream.flush()


def _forget_consoles() -> None:
    out.cache_clear()
    err.cache_clear()


class _Recorder(io.TextIOBase):
    """Stands in for a standard stream, and looks to Rich like one of another screen."""

    def __init__(self, name: str, screen: Screen, entries: list[tuple[str, str]]) -> None:
        self._name = name
        self._screen = screen
        self._entries = entries
        self.columns = screen.columns

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the screen, which may lack characters."""
        return self._screen.encoding

    def isatty(self) -> bool:
        """Whether the screen is a terminal."""
        return self._screen.is_terminal

    def write(self, text: str) -> int:
        """Record a text."""
        self._entries.append((self._name, text))
        return len(text)
