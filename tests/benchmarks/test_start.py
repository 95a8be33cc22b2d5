"""How long the command line takes to start."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "arguments", [["--version"], ["--help"], ["optimize", "--help"], ["passes"]], ids=" ".join
)
def test_start(benchmark, arguments: list[str]) -> None:
    benchmark.group = "start"
    command = [sys.executable, "-m", "scanopt_cli", *arguments]
    done = benchmark.pedantic(
        subprocess.run, args=(command,), kwargs={"capture_output": True}, rounds=5, warmup_rounds=1
    )
    assert done.returncode == 0
