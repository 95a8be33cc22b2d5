"""What is being done is told at a terminal, on stderr, and nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.command_line import scanopt
from support.tiers import deep

pty = pytest.importorskip("pty", reason="a terminal of the system's")

COMMANDS = {
    "verify": (["verify", "wasteful.pkl", "clean.pkl", "--mode", "plain"], "clean.pkl: verifying"),
    "optimize": (
        ["optimize", "wasteful.pkl", "--verify", "--mode", "plain"],
        "wasteful.pkl: verifying: ",
    ),
    "optimize several": (["optimize", "wasteful.pkl", "power.pkl"], "power.pkl (2 of 2): optim"),
    "grad": (["grad", "power.pkl"], "power.pkl: verifying: "),
}


@pytest.mark.deep
@pytest.mark.parametrize("name", ["verify", *deep(*list(COMMANDS)[1:])])
def test_progress_at_a_terminal(name: str, files: Path) -> None:
    arguments, told = COMMANDS[name]
    reader, writer = pty.openpty()
    code = f"import sys; from scanopt_cli.cli.app import run; sys.exit(run({arguments!r}))"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=files,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=writer,
    )
    os.close(writer)
    shown = b""
    while chunk := _read(reader):
        shown += chunk
    out = process.communicate()[0].decode()
    assert told in shown.decode()
    assert "\\x1b" not in shown.decode()
    assert "verifying: " not in out


def _read(reader: int) -> bytes:
    try:
        return os.read(reader, 4096)
    except OSError:  # the other end is closed
        return b""


@pytest.mark.parametrize("name", ["verify", *deep(*list(COMMANDS)[1:])])
def test_no_progress_in_a_pipe(name: str, files: Path) -> None:
    arguments = [files / word if word.endswith(".pkl") else word for word in COMMANDS[name][0]]
    done = scanopt(*arguments)
    assert "verifying: " not in done.err
    assert "optimizing" not in done.err
