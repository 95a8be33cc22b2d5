"""``scanopt diff``: what it prints where, and its exit codes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import cloudpickle
import pytensor.tensor as pt
import pytest
from command_line import scanopt

from foreign_ops import Opaque
from graph_building import graph_of, power
from scanopt_cli.ir.graph import Graph
from scanopt_cli.serialization.saving import save


def saved(graph: Graph, path: Path) -> Path:
    save(graph, path)
    return path


@pytest.mark.parametrize("options", [[], ["--stat"], ["--names"], ["--format", "github"]])
def test_equal_graphs_are_one_line_and_exit_0(files: Path, options: list[str]) -> None:
    done = scanopt("diff", files / "grad.pkl", files / "grad.pkl", *options)
    assert (done.code, done.out, done.err) == (0, "the graphs are the same\n", "")


def test_a_renamed_loop_is_no_difference_unless_names_count(tmp_path: Path) -> None:
    old, new = (
        saved(graph_of(power(name=name)[1]), tmp_path / f"{name}.pkl") for name in ("old", "new")
    )
    done = scanopt("diff", old, new)
    told = "the graphs are the same, but for names: Scan `old` is now `new`\n"
    assert (done.code, done.out) == (0, told)
    counted = scanopt("diff", old, new, "--names")
    assert (counted.code, counted.out) == (1, "~ renamed Scan `old`: old → new\n")
    stat = scanopt("diff", old, new, "--names", "--stat")
    assert (stat.code, stat.out.splitlines()[-1]) == (1, "renamed |  1 ~")


def test_stat_is_one_line_a_category(files: Path) -> None:
    done = scanopt("diff", files / "wasteful.pkl", files / "off.pkl", "--stat")
    assert done.code == 1
    lines = [line.split(" | ") for line in done.out.splitlines()]
    assert [line[0].strip() for line in lines] == ["same", "added"]
    assert lines[1][1].split() == ["1", "+"]


@pytest.mark.deep
@pytest.mark.parametrize("columns", ["40", "80", "200"])
@pytest.mark.parametrize("command", ["diff", "inspect", "optimize", "grad"])
def test_no_blanks_at_the_ends_of_lines(files: Path, command: str, columns: str) -> None:
    """Tables fill their lines up; a pipe does without."""
    graphs = ["grad.pkl", "wasteful.pkl"] if command == "diff" else ["grad.pkl"]
    done = scanopt(command, *(files / name for name in graphs), COLUMNS=columns)
    assert done.out
    lines = (done.out + done.err).splitlines()
    assert [line for line in lines if line != line.rstrip()] == []


def test_what_has_no_value_is_noted_on_stderr(tmp_path: Path) -> None:
    """Loaded twice it is two things, of which nobody can say that they are the same."""
    x = pt.dvector("x")
    path = tmp_path / "opaque.pkl"
    path.write_bytes(cloudpickle.dumps(([x], [Opaque(lambda value: value)(x)])))
    here = os.pathsep.join(map(str, Path(__file__).parents[:2]))
    done = scanopt("diff", path, path, "--trust", PYTHONPATH=here)
    assert done.code == 1
    assert "changed Opaque of x: state is another function" in done.out
    assert "compared by identity" in done.err
    assert "note" not in done.out
    told = json.loads(
        scanopt("diff", path, path, "--trust", "--format", "json", PYTHONPATH=here).out
    )
    assert (told["same"], len(told["notes"])) == (False, 1)


def test_only_a_budget_counts_if_told_so(files: Path) -> None:
    pair = (files / "wasteful.pkl", files / "clean.pkl")
    assert scanopt("diff", *pair, "--budget", "scans=9").code == 1
    within = scanopt("diff", *pair, "--stat", "--only-budget", "--budget", "scans=9")
    assert within.code == 0
    assert scanopt("diff", *pair, "--stat", "--only-budget", "--budget", "scans=0").code == 1
    none = scanopt("diff", *pair, "--only-budget")
    assert (none.code, none.err.count("\n")) == (2, 1)
