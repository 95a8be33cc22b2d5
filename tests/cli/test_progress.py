"""What is being done is told at a terminal, on stderr, and nowhere else."""

from __future__ import annotations

import os
import re
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
    shown, out, _ = with_errors_at_a_terminal(arguments, files)
    assert told in shown
    assert "\\x1b" not in shown
    assert "verifying: " not in out


def with_errors_at_a_terminal(
    arguments: list[str], cwd: Path, columns: int = 100
) -> tuple[str, str, int]:
    """Return what a process of its own showed at a terminal, wrote into a pipe, and its code."""
    reader, writer = pty.openpty()
    code = f"import sys; from scanopt_cli.cli.app import run; sys.exit(run({arguments!r}))"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=cwd,
        env={**os.environ, "TERM": "xterm", "COLUMNS": str(columns)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=writer,
    )
    os.close(writer)
    shown = b""
    while chunk := _read(reader):
        shown += chunk
    out = process.communicate()[0].decode()
    return shown.decode(), out, process.returncode


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


@pytest.mark.parametrize("columns", [80, *deep(200, 40)])
def test_a_bar_says_what_is_in_work_and_what_remains(columns: int, files: Path) -> None:
    names = ["power.pkl", "clean.pkl", "grad.pkl", "none.pkl"]
    shown, out, code = with_errors_at_a_terminal(["hash", *names, "-j", "2"], files, columns)
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]", "", shown))
    assert code == 2
    assert any("0/4 power.pkl, clean.pkl" in line for line in lines) or columns < 80
    assert any("0/4" in line for line in lines)
    assert max(map(len, lines)) <= columns
    assert [line.split()[-1] for line in out.splitlines()] == names[:3]
    assert "none.pkl: no such file" in shown


def test_no_bar_in_a_pipe(files: Path) -> None:
    done = scanopt("hash", files / "power.pkl", files / "clean.pkl", "-j", 2)
    assert (done.code, len(done.out.splitlines()), done.err) == (0, 2, "")
