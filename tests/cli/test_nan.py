"""``scanopt nan``: what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytensor.tensor as pt
import pytest

from scanopt_cli.serialization.saving import save
from support.command_line import scanopt
from support.graph_building import graph_of, scan
from support.terminal import at_terminal

pytestmark = pytest.mark.usefixtures("evaluated_here")


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a loop of logarithms, taken or not, and arguments with and without a zero."""
    folder = tmp_path_factory.mktemp("nan")
    v, x = pt.dvector("v"), pt.dscalar("x")
    logs = scan(lambda a, y: pt.log(a) + y, sequences=[v], outputs_info=[x], name="logs")
    save(graph_of(logs[-1]), folder / "logs.pkl")
    safe = scan(
        lambda a, y: pt.switch(a > 0, pt.log(a), 0.0) + y,
        sequences=[v],
        outputs_info=[x],
        name="safe",
    )
    save(graph_of(safe[-1]), folder / "safe.pkl")
    np.savez(folder / "good.npz", v=np.ones(5), x=1.0)
    np.savez(folder / "zero.npz", v=np.array([1.0, 0.0, 2.0]), x=1.0)
    return folder


@pytest.mark.parametrize("columns", ["80", "200"])
def test_a_finding(graphs: Path, columns: str) -> None:
    done = scanopt("nan", "logs.pkl", "--arguments", "zero.npz", cwd=graphs, COLUMNS=columns)
    assert (done.code, done.err) == (1, "")
    assert "\x1b" not in done.out
    assert max(map(len, done.out.splitlines())) <= int(columns)
    text = " ".join(done.out.split())
    assert "the first infinity is log(v[t]) in step 1 of logs" in text
    assert "it is infinite at zero computes log(v[t]) = -inf of v[t] = 0 x of logs holds" in text


def test_nothing_is_found(graphs: Path) -> None:
    done = scanopt("nan", "logs.pkl", "--arguments", "good.npz", cwd=graphs)
    assert done.code == 0
    assert "no slot and no output holds a NaN or infinity in 5 steps" in done.out
    allowed = scanopt("nan", "logs.pkl", "--arguments", "zero.npz", "--allow", "inf", cwd=graphs)
    assert allowed.code == 0
    assert "holds a NaN in 3 steps" in allowed.out


@pytest.mark.parametrize("columns", ["80", "200"])
def test_what_is_masked(graphs: Path, columns: str) -> None:
    given = ("safe.pkl", "--masked", "--arguments")
    done = scanopt("nan", *given, "zero.npz", cwd=graphs, COLUMNS=columns)
    assert (done.code, done.err) == (1, "")
    assert max(map(len, done.out.splitlines())) <= int(columns)
    text = " ".join(done.out.split())
    assert "the first infinity is log(v[t]) in step 1 of safe" in text
    assert "of v[t] = 0 no slot and no output holds it at the end of that step" in text
    assert "harmless" not in text
    good = scanopt("nan", *given, "good.npz", cwd=graphs)
    assert good.code == 0
    assert "no node computes a NaN or infinity in 5 steps" in good.out


def test_what_is_harmless(graphs: Path) -> None:
    done = scanopt("nan", "safe.pkl", "--arguments", "zero.npz", cwd=graphs)
    assert done.code == 0
    assert "log(v[t]): -inf in safe, 1 step" in done.out
    told = json.loads(
        scanopt(*("nan", "safe.pkl", "--arguments", "zero.npz", "--format", "json"), cwd=graphs).out
    )
    assert told["command"] == "nan"
    assert told["harmless"] == [{"name": "log(v[t])", "value": "-inf", "loop": "safe", "steps": 1}]


def test_drawn_arguments_are_said_to_be(graphs: Path) -> None:
    assert "drawn arguments: random, seed 0" in scanopt("nan", "safe.pkl", cwd=graphs).out


def test_a_terminal(graphs: Path) -> None:
    arguments = ("nan", "logs.pkl", "--arguments", "zero.npz")
    shown = at_terminal(*arguments, columns=80, cwd=graphs, environment={})
    assert shown.colours
    assert shown.widest <= 80


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.pkl"], "none.pkl: no such file"),
        (["logs.pkl", "--allow", "nan"], "--allow: 'nan' cannot be allowed; allow inf"),
        (["logs.pkl", "--arguments", "none.npz"], "none.npz: cannot be read"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(graphs: Path, arguments: list[str], message: str) -> None:
    done = scanopt("nan", *arguments, cwd=graphs, COLUMNS="500")
    assert (done.code, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert message in line
