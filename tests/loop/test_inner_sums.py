"""Sums of cotangents that a loop in a step adds to those of the loop around it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Constant, Variable

from scanopt_cli import loop
from scanopt_cli.ir.inner_graphs import inner_graphs, walk
from scanopt_cli.loop import Body, TracedLoop
from scanopt_cli.loop.inner_sums import is_sum
from support.evaluating import PLAIN
from support.graph_building import graph_of

V, W = pt.dvector("v"), pt.dvector("w")


def loop_of(step: Callable[..., Any], *, reads: Callable[..., Any] | None = None) -> Any:
    """Return the outputs of a loop of a total and a number."""
    index, total, number, w = pt.lscalar(), pt.dvector(), pt.dscalar(), pt.dvector()
    body = Body(
        index=index,
        states=[total, number],
        next_states=[step(total, number, w), reads(total, number) if reads else number * 2],
    )
    return TracedLoop.over(3, body, [V, pt.constant(1.0, dtype="float64")], {w: W})


SUMS: dict[str, Callable[..., Any]] = {
    "a term": lambda total, number, w: total + number,
    "terms": lambda total, number, w: w + (total + number) + w,
    "a part": lambda total, number, w: pt.inc_subtensor(total[1:], number),
    "an entry that is chosen": lambda total, number, w: pt.inc_subtensor(total[[0, 0]], number),
    "nothing": lambda total, number, w: total,
}
OTHERS: dict[str, Callable[..., Any]] = {
    "twice": lambda total, number, w: total + total,
    "a product": lambda total, number, w: total * number,
    "a term that reads it": lambda total, number, w: total + total[0],
    "a part that is set": lambda total, number, w: pt.set_subtensor(total[1:], number),
    "a part of itself": lambda total, number, w: pt.inc_subtensor(total[1:], total[0]),
    "another": lambda total, number, w: w + number,
    "a difference": lambda total, number, w: w - total,
}


@pytest.mark.parametrize("name", SUMS)
def test_sums(name: str) -> None:
    assert is_sum(loop_of(SUMS[name])[0].owner.op.fgraph, 0)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_sum(name: str) -> None:
    assert not is_sum(loop_of(OTHERS[name])[0].owner.op.fgraph, 0)


def test_a_sum_that_another_state_reads_is_none() -> None:
    made = loop_of(SUMS["a term"], reads=lambda total, number: number + total[0])
    assert not is_sum(made[0].owner.op.fgraph, 0)


def _nested(n_rows: int) -> tuple[list[Variable], Variable]:
    """A loop in a loop, which reads rows of a constant and another constant, with a cost."""
    x, rows, w = pt.dscalar("x"), pt.dvector("rows"), pt.dscalar("w")
    block, outer = pt.lscalar(), pt.dscalar()
    rows_outside, w_outside = pt.dvector(), pt.dscalar()
    index, inner = pt.lscalar(), pt.dscalar()
    rows_inside, w_inside, first = pt.dvector(), pt.dscalar(), pt.lscalar()
    step = Body(
        index=index,
        states=[inner],
        next_states=[pt.sin(inner * w_inside) + rows_inside[first + index]],
    )
    last = TracedLoop.over(
        n_rows, step, [outer], {rows_inside: rows_outside, w_inside: w_outside, first: block}
    )[0]
    # The constant is read beside the inner loop, too.
    blocks = Body(index=block, states=[outer], next_states=[last * w_outside])
    made: Any = TracedLoop.over(4, blocks, [x], {rows_outside: rows, w_outside: w})[0]
    return [x, rows, w], made**2


def test_the_inner_loop_goes_on_from_the_outer_sum() -> None:
    inputs, cost = _nested(3)
    slopes = pytensor.grad(cost, inputs)
    graph = graph_of(*slopes)
    inner = [
        node
        for outside in graph.fgraph.apply_nodes
        for body in inner_graphs(outside.op)
        for node in body.apply_nodes
        if isinstance(node.op, TracedLoop)
    ]
    starts = [
        node.inputs[1 + position]
        for node in inner
        for position in range(node.op.n_states)
        if is_sum(node.op.fgraph, position)
    ]
    # That of the rows; that of the other constant has a term beside it.
    assert any(start.owner is None and not isinstance(start, Constant) for start in starts)


@pytest.mark.parametrize("n_rows", [0, 1, 3])
def test_derivatives(n_rows: int) -> None:
    inputs, cost = _nested(n_rows)
    first = pytensor.grad(cost, inputs, disconnected_inputs="ignore")
    second = pytensor.grad(sum((s**2).sum() for s in first), inputs, disconnected_inputs="ignore")
    function = pytensor.function(inputs, [cost, *first, *second], mode=PLAIN)
    x, rows, w = inputs
    y: Any = x
    for block in range(4):
        for index in range(n_rows):
            y = pt.sin(y * w) + rows[block + index]
        y = y * w
    plain = pytensor.grad(y**2, inputs, disconnected_inputs="ignore")
    again = pytensor.grad(sum((s**2).sum() for s in plain), inputs, disconnected_inputs="ignore")
    twin = pytensor.function(inputs, [y**2, *plain, *again], mode=PLAIN)
    values = 0.3, np.linspace(0, 1, 8), 0.9
    for found, expected in zip(function(*values), twin(*values), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_loops_that_follow_each_other_run_once() -> None:
    """The pullback of the first reads what that of the second returns."""
    x, w, u = pt.dvectors("x", "w", "u")

    def inner(name: str, start: Any, factor: Any) -> Any:
        step = lambda h, _, w: (pt.tanh(h * w), ())  # noqa: E731
        return loop.scan(step, start, None, factor, max_steps=5, name=name)[0]

    def outer(h: Any, _: Any, factors: Any) -> Any:
        return inner("second", inner("first", h, factors[0]), factors[1]), ()

    made: Any = loop.scan(outer, x, None, (w, u), max_steps=4, name="outer")[0]
    slopes = pytensor.grad((made**2).sum(), [w, u])
    names = Counter(
        node.op.name for node in walk(graph_of(*slopes).fgraph) if isinstance(node.op, TracedLoop)
    )
    assert (names["grad_of_first"], names["grad_of_second"]) == (1, 1)
    function = pytensor.function([x, w, u], slopes, mode=PLAIN)
    values = np.array([0.3, 0.4]), np.array([1.1, 0.9]), np.array([1.2, 0.8])
    y: Any = x
    for _ in range(4):
        for factor in (w, u):
            for _ in range(5):
                y = pt.tanh(y * factor)
    twin = pytensor.function([x, w, u], pytensor.grad((y**2).sum(), [w, u]), mode=PLAIN)
    for found, expected in zip(function(*values), twin(*values), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10)
