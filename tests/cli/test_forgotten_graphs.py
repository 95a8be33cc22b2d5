"""Graphs that a process works on one after the other: none is confused with one before."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.command_line import process

_ZEROS = """
import sys, pytensor, pytensor.tensor as pt
import scanopt_cli as so
zero, x = pt.constant(float(sys.argv[1])), pt.dscalar("x")
ys = pytensor.scan(lambda y: pt.arctan2(zero, -abs(y)), outputs_info=[x], n_steps=2,
                   return_updates=False)
so.save(([x], [ys[-1]]), sys.argv[2])
"""


@pytest.fixture(scope="module")
def zeros(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with loops over 0.0, -0.0 and 0.0, which PyTensor takes for equal."""
    folder = tmp_path_factory.mktemp("zeros")
    for name, zero in (("a", "0.0"), ("b", "-0.0")):
        file = str(folder / f"{name}.scanopt")
        subprocess.run([sys.executable, "-c", _ZEROS, zero, file], check=True)
    shutil.copy(folder / "a.scanopt", folder / "c.scanopt")
    return folder


@pytest.mark.tiered(every=5)
@pytest.mark.parametrize("jobs", ["0", "1"])
@pytest.mark.parametrize("command", ["hash", "check", "optimize", "audit"])
def test_each_is_as_it_is_alone(command: str, jobs: str, zeros: Path) -> None:
    names = ("a.scanopt", "b.scanopt", "c.scanopt")
    done = process(command, *names, "-j", jobs, "--format", "jsonl", cwd=zeros)
    alone = [process(command, name, "--format", "jsonl", cwd=zeros) for name in names[:2]]
    assert done.code == max(one.code for one in alone) < 2
    assert done.err == ""
    lines, wanted = done.out.splitlines(), [one.out.rstrip("\n") for one in alone]
    if command == "optimize":  # its times differ
        assert [line.partition('"passes"')[0] for line in lines[:2]] == [
            line.partition('"passes"')[0] for line in wanted
        ]
    else:
        assert lines[:2] == wanted
    assert len(lines) == 3
