"""``scanopt reduce``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytensor.tensor as pt
import pytest

import scanopt_cli as so
from scanopt_cli.culprits.properties import CommandFails, Outcome
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
    assert f"the same command goes on; {target}.tried has what was tried" in " ".join(
        done.err.split()
    )


def interrupted(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let somebody press Ctrl-C while the graph of a number is looked at."""
    right, count = CommandFails.of, iter(range(100))

    def of(self: CommandFails, *arguments: Any) -> Outcome:
        if next(count) == number:
            raise KeyboardInterrupt
        return right(self, *arguments)

    monkeypatch.setattr(CommandFails, "of", of)


@pytest.mark.parametrize("is_there", [False, True], ids=["new", "there"])
def test_an_interrupt_before_anything_was_found(
    wasteful: Path, check: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """A file that was there before is not said to be what was found."""
    target = tmp_path / "small.pkl"
    if is_there:
        target.write_bytes(b"as it was")
    interrupted(monkeypatch, 1)
    done = scanopt("reduce", wasteful, "-o", target, "--check", check)
    assert (done.code, done.out) == (130, "")
    assert done.err == "scanopt: stopped before a smaller graph was tried\n"
    assert target.exists() == is_there
    assert not (tmp_path / "small.pkl.tried").exists()


@pytest.mark.tiered(every=9)
@pytest.mark.parametrize(
    ("number", "told"), [(3, "small.pkl is the smallest broken graph so far"), (6, "so far")]
)
def test_the_same_command_goes_on(
    wasteful: Path,
    check: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    told: str,
) -> None:
    command = ["reduce", wasteful, "-o", tmp_path / "small.pkl", "--check", check]
    with monkeypatch.context() as patch:
        interrupted(patch, number)
        done = scanopt(*command)
    assert (done.code, done.out) == (130, "")
    assert "stopped; the same command goes on; " in " ".join(done.err.split())
    assert told in " ".join(done.err.split())
    smaller = so.load(tmp_path / "small.pkl")
    assert "Exp" in str(smaller.fgraph.dprint(file="str"))
    # Another property is not confused with it.
    other = scanopt(*command[:-1], "test ! -e {}")
    assert other.code == 2
    assert "is what another reduction has tried; delete it" in " ".join(other.err.split())
    done = scanopt(*command, "--format", "json")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["remembered"] == number - 2
    assert not (tmp_path / "small.pkl.tried").exists()
    (node,) = walk(so.load(tmp_path / "small.pkl").fgraph)
    assert str(node.op) == "Exp"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--check", "true {}"], "the graph is not broken"),
        (["--check", "true"], "the graph is not broken: --check: 'true' has no {}"),
        (["--check", "true {}", "--raises", ""], "are two properties"),
        (["-p", "no-such-pass"], "no-such-pass"),
        (["--rewriter", "fusion", "--check", "true {}"], "--rewriter: is for what PyTensor"),
        (["--rewriter", "fusion", "-p", "default"], "--rewriter: is for what PyTensor"),
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
