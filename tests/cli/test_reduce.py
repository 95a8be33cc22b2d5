"""``scanopt reduce``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytensor.tensor as pt
import pytest

import scanopt_cli as so
from scanopt_cli.ir.inner_graphs import walk
from support.command_line import scanopt
from support.graph_building import graph_of


@pytest.fixture
def wasteful(tmp_path: Path) -> Path:
    """A graph of which a command says that it is broken, since there is an exp in it."""
    x, y = pt.dscalars("xy")
    path = tmp_path / "wasteful.pkl"
    so.save(graph_of(pt.tanh(pt.exp(x * y) + y) - x), path)
    return path


@pytest.fixture
def check(tmp_path: Path) -> str:
    script = tmp_path / "check.py"
    script.write_text(
        "import sys\nimport scanopt_cli as so\n"
        "sys.exit('Exp' in so.load(sys.argv[1]).fgraph.dprint(file='str'))\n"
    )
    return f"{sys.executable} {script} {{}}"


def test_a_command_that_fails(wasteful: Path, check: str, tmp_path: Path) -> None:
    target = tmp_path / "small.pkl"
    done = scanopt("reduce", wasteful, "-o", target, "--check", check)
    assert (done.code, done.err) == (0, "")
    assert "5 → 1 node" in done.out
    (node,) = walk(so.load(target).fgraph)
    assert str(node.op) == "Exp"


def test_a_part_in_json(wasteful: Path, check: str, tmp_path: Path) -> None:
    target = tmp_path / "small.pkl"
    done = scanopt(
        "reduce", wasteful, "-o", target, "--check", check, "--most", "1", "--format", "json"
    )
    told = json.loads(done.out)
    assert (done.code, told["command"], told["tried"]) == (0, "reduce", 1)
    assert not told["is_minimal"]
    assert target.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--check", "true {}"], "the graph is not broken"),
        (["--check", "true"], "the graph is not broken: --check: 'true' has no {}"),
        (["--check", "true {}", "--raises", ""], "are two properties"),
        (["-p", "no-such-pass"], "no-such-pass"),
    ],
)
def test_nothing_is_written(
    wasteful: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    target = tmp_path / "small.pkl"
    done = scanopt("reduce", wasteful, "-o", target, *options)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert not target.exists()


def test_the_graph_is_replaced_by_force_only(wasteful: Path) -> None:
    done = scanopt("reduce", wasteful, "-o", wasteful, "--check", "true {}")
    assert done.code == 2
    assert "would be overwritten" in done.err
    assert scanopt("reduce", wasteful).code == 2
