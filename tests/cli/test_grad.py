"""`scanopt grad`: what it prints, writes and refuses, each with its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.configdefaults import config

import scanopt_cli as so
from scanopt_cli.serialization.loading import load
from scanopt_cli.serialization.saving import save
from support.command_line import scanopt
from support.evaluating import evaluate
from support.graph_building import graph_of, power, scan, scan_views

pytestmark = pytest.mark.usefixtures("evaluated_here")


def test_grad(files: Path, tmp_path: Path) -> None:
    target = tmp_path / "hessian.pkl"
    done = scanopt("grad", files / "power.pkl", "--order", "2", "-o", target)
    assert done.code == 0
    assert "rop_of_rop_of_square: forward; rop_of_square with its tangents" in done.out
    assert "taylor: agrees with reverse mode on 10 of 10 runs" in done.out
    (second,) = _evaluate(target, 1.5)
    assert second == pytest.approx(16 * 15 * 1.5**14)
    options = ["--strategy", "reverse", "--stage", "raw", "--no-check"]
    told = json.loads(scanopt("grad", files / "power.pkl", *options, "--format", "json").out)
    assert [order["statistics"]["scans"] for order in told["orders"]] == [1, 2]
    assert (told["strategy"], told["check"], told["orders"][1]["stages"]) == ("reverse", None, [])
    shown = scanopt("grad", files / "power.pkl", *options, "--show", "grad_of_square")
    assert "Scan" in shown.out
    assert "checked" not in shown.out


def test_what_pytensor_cannot_differentiate_is_one_line(tmp_path: Path) -> None:
    z = pt.complex(pt.dscalar("re"), pt.dscalar("im"))
    save(graph_of(pt.real(z**2)), tmp_path / "complex.pkl")
    done = scanopt("grad", tmp_path / "complex.pkl")
    assert (done.code, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert "Real.grad illegally returned an integer-valued variable" in line


def test_grad_by_several_strategies(files: Path, tmp_path: Path) -> None:
    target = tmp_path / "first.pkl"
    options = ["--strategy", "forward", "--strategy", "reverse", "-o", target]
    done = scanopt("grad", files / "power.pkl", *options)
    assert done.code == 0
    assert max(map(len, done.out.splitlines())) <= 80
    for told in (
        " * forward ",
        " reverse, as built ",
        "* forward: as asked for",
        "- reverse: ",
        "forward: agrees with",
    ):
        assert told in done.out
    assert [view.name for view in scan_views(load(target).fgraph)] == ["rop_of_square"]


def test_a_saved_derivative_is_compiled_right(files: Path, tmp_path: Path) -> None:
    target = tmp_path / "second.pkl"
    options = ["--order", "2", "--strategy", "reverse", "--no-check", "--stage", "raw"]
    assert scanopt("grad", files / "power.pkl", *options, "-o", target).code == 0
    built = so.grad(load(files / "power.pkl"), 2, strategy="reverse").graph
    assert so.optimize(built, "compile-safe").changed
    assert not so.optimize(load(target), "compile-safe").changed
    assert so.verify(built, load(target)).ok


def test_a_whole_hessian(files: Path, tmp_path: Path) -> None:
    target = tmp_path / "hessian.pkl"
    options = ["--order", "2", "--full", "--stage", "raw"]
    done = scanopt("grad", files / "power.pkl", *options, "-o", target)
    assert done.code == 0
    assert "Hessian of out by x" in done.out
    (rows,) = _evaluate(target, 1.5)
    assert rows == pytest.approx([16 * 15 * 1.5**14])
    assert scanopt("grad", files / "power.pkl", "--full").code == 2


def test_what_one_strategy_cannot_do_is_told(tmp_path: Path) -> None:
    graph = tmp_path / "vector.pkl"
    v = pt.dvector("v")
    save(graph_of(scan(lambda h: h**2, outputs_info=[v], n_steps=3)[-1]), graph)
    quick = ["--stage", "raw", "--no-check"]
    done = scanopt("grad", graph, *quick, "--strategy", "reverse", "--strategy", "forward")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "forward mode needs a direction for each entry of v" in done.err
    assert "reverse 1" in done.out
    alone = scanopt("grad", graph, *quick, "--strategy", "forward")
    assert (alone.code, alone.out) == (2, "")


def test_values_that_differ_are_a_finding(tmp_path: Path) -> None:
    """PyTensor's reverse mode counts what is written twice to one place twice."""
    v = pt.dvector("v")
    graph, target = tmp_path / "twice.pkl", tmp_path / "out.pkl"
    save(graph_of(pt.set_subtensor(v[[0, 1, 0]], v[:3] ** 2).sum()), graph)
    options = ["--strategy", "reverse", "--stage", "raw", "-o", target]
    done = scanopt("grad", graph, *options)
    assert done.code == 1
    assert "reverse: differs from forward mode along one direction" in done.out
    assert "is not written" in done.err
    assert not target.exists()
    assert scanopt("grad", graph, *options, "--no-check").code == 0


def _evaluate(path: Path, value: float) -> list[np.ndarray]:
    graph = load(path)
    return evaluate(graph.inputs, graph.outputs, [np.asarray(value)])  # type: ignore[return-value]


@pytest.mark.deep
def test_strategies_are_compared_unless_stages_are(files: Path) -> None:
    quick = ["grad", files / "power.pkl", "--order", "2", "--no-check"]
    done = scanopt(*quick)
    assert " * taylor " in done.out
    assert " forward-over-reverse " in done.out
    told = json.loads(scanopt(*quick, "--format", "json").out)
    verdicts = {(one["strategy"], one["verdict"]) for one in told["candidates"]}
    assert ("taylor", "chosen") in verdicts
    assert ("reverse", "counted") in verdicts
    assert all(not order["stages"] for order in told["orders"])
    staged = scanopt(*quick, "--stage", "pytensor", "--stage", "both")
    for label in ("taylor 2", "- compiled", "- scanopt, compiled"):
        assert label in staged.out
    staged_told = scanopt(*quick, "--stage", "pytensor", "--format", "json")
    assert json.loads(staged_told.out)["candidates"] == []


@pytest.mark.deep
def test_the_report_is_one_screen(files: Path, tmp_path: Path) -> None:
    assert len(scanopt("grad", files / "power.pkl", "--order", "2").out.splitlines()) <= 40
    few = ["--no-check", "--order", "3", "--strategy", "reverse"]
    cut, whole = (
        scanopt("grad", files / "power.pkl", *few, "--lines", count).out for count in ("24", "0")
    )
    assert "more loops; --lines 0 shows all" in cut
    assert len(cut.splitlines()) <= 28 < len(whole.splitlines())


def test_loops_have_the_lines_that_wrote_them(tmp_path: Path) -> None:
    with config.change_flags(traceback__limit=8):
        save(graph_of(power(4)[1][-1]), tmp_path / "power.pkl")
    options = ["--strategy", "reverse", "--order", "2", "--no-check"]
    done = scanopt("grad", tmp_path / "power.pkl", *options)
    assert done.out.count("graph_building.py:") == 1  # that of pullbacks is the same
    told = json.loads(scanopt("grad", tmp_path / "power.pkl", *options, "--format", "json").out)
    places = [scan["place"] for scan in told["orders"][2]["pedigree"]["scans"]]
    assert len(places) == 4
    assert len(set(places)) == 1
    assert "graph_building.py:" in places[0]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--wrt", "y"], "x"),
        (["--output", "7"], "7"),
        (["--order", "0"], "order"),
        (["--show", "nobody"], "nobody"),
    ],
)
def test_grad_mistakes(files: Path, arguments: list[str], told: str) -> None:
    done = scanopt("grad", files / "power.pkl", *arguments)
    assert (done.code, done.err.count("\n")) == (2, 1), done
    assert told in done.err


def test_grad_refuses_a_trimmed_loop(files: Path, tmp_path: Path) -> None:
    trimmed = tmp_path / "trimmed.pkl"
    assert scanopt("optimize", files / "power.pkl", "-o", trimmed).code == 0
    done = scanopt("grad", trimmed)
    assert done.code == 2
    assert "square" in done.err
    assert "Traceback" not in done.err
