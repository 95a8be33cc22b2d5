"""`trace-to-last`: the last row of a trace is the last value of the state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest

from scanopt_cli.ir.graph import Graph
from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.ir.step_check import is_step_check, with_step_check
from scanopt_cli.loop import Body, TracedLoop
from scanopt_cli.loop.operator_base import LoopView
from support.graph_building import assert_same_values, graph_of, optimized, outputs_of, scan

x, w = pt.dscalars("x", "w")
n = pt.lscalar("n")
v = pt.dvector("v")
m = pt.dmatrix("m")


def trace_of(state: Any, n_steps: Any) -> Any:
    index, inner = pt.lscalar("index"), state.type()
    body = Body(index=index, states=[inner], next_states=[inner * 0.5 + index])
    return TracedLoop.over(n_steps, body, [state], {})[1]


def traced(step: Any, n_steps: Any) -> Any:
    index = pt.lscalar("index")
    return TracedLoop.over(n_steps, Body(index=index, traced=[step(index)]), [], {})[0]


def read_outputs(graph: Graph) -> list[str]:
    """Return what is read of the one loop of a graph: ``last``, ``trace``, ``traced``."""
    (node,) = (n for n in graph.fgraph.apply_nodes if isinstance(n.op, TracedLoop))
    view = LoopView.of(node)
    found = []
    for slot in view.outputs():
        if graph.fgraph.clients.get(slot.last):
            found.append("last")
        if graph.fgraph.clients[slot.outer_output]:
            found.append("trace" if slot.kind is SlotKind.STATE else "traced")
    return found


@pytest.mark.parametrize("steps", [0, 1, 4])
@pytest.mark.parametrize(
    "read", [lambda t: t[-1], lambda t: t[-1:], lambda t: t[n], lambda t: t[-1] * t[n]]
)
@pytest.mark.parametrize("state", [x, v])
def test_case_1(read: Any, steps: int, state: Any) -> None:
    graph = graph_of(read(trace_of(state, n)))
    work, _ = optimized(graph, "trace-to-last")
    assert read_outputs(work) == ["last"]
    assert_same_values(graph, work, x=0.5, v=np.arange(3.0), n=steps)


def test_case_1_with_an_index_of_the_row() -> None:
    graph = graph_of(trace_of(v, 3)[-1, 1])
    work, _ = optimized(graph, "trace-to-last")
    assert read_outputs(work) == ["last"]
    assert_same_values(graph, work, v=np.arange(3.0))


def test_case_1_leaves_other_readers() -> None:
    trace = trace_of(x, 4)
    graph = graph_of(trace[-1], trace.sum())
    work, _ = optimized(graph, "trace-to-last")
    assert read_outputs(work) == ["last", "trace"]
    assert_same_values(graph, work, x=0.5)


def test_case_2() -> None:
    graph = graph_of(trace_of(x, 4)[1:][-1], trace_of(x, 4)[1:][3])
    work, _ = optimized(graph, "merge-equal,trace-to-last")
    assert read_outputs(work) == ["last"]
    assert_same_values(graph, work, x=0.5)


def checks(graph: Graph) -> int:
    return sum(is_step_check(node) for node in graph.fgraph.apply_nodes)


@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("is_checked", [False, True])
def test_case_2_with_a_check_where_there_may_be_no_step(steps: int, is_checked: bool) -> None:
    row = trace_of(x, n)[1:][-1]
    graph = graph_of(with_step_check(row, n) if is_checked else row)
    work, _ = optimized(graph, "trace-to-last")
    assert read_outputs(work) == ["last"]
    assert checks(work) == 1
    assert_same_values(graph, work, x=0.5, n=steps)


def test_no_check_where_there_is_a_step() -> None:
    work, _ = optimized(graph_of(trace_of(x, 4)[1:][-1]), "trace-to-last")
    assert not checks(work)


def test_no_check_where_none_is_wanted() -> None:
    """JAX cannot raise errors: of no steps, the last row is the initial value."""
    graph = graph_of(trace_of(x, n)[1:][-1])
    work, _ = optimized(graph, "trace-to-last{check=false}")
    assert read_outputs(work) == ["last"]
    assert not checks(work)
    assert outputs_of(work, x=0.5, n=0) == [0.5]


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_case_2_a_slice_has_no_row_where_there_is_no_step(steps: int) -> None:
    graph = graph_of(trace_of(v, n)[1:][-1:])
    work, _ = optimized(graph, "trace-to-last")
    assert read_outputs(work) == ["last"]
    assert not checks(work)
    assert_same_values(graph, work, v=np.arange(3.0), n=steps)


def test_case_3() -> None:
    index, inner = pt.lscalar("index"), pt.dvector()
    body = Body(index=index, traced=[inner * index, inner + 1])
    outputs = TracedLoop.over(4, body, [], {inner: v})
    graph = graph_of(outputs[0][-1], outputs[0][-1, 1], outputs[1].sum())
    work, _ = optimized(graph, "trace-to-last")
    assert read_outputs(work) == ["last", "traced"]
    assert_same_values(graph, work, v=np.arange(3.0))


def test_twin_of_case_3_other_rows_are_read() -> None:
    trace = traced(lambda index: index * 2.0, 4)
    graph = graph_of(trace[-1], trace[1])
    work, _ = optimized(graph, "trace-to-last")
    assert read_outputs(work) == ["traced"]


@pytest.mark.parametrize("steps", [0, 2])
def test_case_3_with_a_check_where_there_may_be_no_step(steps: int) -> None:
    graph = graph_of(traced(lambda index: index * 2.0, n)[-1])
    work, _ = optimized(graph, "trace-to-last")
    assert read_outputs(work) == ["last"]
    assert checks(work) == 1
    assert_same_values(graph, work, n=steps)


@pytest.mark.parametrize("row", [0, 2])
def test_twin_other_rows(row: int) -> None:
    graph = graph_of(trace_of(x, 4)[row])
    work, _ = optimized(graph, "trace-to-last")
    assert read_outputs(work) == ["trace"]


def test_twin_the_first_row() -> None:
    graph = graph_of(trace_of(x, n)[::-1][-1])
    work, _ = optimized(graph, "trace-to-last")
    assert read_outputs(work) == ["trace"]


@pytest.mark.parametrize("bound", [0.1, 1e9])
def test_twin_a_row_by_number_where_a_condition_ends_the_loop(bound: float) -> None:
    index, state, limit = pt.lscalar("index"), pt.dscalar(), pt.dscalar()
    new = state * 2
    body = Body(index=index, states=[state], next_states=[new], condition=new < limit)
    _, trace, _ = TracedLoop.over(4, body, [x], {limit: w})
    work, _ = optimized(graph_of(trace[4]), "trace-to-last")
    assert read_outputs(work) == ["trace"]
    graph = graph_of(trace[-1])
    work, _ = optimized(graph, "trace-to-last")
    assert read_outputs(work) == ["last"]
    assert_same_values(graph, work, x=0.5, w=bound)


def test_after_scan_to_loop_nothing_but_last_values_is_carried() -> None:
    graph = graph_of(scan(lambda y: y * w + 1, outputs_info=[x], n_steps=6)[-1])
    work, _ = optimized(graph, "scan-to-loop,trace-to-last")
    assert read_outputs(work) == ["last"]
    assert_same_values(graph, work, x=0.5, w=2.0)
