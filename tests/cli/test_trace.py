"""``scanopt trace``: what it prints and writes, and what is wrong in one line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytensor.tensor as pt
import pytest

from scanopt_cli.serialization.saving import save
from support.command_line import scanopt
from support.graph_building import graph_of, scan
from support.terminal import at_terminal
from support.tiers import deep

pytestmark = pytest.mark.usefixtures("evaluated_here")


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with graphs: grow and grow_less, which part in a late step, rows, and arguments."""
    folder = tmp_path_factory.mktemp("traced")
    for name, limit in (("grow", 10.0), ("grow_less", 8.0)):
        y = pt.dscalar("y")
        ys = scan(
            lambda y, limit=limit: pt.switch(y > limit, y * 0.5, y * 1.5),
            outputs_info=[y],
            n_steps=60,
            name="grow",
        )
        save(graph_of(ys), folder / f"{name}.pkl")
    m, x = pt.dmatrix("m"), pt.dvector("x")
    rows, sums = scan(
        lambda r, h: (pt.tanh(h + r), r.sum()), sequences=[m], outputs_info=[x, None], name="rows"
    )
    save(graph_of(rows, sums), folder / "rows.pkl")
    np.savez(folder / "one.npz", y=1.0)
    np.savez(folder / "rows.npz", m=np.eye(8), x=np.zeros(8))
    return folder


@pytest.mark.parametrize("columns", ["80", "200", *deep("30")])
def test_a_table_in_a_pipe(traced: Path, columns: str) -> None:
    done = scanopt("trace", "grow.pkl", "--arguments", "one.npz", cwd=traced, COLUMNS=columns)
    assert (done.code, done.err) == (0, "")
    assert "\x1b" not in done.out
    assert max(map(len, done.out.splitlines())) <= int(columns)
    assert "arguments: one.npz" in " ".join(done.out.split())
    lines = [line.split() for line in done.out.splitlines()]
    assert ["start", "1"] in lines or columns == "30"
    assert ["0", "1.5"] in lines or columns == "30"
    assert "20 more steps" in done.out
    assert "▁" in done.out


def test_long_arrays_are_abbreviated(traced: Path) -> None:
    done = scanopt("trace", "rows.pkl", "--arguments", "rows.npz", cwd=traced, COLUMNS="200")
    assert "(8) 0..0.7616" in done.out
    assert "float64 (8)" in done.out


def test_ascii(traced: Path) -> None:
    done = scanopt(
        *("trace", "grow.pkl", "--arguments", "one.npz"),
        cwd=traced,
        PYTHONIOENCODING="ascii",
        PYTENSOR_FLAGS="cxx=,linker=vm",
    )
    assert done.code == 0
    assert done.out.isascii()
    assert "\\u" not in done.out
    (line,) = (line for line in done.out.splitlines() if "sit_sot" in line)
    assert set(line.split("|")[4].strip()) <= set("_.-~=+*#")


def test_colours_at_a_terminal(traced: Path) -> None:
    arguments = ("trace", "grow.pkl", "--arguments", "one.npz")
    shown = at_terminal(*arguments, columns=80, cwd=traced, environment={})
    assert shown.colours
    plain = at_terminal(*arguments, columns=80, cwd=traced, environment={"NO_COLOR": "1"})
    assert not plain.colours


def test_files(traced: Path, tmp_path: Path) -> None:
    table, arrays = tmp_path / "t.csv", tmp_path / "t.npz"
    done = scanopt(
        *("trace", traced / "rows.pkl", "--arguments", traced / "rows.npz", "--steps", "2:4"),
        *("--csv", table, "--npz", arrays, "--slot", "m"),
    )
    assert done.code == 0
    assert f"wrote {table}" in " ".join(done.err.split())
    header, *rows = csv.reader(table.open())
    assert header == ["step", *(f"m[{i}]" for i in range(8))]
    assert [row[0] for row in rows] == ["2", "3"]
    with np.load(arrays) as found:
        assert found["m"].tolist() == np.eye(8)[2:4].tolist()


def test_json(traced: Path) -> None:
    done = scanopt(
        *("trace", "grow.pkl", "--arguments", "one.npz", "--steps", "-2:", "--inner"),
        *("--format", "json"),
        cwd=traced,
    )
    told = json.loads(done.out)
    assert (told["command"], told["arguments"], told["is_drawn"]) == ("trace", "one.npz", False)
    (loop,) = told["loops"]
    assert loop["steps"] == [58, 59]
    assert loop["slots"][0]["name"] == "y"
    assert len(loop["slots"][0]["values"]) == 2
    assert "gt(y[t-1], 10.0)" in [node["name"] for node in loop["nodes"]]


def test_markdown(traced: Path) -> None:
    done = scanopt("trace", "grow.pkl", "--format", "markdown", cwd=traced)
    assert "| slot | kind | type |" in done.out


def test_between(traced: Path) -> None:
    two = ("trace", "--between", "grow.pkl", "grow_less.pkl", "--arguments", "one.npz")
    done = scanopt(*two, cwd=traced)
    assert done.code == 1
    text = " ".join(done.out.split())
    assert "the first difference is in step 8, at gt(y[t-1], 10.0)" in text
    told = json.loads(scanopt(*two, "--format", "json", cwd=traced).out)
    assert (told["kind"], told["step"], told["at"]["a"]) == ("node", 8, "False")
    same = scanopt("trace", "--between", "grow.pkl", "grow.pkl", cwd=traced)
    assert same.code == 0
    assert "no difference in 1 pair of loops, 60 steps" in same.out


def test_nothing_to_compare_is_no_agreement(traced: Path, tmp_path: Path) -> None:
    save(graph_of(pt.dscalar("y") * 2), tmp_path / "none.pkl")
    done = scanopt("trace", "--between", "grow.pkl", tmp_path / "none.pkl", cwd=traced)
    assert done.code == 2
    assert "no loop of A has a counterpart in B" in done.out
    assert "without a counterpart: grow of A" in done.out


WRONG = {
    "--loop: there is no loop 'f'; loops: grow": ["grow.pkl", "--loop", "f"],
    "--slot: there is no slot 'z'; slots: y": ["grow.pkl", "--slot", "z"],
    "--steps: 9:3 holds no step": ["grow.pkl", "--steps", "9:3"],
    "--steps: 'x' is no range of steps": ["grow.pkl", "--steps", "x"],
    "--outer-step: grow is in no loop": ["grow.pkl", "--outer-step", "2"],
    "none.pkl: no such file": ["none.pkl"],
    "none.npz: cannot be read": ["grow.pkl", "--arguments", "none.npz"],
    "grow.pkl: is no file of arrays": ["grow.pkl", "--arguments", "grow.pkl"],
    "rows.npz: there is no input 'm'": ["grow.pkl", "--arguments", "rows.npz"],
    "--csv none/t.csv: there is no such directory": ["grow.pkl", "--csv", "none/t.csv"],
    "grow.pkl: would be overwritten": ["grow.pkl", "--npz", "grow.pkl"],
    "--between: takes two graphs": ["--between", "grow.pkl"],
    "--csv: is for one graph": ["--between", "grow.pkl", "rows.pkl", "--csv", "t.csv"],
    "trace: takes one graph": ["grow.pkl", "rows.pkl"],
    "the graphs have different signatures": ["--between", "grow.pkl", "rows.pkl"],
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_is_told_in_a_line(traced: Path, message: str) -> None:
    before = sorted(traced.iterdir())
    done = scanopt("trace", *WRONG[message], cwd=traced, COLUMNS="500")
    assert (done.code, done.out) == (2, "")
    (line,) = (line for line in done.err.splitlines() if not line.startswith("scanopt: note"))
    assert line.startswith("scanopt: error: ")
    assert message in line
    assert sorted(traced.iterdir()) == before


def test_a_file_holds_one_loop(files: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    done = scanopt("trace", files / "grad.pkl", "--csv", folder / "t.csv")
    assert done.code == 2
    assert "choose it by --loop: square, grad_of_square" in " ".join(done.err.split())
    assert not list(folder.iterdir())
