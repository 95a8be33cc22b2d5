"""Running scanopt as its users do."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from unittest.mock import patch

import typer.main

from scanopt_cli.cli import app, console

_command_of = cache(typer.main.get_command)
"""Makes the commands once, as a process of its own would."""


@dataclass(frozen=True)
class Outcome:
    """What a command left: its exit code and what it printed."""

    code: int
    out: str
    err: str


def scanopt(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> Outcome:
    """Run ``scanopt`` with ``arguments`` in a pipe, 80 columns wide, in this process.

    In one of its own with an ``environment`` that counts when Python or PyTensor starts.
    """
    if any(name.startswith(("PYTHON", "PYTENSOR")) for name in environment):
        return process(*arguments, cwd=cwd, **environment)
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2))
    with ExitStack() as stack:
        stack.enter_context(chdir(cwd or Path.cwd()))
        stack.enter_context(patch.dict(os.environ, {"COLUMNS": "80", **environment}))
        stack.enter_context(patch("typer.main.get_command", _command_of))
        stack.enter_context(patch("sys.stdin", io.TextIOWrapper(io.BytesIO())))
        stack.enter_context(redirect_stdout(out))
        stack.enter_context(redirect_stderr(err))
        for made in (console.out, console.err):
            made.cache_clear()
            stack.callback(made.cache_clear)
        console.set_up()
        code = app.run([*map(str, arguments)])
    for stream in (out, err):
        stream.flush()
    return Outcome(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))


def process(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> Outcome:
    """Run ``scanopt`` with ``arguments`` in a process of its own."""
    return run([sys.executable, "-m", "scanopt_cli", *map(str, arguments)], cwd, environment)


def run(command: Sequence[str], cwd: Path | None, environment: dict[str, str]) -> Outcome:
    """Run a command; ``environment`` is added to that of the tests."""
    defaults = {"COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **defaults, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=240,
        check=False,
    )
    encoding = {**defaults, **environment}["PYTHONIOENCODING"]
    return Outcome(done.returncode, done.stdout.decode(encoding), done.stderr.decode(encoding))
