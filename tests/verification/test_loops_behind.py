"""A difference in or after a loop names the loop, and the line that wrote it."""

from __future__ import annotations

import json
from typing import Any

import pytensor.tensor as pt
import pytest
from pytensor.configdefaults import config
from pytensor.graph.basic import Variable

from scanopt_cli.ir.graph import as_graph
from scanopt_cli.reports.as_json import to_json
from scanopt_cli.reports.verify_report import notes
from scanopt_cli.verification.loops_behind import loops_behind
from scanopt_cli.verification.verifying import verify
from support.graph_building import scan

pytestmark = pytest.mark.usefixtures("evaluated_here")

X, V = pt.dscalar("x"), pt.dvector("v")


def decayed(x: Variable, name: str, factor: float = 0.5) -> Any:
    return scan(lambda y: y * factor + 1, outputs_info=[x], n_steps=4, name=name)[-1]


def behind(a: list[Variable], b: list[Variable]) -> list[list[str]]:
    graphs = (as_graph(([X], outputs)).fgraph for outputs in (a, b))
    return [[loop.name for loop in loops] for loops in loops_behind(*graphs)]


def test_the_loop_that_the_first_graph_does_not_compute() -> None:
    first, second = decayed(X, "first"), decayed(decayed(X, "first"), "second")
    other = decayed(first, "second", 0.25)
    assert behind([second], [other]) == [["second"]]
    assert behind([second], [decayed(decayed(X, "first", 0.25), "second")]) == [["first"]]


def test_the_nearest_loop_if_all_are_computed_by_both() -> None:
    second = decayed(decayed(X, "first"), "second")
    assert behind([second], [second * 2]) == [["second"]]
    assert behind([decayed(X, "f"), X], [decayed(X, "f"), X + 1]) == [["f"], []]
    assert behind([X * 2], [X * 3]) == [[]]


def test_several_loops_at_which_the_graphs_part() -> None:
    def both(factor: float) -> list[Variable]:
        return [decayed(X, "left", factor) + decayed(X + 1, "right", factor)]

    (loops,) = behind(both(0.5), both(0.25))
    assert sorted(loops) == ["left", "right"]


def test_it_is_in_the_text_and_in_json() -> None:
    with config.change_flags(traceback__limit=8):
        graphs = [([X], [X + 1, decayed(X, "decay", factor)]) for factor in (0.5, 0.25)]
    found = verify(*graphs, runs=1, modes="plain")
    (loop,) = {loop for one in found.differences for loop in one.loops}
    assert loop.name == "decay"
    assert "graph_building.py:" in (loop.place or "")
    assert notes(found)[0].endswith(f", after decay ({loop.place})")
    told = json.loads(to_json("verify", found))
    assert told["differences"][0]["loops"] == [{"name": "decay", "place": loop.place}]


def test_a_difference_without_a_loop_names_none() -> None:
    found = verify(([X], [X + 1]), ([X], [X + 2]), runs=1, modes="plain")
    assert found.differences[0].loops == ()
    assert "after" not in notes(found)[0]


def test_names_from_files_stay_text() -> None:
    name = "\x1b[31mred"
    found = verify(
        ([X], [decayed(X, name)]), ([X], [decayed(X, name, 0.25)]), runs=1, modes="plain"
    )
    assert found.differences[0].loops[0].name == name
