"""Running scanopt as its users do: a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Outcome:
    """What a command left: its exit code and what it printed."""

    code: int
    out: str
    err: str


def scanopt(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> Outcome:
    """Run ``scanopt`` with ``arguments`` in a pipe, 80 columns wide unless told otherwise."""
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
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())
