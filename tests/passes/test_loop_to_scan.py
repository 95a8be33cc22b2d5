"""`loop-to-scan`: loops of states and traces become Scans again, and compute the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.scan.op import Scan

from scanopt_cli import loop
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.loop import Loop, TracedLoop
from scanopt_cli.loop.body import Body
from support.evaluating import PLAIN
from support.graph_building import (
    assert_same_values,
    graph_of,
    labels,
    only_scan,
    optimized,
    rid_of,
    scan,
)

x, w = pt.dscalars("x", "w")
n = pt.lscalar("n")
v = pt.dvector("v")
m = pt.dmatrix("m")


def turned(graph: Graph) -> Graph:
    return rid_of(TracedLoop, graph, "loop-to-scan")


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_cases_1_2_and_3(steps: int) -> None:
    last, (trace, other) = loop.scan(
        lambda s, row, c: (s * c + row, (s, row - c)), x, v, w, max_steps=n
    )
    graph = graph_of(last, trace, other)
    work = turned(graph)
    assert sorted(labels(only_scan(work.fgraph))) == [
        "nit_sot[0]",
        "nit_sot[1]",
        "non_seq[0]",
        "seq[0]",
        "sit_sot[0]",
    ]
    assert_same_values(graph, work, x=0.5, w=2.0, v=np.arange(5.0), n=steps)


@pytest.mark.parametrize("steps", [1, 5])
def test_the_trace_of_a_state_is_the_buffer(steps: int) -> None:
    made = loop_of([x], lambda index, s: [s * 2 + index], n)
    graph = graph_of(*made)
    work = turned(graph)
    assert labels(only_scan(work.fgraph)) == ["seq[0]", "sit_sot[0]"]
    assert_same_values(graph, work, x=0.5, n=steps)


def loop_of(initial: Any, step: Any, n_steps: Any) -> list[Any]:
    """Return the outputs of a TracedLoop without constants."""
    index, states = pt.lscalar("index"), [start.type() for start in initial]
    body = Body(index=index, states=states, next_states=step(index, *states))
    return TracedLoop.over(n_steps, body, initial, {})


def test_rows_ahead_of_a_constant_are_a_sequence() -> None:
    index, rows = pt.lscalar("index"), pt.dvector()
    state = pt.dscalar()
    body = Body(index=index, states=[state], next_states=[state * rows[index] + rows[index + 2]])
    outputs = TracedLoop.over(v.shape[0] - 2, body, [x], {rows: v})
    graph = graph_of(*outputs)
    work = turned(graph)
    assert labels(only_scan(work.fgraph)) == ["seq[0]", "seq[1]", "sit_sot[0]"]
    assert_same_values(graph, work, x=0.5, v=np.arange(7.0))


@pytest.mark.parametrize(
    ("read", "steps"),
    [
        (lambda rows, index: rows[index - 1], v.shape[0]),
        (lambda rows, index: rows[index + 1], v.shape[0]),
        (lambda rows, index: rows[index] + rows.sum(), v.shape[0]),
        (lambda rows, index: rows[2 * index], v.shape[0] // 2),
        (lambda rows, index: rows[index], n),
    ],
)
def test_twin_other_reads_of_a_constant(read: Any, steps: Any) -> None:
    index, rows = pt.lscalar("index"), pt.dvector()
    state = pt.dscalar()
    body = Body(index=index, states=[state], next_states=[state + read(rows, index)])
    graph = graph_of(*TracedLoop.over(steps, body, [x], {rows: v}))
    work = turned(graph)
    assert "non_seq[0]" in labels(only_scan(work.fgraph))
    values: dict[str, Any] = {"x": 0.5, "v": np.arange(6.0)}
    assert_same_values(graph, work, **values, **({"n": 4} if steps is n else {}))


@pytest.mark.parametrize(
    "read", [lambda rows, index: rows[index, 1], lambda rows, index: rows[index : index + 1].sum()]
)
def test_twin_parts_of_rows_of_a_constant(read: Any) -> None:
    index, rows, state = pt.lscalar("index"), pt.dmatrix(), pt.dscalar()
    body = Body(index=index, states=[state], next_states=[state + read(rows, index)])
    graph = graph_of(*TracedLoop.over(m.shape[0], body, [x], {rows: m}))
    work = turned(graph)
    assert "non_seq[0]" in labels(only_scan(work.fgraph))
    assert_same_values(graph, work, x=0.5, m=np.arange(6.0).reshape(3, 2))


@pytest.mark.parametrize("bound", [0.1, 5.0, 1e9])
def test_cases_4_and_5(bound: float) -> None:
    index, state, limit = pt.lscalar("index"), pt.dscalar(), pt.dscalar()
    following = state * 2 + index
    body = Body(
        index=index,
        states=[state],
        next_states=[following],
        traced=[following - 1],
        condition=following < limit,
    )
    graph = graph_of(*TracedLoop.over(12, body, [x], {limit: w}))
    work = turned(graph)
    assert_same_values(graph, work, x=0.5, w=bound)
    assert only_scan(work.fgraph).is_while


def test_a_loop_of_as_many_steps_as_it_takes() -> None:
    """No buffer has room for all steps of which there may be."""
    last = loop.while_loop(lambda s: s < 100.0, lambda s: s * 2, x)
    graph = graph_of(last)
    work = turned(graph)
    assert_same_values(graph, work, x=0.5)


@pytest.mark.parametrize("bound", [None, 0.5])
@pytest.mark.parametrize("steps", [0, 3])
def test_loops_without_traces(bound: float | None, steps: int) -> None:
    index, state, factor = pt.lscalar("index"), pt.dscalar("state"), pt.dscalar("factor")
    body = Body(
        index=index,
        states=[state],
        constants=[factor],
        next_states=[state * factor + index],
        condition=None if bound is None else state < bound,
    )
    (last,) = Loop.from_body(body, name="f").make_node(n, x, w).outputs
    graph = graph_of(last)
    work = rid_of(Loop, graph, "loop-to-scan")
    assert only_scan(work.fgraph).name == "f"
    assert_same_values(graph, work, x=0.5, w=2.0, n=steps)


def test_generators_are_untraced_states() -> None:
    rng = pytensor.shared(np.random.default_rng(5))
    (_, last), draws = loop.scan(
        lambda carry, _: (lambda new, draw: ((new, carry[1] + draw), draw))(
            *pt.random.normal(rng=carry[0]).owner.outputs
        ),
        (rng, 0.0),
        max_steps=4,
    )
    graph = graph_of(last, draws)
    work = turned(graph)
    assert "untraced[0]" in labels(only_scan(work.fgraph))
    one, other = (pytensor.function(g.inputs, g.outputs, mode=PLAIN)() for g in (graph, work))
    for old, new in zip(one, other, strict=True):
        np.testing.assert_array_equal(old, new)


def test_twin_the_trace_of_a_generator() -> None:
    rng = pytensor.shared(np.random.default_rng(5))
    made = loop_of([rng], lambda _, r: [pt.random.normal(rng=r).owner.outputs[0]], 3)
    work, remarks = optimized(graph_of(made[1]), "loop-to-scan")
    assert not any(isinstance(node.op, Scan) for node in walk(work.fgraph))
    assert "a trace is read whose rows are no arrays" in remarks[0]


def test_twin_a_trace_for_which_there_is_no_memory() -> None:
    made = loop_of([x], lambda _, s: [pt.sin(s)], 2**48)
    _, remarks = optimized(graph_of(made[1][3]), "loop-to-scan")
    assert remarks == [
        "missed TracedLoop: stays a TracedLoop: a trace is read, and the loop may run more steps "
        "than memory holds"
    ]


def test_loops_in_loops_come_back() -> None:
    def outer(row: Any) -> Any:
        return scan(lambda s, y: y * 0.5 + s, sequences=[row], outputs_info=[x * 0 + 1.0])[-1]

    graph = graph_of(scan(outer, sequences=[m]))
    work, _ = optimized(graph, "scan-to-loop")
    back = turned(work)
    assert sum(isinstance(node.op, Scan) for node in walk(back.fgraph)) == 2
    assert_same_values(graph, back, m=np.arange(6.0).reshape(2, 3), x=2.0)


@pytest.mark.parametrize("read", [lambda ys: ys[-1], lambda ys: (ys**2).sum()])
@pytest.mark.parametrize("order", [1, 2])
def test_derivatives_of_what_comes_back(read: Any, order: int) -> None:
    ys = scan(lambda y, c: pt.sin(y) * c, outputs_info=[x], non_sequences=[w], n_steps=5)
    graph = graph_of(read(ys))
    there, _ = optimized(graph, "scan-to-loop")
    back = turned(there)

    def derivative(of: Graph) -> Graph:
        inputs = list(of.inputs)
        cost = of.outputs[0]
        for _ in range(order):
            cost = sum(pytensor.grad(cost, inputs), pt.constant(0.0))
        return from_io(inputs, [cost])

    assert_same_values(derivative(graph), derivative(back), x=0.5, w=1.5)
