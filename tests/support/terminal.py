"""Running scanopt in this process, at a terminal of the system's."""

from __future__ import annotations

import os
import re
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest
from rich.cells import cell_len

from scanopt_cli.cli import app, console

pty = pytest.importorskip("pty", reason="a terminal of the system's")

_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
# What a user's terminal says of itself, and nothing of the terminal or service that runs the tests.
_SPEAKING_OF_TERMINALS = (
    *("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "COLORTERM"),
    *("TTY_COMPATIBLE", "TTY_INTERACTIVE", "TERMINAL_WIDTH"),
)


@dataclass(frozen=True)
class Shown:
    """What a command left: its exit code, and all that it wrote to the terminal."""

    code: int
    raw: str

    @property
    def controls(self) -> list[str]:
        """The commands to the terminal, such as those that colour what follows."""
        return _CONTROL.findall(self.raw)

    @property
    def colours(self) -> list[str]:
        """The commands that change the look of letters: colours, bold, dim, underlined."""
        return [control for control in self.controls if control.endswith("m")]

    @property
    def text(self) -> str:
        """What was printed, without commands to the terminal, lines of progress among it."""
        return _CONTROL.sub("", self.raw)

    @property
    def lines(self) -> list[str]:
        """The lines of the text."""
        return re.split(r"[\r\n]+", self.text)

    @property
    def widest(self) -> int:
        """The columns that the longest line takes."""
        return max(map(cell_len, self.lines))


class Terminal:
    """A terminal, and what is written to it."""

    def __init__(self, columns: int) -> None:
        import fcntl
        import termios

        self._reader, writer = pty.openpty()
        fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        self.stream = os.fdopen(writer, "w", encoding="utf-8")
        self._chunks: list[bytes] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        # The system ends what is read by an error, when the last writer has closed its end.
        try:
            while chunk := os.read(self._reader, 1 << 16):
                self._chunks.append(chunk)
        except OSError:
            pass

    def end(self) -> str:
        """Close the terminal; return what was written to it."""
        self.stream.close()
        self._thread.join()
        os.close(self._reader)
        return b"".join(self._chunks).decode()


@contextmanager
def at(terminal: Terminal, environment: dict[str, str]) -> Iterator[None]:
    """Make ``terminal`` stdout and stderr."""
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, {"TERM": "xterm-256color"}))
        for name in _SPEAKING_OF_TERMINALS:
            os.environ.pop(name, None)
        os.environ.update(environment)
        stack.enter_context(redirect_stdout(terminal.stream))
        stack.enter_context(redirect_stderr(terminal.stream))
        for made in (console.out, console.err):
            made.cache_clear()
            stack.callback(made.cache_clear)
        if utils := sys.modules.get("typer.rich_utils"):
            stack.enter_context(patch.multiple(utils, MAX_WIDTH=None, FORCE_TERMINAL=None))
        yield


def at_terminal(
    *arguments: str | Path, columns: int = 80, cwd: Path, environment: dict[str, str]
) -> Shown:
    """Run ``scanopt`` with ``arguments`` at a terminal, which has stdout and stderr."""
    terminal = Terminal(columns)
    try:
        with at(terminal, environment), chdir(cwd):
            code = app.run([*map(str, arguments)])
    finally:
        raw = terminal.end()
    return Shown(code, raw)
