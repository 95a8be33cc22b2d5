"""`normalize-reads` and `trim-steps` do to TracedLoops what they do to Scans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, note, settings
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until
from test_trim_steps import FIRST_STEPS, KNOWN, LAST

from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.scan_view import is_loop, view_of
from scanopt_cli.ir.slots import SlotKind, SlotView
from scanopt_cli.loop import Body, TracedLoop
from scanopt_cli.loop.operator_base import LoopOperator
from support.evaluating import assert_same_outcomes, evaluator, has_unknown_shape
from support.generated.strategies import GeneratedScan, scan_graphs
from support.graph_building import arguments, graph_of, optimized, power, scan
from support.step_counts import check, noisy_walk, steps_of
from support.tiers import deep, examples

x = pt.dscalar("x")
n = pt.lscalar("n")
s, start = pt.dvectors("s", "start")

PASSES = "normalize-reads,trim-steps"
LESS = "min(n,max(n-{k},0))"


def turned(*outputs: Any) -> tuple[Graph, Graph]:
    """Return a graph, and the same of TracedLoops."""
    graph = graph_of(*outputs)
    loops, _ = optimized(graph, "scan-to-loop")
    return graph, loops


def loops_of(graph: Graph) -> list[SlotView]:
    found = [view_of(node) for node in graph.fgraph.toposort() if is_loop(node)]
    assert all(isinstance(view.op, LoopOperator) for view in found)
    return found


def steps_run(graph: Graph) -> list[str]:
    return list(map(steps_of, loops_of(graph)))


def trimmed(*outputs: Any, passes: str = PASSES) -> tuple[Graph, list[str]]:
    """Return a graph of TracedLoops after ``passes``, which keep its values, and their remarks."""
    graph, loops = turned(*outputs)
    work, remarks = optimized(loops, passes)
    check(graph, work)
    return work, remarks


def walk(steps: Any) -> Any:
    return scan(lambda y: y * 0.99 + 0.1, outputs_info=[x], n_steps=steps)


def fibonacci(steps: Any) -> Any:
    """States of two initial rows: their buffer is a row joined to a trace."""
    taps = {"initial": pt.stack([x, x + 1]), "taps": [-2, -1]}
    return scan(lambda b, a: a * 0.5 + b * 0.3, outputs_info=[taps], n_steps=steps)


def lagged(steps: Any) -> Any:
    """States of nine initial rows, a ring in one state: their buffer is a traced value."""
    taps = {"initial": pt.ones(9) * x, "taps": [-9, -1]}
    return scan(lambda b, a: a * 0.5 + b * 0.3, outputs_info=[taps], n_steps=steps)


READS: list[tuple[Any, Any]] = [
    *((read, n) for read, _ in FIRST_STEPS),
    *((read, 100) for read, _, _ in KNOWN),
    *((read, n) for read, _, _ in LAST),
    *((lambda xs, read=read: read(xs.owner.inputs[0]), 100) for read, _, _ in KNOWN),
]


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize(("read", "steps"), READS)
@pytest.mark.parametrize("states", [walk, fibonacci, lagged])
def test_cases_1_to_3_run_as_many_steps_as_a_scan(
    states: Callable[[Any], Any], read: Any, steps: Any
) -> None:
    graph, loops = turned(read(states(steps)))
    (scans, _), (work, _) = optimized(graph, PASSES), optimized(loops, PASSES)
    (expected,) = (steps_of(view_of(n)) for n in scans.fgraph.toposort() if is_loop(n))
    assert steps_run(work) == [expected]
    check(graph, work)


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize(("read", "steps"), READS)
def test_cases_1_to_3_of_a_batch(read: Any, steps: Any) -> None:
    """The rows are behind the axis of the batch."""
    batch = pt.dvector("batch")
    graph, loops = turned(vectorize_graph(read(walk(steps)), {x: batch}))
    (scans, _), (work, _) = optimized(graph, PASSES), optimized(loops, PASSES)
    (expected,) = (steps_of(view_of(n)) for n in scans.fgraph.toposort() if is_loop(n))
    assert steps_run(work) == [expected]
    check(graph, work, counts=(0, 1, 5, 30))


def test_case_1_of_a_loop_that_may_stop() -> None:
    xs = scan(lambda y: (y * 1.5, until(y > 3)), outputs_info=[x], n_steps=n)
    work, _ = trimmed(xs[2])
    assert steps_run(work) == ["min(3,n)"]


def traced(n_steps: Any, state: Any = x) -> list[Any]:
    """The last value of a state, its trace, and how many steps were run."""
    index, y = pt.lscalar("index"), state.type()
    body = Body(index=index, states=[y], next_states=[y * 0.5 + index])
    return TracedLoop.over(n_steps, body, [state], {})


@pytest.mark.parametrize("steps", [n, 40])
def test_twin_the_last_value_is_read(steps: Any) -> None:
    last, trace, _ = traced(steps)
    graph = graph_of(trace[:3], last)
    work, remarks = optimized(graph, PASSES)
    assert steps_run(work) == [str(steps)]
    assert remarks[-1].endswith(f"runs all {steps} steps: a value after the last step is read")
    check(graph, work)


def test_twin_the_generator_after_all_steps_is_read() -> None:
    ys, last = noisy_walk()
    _, loops = turned(ys[5], last)
    work, remarks = optimized(loops, PASSES)
    assert steps_run(work) == ["100"]
    assert "a value after the last step is read" in remarks[0]


def test_twin_how_many_steps_a_loop_ran_is_read() -> None:
    xs = scan(lambda y: (y * 1.5, until(y > 3)), outputs_info=[x], n_steps=n)
    work, remarks = trimmed(xs[2], xs.shape[0])
    assert steps_run(work) == ["n"]
    assert not remarks  # the length of the trace is not known


def test_twin_the_count_of_a_loop_that_may_stop() -> None:
    _, loops = turned(scan(lambda y: (y * 1.5, until(y > 3)), outputs_info=[x], n_steps=n)[2])
    (view,) = loops_of(loops)
    (count,) = view.counts
    counted = graph_of(*loops.outputs, count)
    work, remarks = optimized(counted, PASSES)
    assert steps_run(work) == ["n"]
    assert "a value after the last step is read" in remarks[0]
    check(counted, work)


@pytest.mark.parametrize("read", [lambda xs: xs[2], lambda xs: xs[:-1]])
def test_twin_rows_that_may_not_be_there(read: Callable[[Any], Any]) -> None:
    graph, loops = turned(
        read(scan(lambda a, y: y + a, sequences=[s], outputs_info=[x], n_steps=n))
    )
    work, remarks = optimized(loops, PASSES)
    assert steps_run(work) == ["n"]
    assert "one of its sequences may be too short" in remarks[0]
    check(graph, work)
    values = {"s": np.ones(3), "x": 0.5, "n": 5}
    data = arguments(loops, **values)
    outcomes = [evaluator(g.inputs, g.outputs)(data) for g in (loops, work)]
    assert isinstance(outcomes[0][0], IndexError)
    assert_same_outcomes(*outcomes)


@pytest.mark.parametrize("states", [walk, fibonacci])
def test_case_2_twins(states: Callable[[Any], Any]) -> None:
    for reads, steps, why in (
        (lambda xs: [xs[104]], 100, "a reader is out of bounds"),
        (lambda xs: [xs[-n:], xs[3]], 100, None),
        (lambda xs: [xs[:3], xs[-3:-1]], 0, None),
    ):
        graph, loops = turned(*reads(states(steps)))
        work, remarks = optimized(loops, PASSES)
        assert steps_run(work) == [str(steps)]
        assert [r.partition("steps: ")[2] for r in remarks] == ([why] if why else [])
        check(graph, work)


def test_case_3_of_a_trace_whose_rows_keep_their_shape() -> None:
    """PyTensor loses the shape of a trace of no steps, and a TracedLoop does not."""
    zs = scan(lambda a: [a * 0.9, a + 1], outputs_info=[start, None], n_steps=n)[1]
    loops, _ = optimized(graph_of(zs[:-1]), "scan-to-loop")
    work, _ = optimized(loops, PASSES)
    assert steps_run(work) == [LESS.format(k=1)]
    check(loops, work)


@pytest.mark.parametrize("steps", [n, 8])
@pytest.mark.parametrize("order", [1, 2])
def test_case_4_gradients_of_the_last_state(steps: Any, order: int) -> None:
    """A TracedLoop that reads a trace at its index reads as many rows as it has steps."""
    _, xs = power(steps)
    cost = xs[-1]
    for _ in range(order):
        cost = pt.grad(cost, xs.owner.inputs[0].owner.inputs[1].owner.inputs[1].owner.inputs[0])
    graph = graph_of(cost)
    way = "clean-slices,mit-mot-to-sit-sot,clean-slices"
    before, _ = optimized(graph, way)
    loops, _ = optimized(before, "scan-to-loop")
    work, _ = optimized(loops, f"clean-slices,{PASSES}")
    runs = steps_run(work)
    least = "7" if steps == 8 else LESS.format(k=1)
    assert least in runs
    check(graph, work, counts=(1, 2, 5))


def reading(rows: Any, read: Callable[[Any, Any], Any], n_steps: Any) -> Any:
    """The trace of a loop that reads ``rows`` in each step."""
    index, inner = pt.lscalar("index"), rows.type()
    body = Body(index=index, constants=[inner], traced=[read(inner, index)])
    return TracedLoop.over(n_steps, body, [], {inner: rows})[0]


@pytest.mark.parametrize("steps", [n, 8])
@pytest.mark.parametrize(
    ("read", "least"),
    [
        (lambda rows, i: rows[i], 3),
        (lambda rows, i: rows[i + 1], 4),
        (lambda rows, i: rows[i] * rows[i + 2], 5),
        (lambda rows, i: rows[i] * rows.sum(), None),
        (lambda rows, i: rows[2 * i], None),
        (lambda rows, i: rows[i - 1], None),
    ],
)
def test_case_4_rows_at_the_index(read: Any, least: int | None, steps: Any) -> None:
    trace = traced(steps)[1][1:]
    graph = graph_of(reading(trace, read, 3 if steps == 8 else n - 6))
    work, _ = optimized(graph, PASSES)
    if steps == 8:
        expected = str(8 if least is None else least)
    else:
        expected = "n" if least is None else LESS.format(k=9 - least)
    assert expected in steps_run(work)
    check(graph, work, counts=(6, 7, 9, 30))


@pytest.mark.parametrize(("steps", "least"), [(5, "3"), (9, "9")])
def test_case_2_rows_of_a_batch_that_are_there_or_not(steps: int, least: str) -> None:
    rows = pt.dmatrix("rows", shape=(None, 8))
    trace = reading(s, lambda inner, index: inner[index] * 2, steps)
    graph = graph_of(vectorize_graph(trace[2], {s: rows}))
    work, remarks = optimized(graph, PASSES)
    assert steps_run(work) == [least]
    assert any("one of its sequences may be too short" in r for r in remarks) == (steps == 9)
    data = arguments(graph, rows=np.ones((2, 8)))
    assert_same_outcomes(*(evaluator(g.inputs, g.outputs)(data) for g in (graph, work)))


def test_normalized_case_1() -> None:
    for states in (walk, fibonacci):
        graph, loops = turned(states(n)[n - 1], states(n).owner.inputs[0][: n - 1])
        work, remarks = optimized(loops, "normalize-reads")
        assert remarks
        check(graph, work)
    _, loops = turned(walk(n)[n - 1])
    work, _ = optimized(loops, "normalize-reads,trace-to-last")
    (view,) = loops_of(work)
    (state,) = view.of_kind(SlotKind.STATE)
    assert work.fgraph.clients[state.last]
    assert not work.fgraph.clients[state.output]


def test_normalized_case_1_of_a_batch() -> None:
    graph, loops = turned(vectorize_graph(walk(n)[n - 1], {x: pt.dvector("batch")}))
    work, remarks = optimized(loops, "normalize-reads")
    assert remarks
    check(graph, work)


def test_normalized_case_1_twin_further_from_the_end() -> None:
    """``xs[n-2]`` of one row is its only row, ``xs[-2]`` an error."""
    assert not trimmed(walk(n)[n - 2], passes="normalize-reads")[1]


@pytest.mark.parametrize("states", [walk, fibonacci, lagged])
def test_normalized_case_2(states: Callable[[Any], Any]) -> None:
    ys = states(n)
    work, _ = trimmed(ys.shape[0] * 1.0, pt.zeros_like(ys), ys.shape, passes="normalize-reads")
    assert not loops_of(work)


def test_normalized_case_2_the_count() -> None:
    last, _, count = traced(n)
    graph = graph_of(last, count * 2)
    work, _ = optimized(graph, "normalize-reads")
    (node,) = (node for node in work.fgraph.toposort() if is_loop(node))
    assert work.outputs[1].owner.inputs[0] is node.inputs[0]
    check(graph, work)


def test_normalized_case_2_twin_a_loop_that_may_stop() -> None:
    xs = scan(lambda y: (y * 1.5, until(y > 3)), outputs_info=[x], n_steps=n)
    _, loops = turned(xs.shape[0], pt.zeros_like(xs), xs[n - 1])
    work, remarks = optimized(loops, "normalize-reads")
    assert not remarks
    check(loops, work)


@pytest.mark.parametrize("steps", [n, 30])
@pytest.mark.parametrize("condition", [False, True])
def test_normalized_case_3(steps: Any, condition: bool) -> None:
    def step(y: Any) -> Any:
        return (y * 1.1, until(y > 3)) if condition else y * 1.1

    for state in (x, start):
        if condition and state is start:
            continue
        joined = pt.concatenate([state[None], scan(step, outputs_info=[state], n_steps=steps)])
        graph, loops = turned(joined)
        work, _ = optimized(loops, "normalize-reads")
        (view,) = loops_of(work)
        assert work.outputs[0] is view.of_kind(SlotKind.STATE)[0].output
        check(graph, work)


@pytest.mark.parametrize(
    "joined",
    [
        lambda first, steps: [first[None] * 2, steps],
        lambda first, steps: [first[None], steps, first[None]],
        lambda first, steps: [steps, first[None]],
        lambda first, steps: [first[None].astype("float32"), steps],
    ],
)
def test_normalized_case_3_twins(joined: Callable[[Any, Any], list[Any]]) -> None:
    assert not trimmed(pt.concatenate(joined(x, walk(n))), passes="normalize-reads")[1]


@pytest.mark.parametrize(
    ("states", "mode"),
    [
        (walk, "FAST_RUN"),
        (fibonacci, "FAST_RUN"),
        *deep((walk, "NUMBA"), (fibonacci, "NUMBA")),
    ],
)
def test_compiled(states: Callable[[Any], Any], mode: str) -> None:
    ys = states(n)
    cost = ys[-20:-10].sum() + ys[-5] * ys[2:-4].sum()
    graph = graph_of(cost, pt.grad(cost, x))
    way = "clean-slices,mit-mot-to-sit-sot,clean-slices,scan-to-loop"
    work, _ = optimized(graph, f"{way},clean-slices,{PASSES},trace-to-last")
    assert LESS.format(k=4) in steps_run(work)
    wanted = pytensor.function(graph.inputs, graph.outputs, mode="FAST_COMPILE")
    found = pytensor.function(work.inputs, work.outputs, mode=mode)
    for steps in (5, 30):
        data = arguments(graph, x=0.7, n=steps)
        np.testing.assert_allclose(found(*data), wanted(*data), rtol=1e-12)


@settings(max_examples=examples(6, 100))
@given(generated=scan_graphs())
def test_values_stay(generated: GeneratedScan) -> None:
    """What a graph computes, its TracedLoops compute with the steps that are read."""
    graph = from_io(generated.inputs, generated.outputs)
    loops, _ = optimized(graph, "scan-to-loop")
    expected = evaluator(graph.inputs, graph.outputs)
    outcomes = [expected(data) for data in generated.arguments]
    for passes in (PASSES, "clean-slices,normalize-reads,peel-first-step,trim-steps,trace-to-last"):
        work, remarks = optimized(loops, passes)
        note("\n".join(remarks))
        actual = evaluator(work.inputs, work.outputs)
        for data, olds in zip(generated.arguments, outcomes, strict=True):
            news = actual(data)
            # An error in a step that nobody reads may be lost.
            wanted = [
                new if isinstance(old, Exception) or has_unknown_shape(old, new) else old
                for old, new in zip(olds, news, strict=True)
            ]
            assert_same_outcomes(wanted, news)
        again, _ = optimized(work, passes)
        assert digest(again.fgraph) == digest(work.fgraph)
