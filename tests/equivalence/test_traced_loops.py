"""Two TracedLoops are the same if they differ in nothing but the order of their slots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Variable

from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.graph import from_io
from scanopt_cli.loop import Body, TracedLoop
from support.graph_building import graph_of, optimized

x, w = pt.dscalars("x", "w")
v = pt.dvector("v")


def outputs(
    order: tuple[int, int] = (0, 1),
    constants: tuple[int, int] = (0, 1),
    values: tuple[int, int] = (0, 1),
    change: Callable[[Any], Any] = lambda y: y,
    bound: float = 9.0,
) -> list[Variable]:
    """Return the last values, traces, traced values and count, whatever the order of the slots."""
    index = pt.lscalar("index")
    states, given = [pt.dscalar(), pt.dscalar()], [pt.dvector(), pt.dscalar()]
    a, b = states
    rows, factor = given
    following = [a * factor + rows[index], change(b) + a]
    traced = [a * b, a - factor]
    body = Body(
        index=index,
        states=[states[i] for i in order],
        constants=[given[i] for i in constants],
        next_states=[following[i] for i in order],
        traced=[traced[i] for i in values],
        condition=following[0] < bound,
    )
    op = TracedLoop.from_body(body)
    made: Any = op(
        v.shape[0],
        *([x, w][i] for i in order),
        *([v, w][i] for i in constants),
        return_list=True,
    )
    last, traces, others, n_done = op.split_outputs(made)

    def sorted_by(order: tuple[int, int], found: list[Variable]) -> list[Variable]:
        return [found[order.index(i)] for i in range(2)]

    return [*sorted_by(order, last), *sorted_by(order, traces), *sorted_by(values, others), n_done]


def digest_of(made: list[Variable]) -> str:
    return digest(from_io([x, w, v], made))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("constants", [(0, 1), (1, 0)])
@pytest.mark.parametrize("values", [(0, 1), (1, 0)])
def test_the_order_of_slots_does_not_count(
    order: tuple[int, int], constants: tuple[int, int], values: tuple[int, int]
) -> None:
    assert digest_of(outputs(order, constants, values)) == digest_of(outputs())


@pytest.mark.parametrize(
    "other", [outputs(change=lambda y: y * 2), outputs(bound=8.0), outputs()[::-1]]
)
def test_other_loops_differ(other: list[Variable]) -> None:
    assert digest_of(other) != digest_of(outputs())


def test_each_output_has_a_key_of_its_own() -> None:
    made = outputs()
    assert len({digest_of([one]) for one in made}) == len(made)


def test_equal_loops_are_merged() -> None:
    graph = graph_of(*outputs(), *outputs((1, 0), (1, 0), (1, 0)))
    work, _ = optimized(graph, "merge-equal")
    assert sum(isinstance(node.op, TracedLoop) for node in work.fgraph.apply_nodes) == 1


def test_a_loop_and_the_scan_that_it_was_differ() -> None:
    graph = graph_of(*outputs())
    work, _ = optimized(graph, "loop-to-scan")
    assert digest(work) != digest(graph)
