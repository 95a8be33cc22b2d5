"""``scanopt diff``: what it prints where, and its exit codes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import cloudpickle
import pytensor.tensor as pt
import pytest
from pytensor.configdefaults import config

from scanopt_cli.ir.graph import Graph
from scanopt_cli.serialization.saving import save
from support.command_line import scanopt
from support.foreign_ops import Opaque
from support.graph_building import graph_of, power


def saved(graph: Graph, path: Path) -> Path:
    save(graph, path)
    return path


@pytest.mark.parametrize("options", [[], ["--names"], ["--format", "github"]])
def test_equal_graphs_are_one_line_and_exit_0(files: Path, options: list[str]) -> None:
    done = scanopt("diff", files / "grad.pkl", files / "grad.pkl", *options)
    assert (done.code, done.out, done.err) == (0, "the graphs are the same\n", "")


def test_stat_of_equal_graphs_tells_the_counts_that_budgets_limit(files: Path) -> None:
    done = scanopt("diff", files / "grad.pkl", files / "grad.pkl", "--stat")
    same, *rest = done.out.splitlines()
    counts = " ".join(rest).rpartition(": ")[2]
    assert (done.code, same, done.err) == (0, "the graphs are the same", "")
    within = scanopt("diff", files / "grad.pkl", files / "grad.pkl", "--budget", counts)
    assert (within.code, within.out) == (0, "the graphs are the same\n")


def test_a_renamed_loop_is_no_difference_unless_names_count(tmp_path: Path) -> None:
    old, new = (
        saved(graph_of(power(name=name)[1]), tmp_path / f"{name}.pkl") for name in ("old", "new")
    )
    done = scanopt("diff", old, new)
    told = "the graphs are the same, but for names: Scan `old` is now `new`\n"
    assert (done.code, done.out) == (0, told)
    counted = scanopt("diff", old, new, "--names")
    assert (counted.code, counted.out.splitlines()[-1]) == (1, "~ renamed Scan `old`: old → new")
    stat = scanopt("diff", old, new, "--names", "--stat")
    assert (stat.code, stat.out.splitlines()[0]) == (1, "graph | 1 ~")


def test_stat_is_one_line_a_loop_and_the_totals(files: Path) -> None:
    done = scanopt("diff", files / "wasteful.pkl", files / "off.pkl", "--stat")
    assert done.code == 1
    assert done.out.splitlines()[:2] == [
        "graph | 1 +",
        "1 change: 1 added(+), 0 removed(-), 0 changed(~)",
    ]


def test_the_headline_and_the_lines_of_loops_are_in_every_format(tmp_path: Path) -> None:
    with config.change_flags(traceback__limit=8):
        pair = [saved(graph_of(power(steps)[1][-1]), tmp_path / f"{steps}.pkl") for steps in (3, 4)]
    shown = scanopt("diff", *pair).out
    headline = " ".join(shown.partition("\n\n")[0].split())
    assert headline.startswith("1 Scan: ")
    told = json.loads(scanopt("diff", *pair, "--format", "json").out)
    assert told["headline"] == headline
    places = {loop["place"] for loop in told["loops"]}
    assert places
    assert all("graph_building.py:" in place for place in places)
    for output_format in ("rich", "markdown", "github"):
        text = " ".join(scanopt("diff", *pair, "--format", output_format).out.split())
        text = text.replace("\\", "").replace("%2C", ",").replace("%3A", ":")
        assert headline.partition(":")[0] in text
        assert all(place in text for place in places), output_format


def test_what_is_left_out_is_counted(files: Path) -> None:
    pair = (files / "wasteful.pkl", files / "grad.pkl")
    few, all_of_it = (scanopt("diff", *pair, "--lines", n).out.splitlines() for n in ("8", "0"))
    assert few[-1].startswith("… ")
    assert few[-1].endswith("; --lines 0 shows all")
    assert len(few) <= 10 < len(all_of_it)
    assert not any("more change" in line for line in all_of_it)


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


@pytest.mark.deep
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
