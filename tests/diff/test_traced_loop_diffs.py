"""Differences of TracedLoops are those of their slots, as for Scans."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Variable

from scanopt_cli.diff.comparing import diff
from scanopt_cli.ir.graph import from_io
from scanopt_cli.loop import Body, TracedLoop
from scanopt_cli.reports import as_markdown
from scanopt_cli.reports.diff_report import diff_report

x, w = pt.dscalars("x", "w")
v = pt.dvector("v")


def outputs(
    order: tuple[int, ...] = (0, 1), *, factor: float = 1.5, bound: Any = 9.0, steps: Any = None
) -> list[Variable]:
    """Return the last values and traces of a loop with states in any order."""
    index, rows = pt.lscalar("index"), pt.dvector()
    states = [pt.dscalar(), pt.dscalar()]
    a, b = states
    following = [a * factor + rows[index], b + a]
    body = Body(
        index=index,
        states=[states[i] for i in order],
        next_states=[following[i] for i in order],
        condition=None if bound is None else following[0] < bound,
    )
    starts = [[x, w][i] for i in order]
    n_steps = v.shape[0] if steps is None else steps
    made = TracedLoop.over(n_steps, body, starts, {rows: v}, name="f")
    n = len(order)
    return [made[at + order.index(i)] for at in (0, n) for i in sorted(order)]


def text(before: list[Variable], after: list[Variable]) -> str:
    graphs = [from_io([x, w, v], list(made)) for made in (before, after)]
    return as_markdown.render(diff_report(diff(*graphs), stands_alone=True))


def test_the_order_of_states_is_no_difference() -> None:
    graphs = [from_io([x, w, v], outputs(order)) for order in ((0, 1), (1, 0))]
    assert not diff(*graphs).changes


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_constant_in_the_body(order: tuple[int, ...]) -> None:
    found = diff(from_io([x, w, v], outputs()), from_io([x, w, v], outputs(order, factor=2.5)))
    assert len(found.changes) == 1
    shown = text(outputs(), outputs(order, factor=2.5))
    assert "1.5" in shown
    assert "2.5" in shown


def test_a_state_that_is_gone() -> None:
    kept = outputs((0,))
    assert "removed state" in text(outputs(), kept + kept)


def test_a_condition() -> None:
    assert "condition" in text(outputs(), outputs(bound=None))


def test_the_number_of_steps() -> None:
    assert "steps" in text(outputs(), outputs(steps=3))
