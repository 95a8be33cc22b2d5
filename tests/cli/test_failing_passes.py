"""A pass that raises an error leaves a script to report it with."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytensor.tensor as pt
import pytest

import scanopt_cli as so
from scanopt_cli.environment import STRICT
from support.command_line import Outcome, process, run
from support.graph_building import graph_of

MODULE = """
from dataclasses import dataclass
from typing import ClassVar

from scanopt_cli.pipeline.contract import Pass


@dataclass(frozen=True)
class NoSinh(Pass):
    \"\"\"Fail on a sinh.\"\"\"

    name: ClassVar[str] = "no-sinh"
    times: int = 1

    def rewrites(self, context):
        for node in context.fgraph.toposort():
            if str(node.op) == "Sinh":
                raise KeyError(f"{self.times} sinh")
        yield from ()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A graph, and beside it the package whose pass fails on it, installed as packages are."""
    monkeypatch.delenv(STRICT)
    (tmp_path / "no_sinh.py").write_text(MODULE)
    installed = tmp_path / "no_sinh-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: no-sinh\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[scanopt.passes]\nno-sinh = no_sinh:NoSinh\n")
    x, y = pt.dscalars("x", "plain")
    so.save(graph_of(pt.tanh(pt.sinh(x * y) + y) - x), tmp_path / "graph.pkl")
    return tmp_path


def _in(folder: Path, *arguments: str) -> Outcome:
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return process(*arguments, cwd=folder, PYTHONPATH=path, COLUMNS="500")


def _assert_fails(script: Path, folder: Path) -> None:
    text = script.read_text()
    assert text.startswith("# scanopt ")
    assert "KeyError: '2 sinh'" in text.splitlines()[1]
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    ran = run([sys.executable, str(script)], folder, {"PYTHONPATH": path})
    assert ran.code == 1
    assert "the pass no-sinh of the package no-sinh failed" in ran.err


@pytest.mark.deep
def test_a_script_of_a_pass_that_fails(folder: Path) -> None:
    """`optimize` names the command, which writes the script, which fails as the pass does."""
    done = _in(folder, "optimize", "graph.pkl", "-p", "remove-unused,no-sinh{times=2}")
    assert (done.code, done.out) == (2, "")
    assert "error: the pass no-sinh of the package no-sinh failed" in done.err
    command = done.err.partition("a script that shows it: scanopt ")[2]
    found = _in(folder, *shlex.split(command))
    assert found.code == 1
    assert "no-sinh, rewrite 1" in found.out
    assert "wrote bug.py" in found.err
    _assert_fails(folder / "bug.py", folder)


@pytest.mark.deep
def test_a_script_of_a_smaller_graph(folder: Path) -> None:
    options = ["-p", "no-sinh{times=2}", "--mode", "plain", "--repro", "small.py"]
    done = _in(folder, "reduce", "graph.pkl", "-o", "small.pkl", *options)
    assert done.code == 0, done.err
    assert "5 → 1 node" in done.out
    _assert_fails(folder / "small.py", folder)


def test_twin_an_error_of_the_user(folder: Path) -> None:
    done = _in(folder, "optimize", "graph.pkl", "-p", "no-cosh")
    assert done.code == 2
    assert "a script" not in done.err
