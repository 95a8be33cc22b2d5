"""Budgets: read from text or pyproject.toml, and checked with the Scans that break them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scanopt_cli.analysis.statistics import COUNTS, statistics
from scanopt_cli.diff.budgets import (
    Violation,
    budget_from_pyproject,
    check,
    counts_text,
    parse_budget,
)
from scanopt_cli.errors import ScanoptError
from scanopt_cli.integration.scan_calls import recorded_scan_calls
from scanopt_cli.pipeline.optimizing import optimize
from support.recurrences import base, variant


def test_counts_by_name_and_short_for_nodes() -> None:
    budget = parse_budget("scans=2, mit_mot=0,outer=30,inner=7")
    assert budget == {
        "scans": 2,
        "mit_mot": 0,
        "outer_nodes": 30,
        "inner_nodes": 7,
    }


@pytest.mark.parametrize(
    "text",
    ["", ",", "scans", "scans=", "scans=-1", "scans=2.5", "scans=x", "scans=²", "ovens=1",
     "buffers=1", "scans=1,scans=2", "outer=1,outer_nodes=2", "scans=" + "9" * 5000],
)  # fmt: skip
def test_what_is_no_budget(text: str) -> None:
    with pytest.raises(ScanoptError) as caught:
        parse_budget(text)
    assert caught.value.where == "--budget"


def test_within_budget() -> None:
    assert check(parse_budget("scans=1,mit_mot=0,sit_sot=3"), base.graph()) == ()


def test_each_violation_names_the_loops_that_break_it() -> None:
    graph = base.graph(gradient=True)
    scans, mit_mot = check(parse_budget("scans=1,mit_mot=0,sit_sot=3"), graph)
    assert (scans.count, scans.limit, scans.actual) == ("scans", 1, 2)
    assert set(scans.loops) == {"rnn", "grad_of_rnn"}
    assert (mit_mot.actual, mit_mot.loops) == (3, ("grad_of_rnn: 3",))


def test_loops_are_named_with_their_lines() -> None:
    with recorded_scan_calls():
        graph = base.graph()
    (over,) = check(parse_budget("scans=0"), graph)
    assert re.fullmatch(r"rnn \(.*recurrences\.py:\d+ in \w+\)", *over.loops)
    assert over.text == f"scans is 1, the budget is 0: {over.loops[0]}"


def test_traced_loops_are_named_for_their_counts_only() -> None:
    graph = optimize(base.graph(), "loop").graph
    assert not check(parse_budget("scans=0"), graph)
    loops, states = check(parse_budget("loops=0,states=0"), graph)
    assert loops.loops == ("rnn",)
    assert states.loops == (f"rnn: {states.actual}",)


def test_of_many_loops_the_first_are_named() -> None:
    over = Violation("scans", 1, 12, tuple(f"f#{n}" for n in range(12)))
    assert over.text.endswith("f#6, f#7 and 4 more")


@pytest.mark.parametrize("gradient", [False, True])
def test_the_counts_of_a_graph_are_a_budget_that_it_keeps(gradient: bool) -> None:
    graph = base.graph(gradient=gradient)
    counts = statistics(graph.fgraph)
    budget = parse_budget(counts_text(counts))
    assert check(budget, graph) == ()
    assert {name: count for name in COUNTS if (count := getattr(counts, name))} == budget
    tighter = {name: limit - 1 for name, limit in budget.items()}
    assert {over.count for over in check(tighter, graph)} == set(budget)


def test_node_counts() -> None:
    graph = variant()
    nodes = len(graph.fgraph.apply_nodes)
    assert check(parse_budget(f"outer={nodes}"), graph) == ()
    (violation,) = check(parse_budget(f"outer={nodes - 1}"), graph)
    assert (violation.count, violation.actual) == ("outer_nodes", nodes)


def written(folder: Path, content: str) -> Path:
    path = folder / "pyproject.toml"
    path.write_text(content, encoding="utf-8")
    return path


def test_the_nearest_pyproject_counts(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    written(tmp_path, "[tool.scanopt.budget]\nscans = 2\nouter = 30\n")
    budget = budget_from_pyproject(deep)
    assert budget is not None
    assert budget == {"scans": 2, "outer_nodes": 30}
    written(deep, "[tool.scanopt.budget]\nscans = 5\n")
    nearer = budget_from_pyproject(deep)
    assert nearer is not None
    assert nearer == {"scans": 5}


def test_a_pyproject_without_a_budget(tmp_path: Path) -> None:
    written(tmp_path, "[tool.other]\nx = 1\n")
    assert budget_from_pyproject(tmp_path) is None


@pytest.mark.parametrize(
    "content",
    [
        "[tool.scanopt]\nbudget = 3\n",
        "[tool.scanopt.budget]\nscans = -1\n",
        "[tool.scanopt.budget]\nscans = true\n",
        "[tool.scanopt.budget]\nscans = '2'\n",
        "[tool.scanopt.budget]\novens = 2\n",
        "[tool.scanopt.budget\n",
    ],
)
def test_a_bad_table_names_the_file(tmp_path: Path, content: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(ScanoptError) as caught:
        budget_from_pyproject(tmp_path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        "[tool.scanopt.budget]\n" + "a." * 20_000 + "b = 1\n",
        "".join(f"b{i}" + ".a" * 2_000 + " = 1\n" for i in range(1_000)),
        f"a = 0x{'f' * 50_000}\n",
        "[" * 9_999,
        "# " * 1_000_000,
    ],
    ids=["dots", "dots in lines", "digits", "lists", "bytes"],
)
def test_a_pyproject_that_would_take_for_ever(content: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(content)
    with pytest.raises(ScanoptError, match="cannot be read"):
        budget_from_pyproject(tmp_path)
