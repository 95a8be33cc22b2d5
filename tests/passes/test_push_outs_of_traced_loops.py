"""`push-out`, `push-out-products` and `push-out-sums` do to TracedLoops what they do to Scans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given
from pytensor.graph.basic import Variable
from pytensor.scan.utils import until
from pytensor.tensor.math import Dot

from scanopt_cli import loop
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.ir.scan_view import is_loop, view_of
from scanopt_cli.ir.slots import SlotKind, SlotView
from scanopt_cli.loop.operator_base import LoopOperator
from support.evaluating import assert_same_outcomes, evaluate
from support.generated.strategies import GeneratedScan, scan_graphs
from support.graph_building import arguments, assert_same_values, graph_of, optimized, scan
from support.tiers import deep

x, w = pt.dscalars("x", "w")
n = pt.lscalar("n")
s, t = pt.dvectors("s", "t")
xs, us = pt.dmatrices("xs", "us")
weights, start = pt.dmatrices("weights", "start")
h = pt.dvector("h")

PUSH_OUTS = "push-out-products,push-out-sums,push-out,remove-unused"
ROWS = "computes elementwise arithmetic of sequences before the loop"


def values(steps: int) -> dict[str, Any]:
    draw = np.random.default_rng(steps)
    return {
        "x": 0.3,
        "w": -0.4,
        "n": steps,
        "s": draw.normal(size=steps),
        "t": draw.normal(size=steps),
        "xs": draw.normal(size=(steps, 3)),
        "us": draw.normal(size=(steps, 2)),
        "weights": draw.normal(size=(3, 2)),
        "start": draw.normal(size=(3, 2)),
        "h": draw.normal(size=2),
    }


def turned(*outputs: Variable) -> tuple[Graph, Graph]:
    """Return a graph, and the same of a TracedLoop."""
    graph = graph_of(*outputs)
    loops, _ = optimized(graph, "scan-to-loop")
    return graph, loops


def pushed(loops: Graph, passes: str = PUSH_OUTS) -> tuple[Graph, list[str]]:
    work, remarks = optimized(loops, passes)
    return work, [r.partition(": ")[2] for r in remarks if "removed" not in r]


def only_loop(graph: Graph) -> SlotView:
    (node,) = (node for node in graph.fgraph.toposort() if is_loop(node))
    assert isinstance(node.op, LoopOperator)
    return view_of(node)


def ops_inside(graph: Graph) -> list[Any]:
    return [core_op(node.op) for node in only_loop(graph).op.fgraph.toposort()]


def network(product: Callable[[Any, Any], Any]) -> Any:
    """The states of a recurrent network, whose input is multiplied by weights."""
    return scan(
        lambda a, h, weights: pt.tanh(product(a, weights) + h),
        sequences=[xs],
        outputs_info=[h],
        non_sequences=[weights],
    )


MOVED: dict[str, tuple[Callable[[], Any], str, Callable[[Any], bool]]] = {
    "an invariant": (
        lambda: scan(lambda y, w: y * pt.exp(w), outputs_info=[x], non_sequences=[w], n_steps=n),
        "moved 1 invariant node before the loop",
        lambda op: op == pt.exp,
    ),
    "rows": (
        lambda: scan(lambda a, y: y + pt.exp(a) * 2, sequences=[s], outputs_info=[x]),
        ROWS,
        lambda op: op == pt.exp,
    ),
    "rows of two arrays": (
        lambda: scan(lambda a, b, y: y + pt.exp(a) * b.sum(), sequences=[s, xs], outputs_info=[x]),
        ROWS,
        lambda op: op == pt.exp,
    ),
    "rows ahead": (
        lambda: scan(
            lambda a, b, y: y + pt.exp(a + b),
            sequences=[{"input": s, "taps": [0, 1]}],
            outputs_info=[x],
        ),
        ROWS,
        lambda op: op == pt.exp,
    ),
    "terms": (
        lambda: scan(
            lambda a, y, w: pt.add(y, a, w), sequences=[s], outputs_info=[x], non_sequences=[w]
        ),
        ROWS,
        lambda op: False,
    ),
    "a while loop": (
        lambda: scan(lambda a, y: (y + pt.exp(a), until(y > 4)), sequences=[s], outputs_info=[x]),
        ROWS,
        lambda op: op == pt.exp,
    ),
    "products": (
        lambda: network(lambda a, weights: a @ weights),
        "multiplies all rows of `xs` by a matrix before the loop",
        lambda op: isinstance(op, Dot),
    ),
    "products of columns": (
        lambda: network(lambda a, weights: weights.T @ a),
        "multiplies all rows of `xs` by a matrix before the loop",
        lambda op: isinstance(op, Dot),
    ),
    "a sum of outer products": (
        lambda: scan(
            lambda a, b, total: total + a[:, None] * b[None],
            sequences=[xs, us],
            outputs_info=[start],
        )[-1],
        "summed `start` in a matrix product after the loop",
        lambda op: False,
    ),
    "a sum of products of what a step computes": (
        lambda: [
            states[-1]
            for states in scan(
                lambda a, h, total: (pt.tanh(h + a.sum()), total + a[:, None] * h[None]),
                sequences=[xs],
                outputs_info=[h, start],
            )
        ],
        "summed `start` in a matrix product after the loop",
        lambda op: False,
    ),
}


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("steps", [0, 1, 4])
@pytest.mark.parametrize("name", MOVED)
def test_what_needs_no_loop_leaves_it(name: str, steps: int) -> None:
    build, remark, is_moved = MOVED[name]
    built = build()
    graph, loops = turned(*(built if isinstance(built, list) else [built]))
    loops, _ = optimized(loops, "trace-to-last{check=false}") if "sum" in name else (loops, [])
    work, remarks = pushed(loops)
    assert remark in remarks
    if any(is_loop(node) for node in work.fgraph.toposort()):
        assert not any(map(is_moved, ops_inside(work)))
    data = arguments(graph, **values(steps))
    before, after = (evaluate(g.inputs, g.outputs, data) for g in (loops, work))
    assert_same_outcomes(before, after)


@pytest.mark.parametrize("name", ["rows ahead", *deep("products", "a sum of outer products")])
def test_compiled_by_numba(name: str) -> None:
    build, _, _ = MOVED[name]
    graph, loops = turned(build())
    work, _ = pushed(loops)
    for steps in (1, 4):
        data = arguments(graph, **values(steps))
        wanted = evaluate(graph.inputs, graph.outputs, data)
        found = pytensor.function(work.inputs, work.outputs, mode="NUMBA")(*data)
        np.testing.assert_allclose(found[0], np.asarray(wanted[0]), rtol=1e-12)


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_a_loop_that_is_a_map_is_not_needed(steps: int) -> None:
    graph, loops = turned(*scan(lambda a, b: [pt.exp(a) * b, a], sequences=[s, t]))
    work, remarks = pushed(loops)
    assert remarks == [ROWS]
    assert not any(is_loop(node) for node in work.fgraph.toposort())
    assert_same_values(graph, work, **values(steps))


def test_how_many_steps_a_map_has_run_is_known() -> None:
    trace, n_done = _hand_written(lambda step, rows: pt.exp(rows[step]))
    work, _ = pushed(graph_of(trace, n_done))
    assert not any(is_loop(node) for node in work.fgraph.toposort())
    found = evaluate(work.inputs, work.outputs, arguments(work, s=np.ones(4)))
    assert [np.shape(found[0]), int(found[1])] == [(4,), 4]


def _hand_written(read: Callable[[Any, Any], Any], n_steps: Any = None) -> list[Variable]:
    """The traces of a loop of a traced value and no state, and its count."""
    step, rows = pt.lscalar("step"), s.type()
    body = loop.Body(index=step, constants=[rows], traced=[read(step, rows)])
    steps = s.shape[0] if n_steps is None else n_steps
    return loop.TracedLoop.over(steps, body, [], {rows: s})


LEFT: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "rows that may not be there": (lambda i, rows: pt.exp(rows[i]), n),
    "rows that may not be there, ahead": (lambda i, rows: pt.exp(rows[i + 1]), None),
    "rows behind": (lambda i, rows: pt.exp(rows[i - 1]), None),
    "rows from the last on": (lambda i, rows: pt.exp(rows[rows.shape[0] - 1 - i]), None),
    "every other row": (lambda i, rows: pt.exp(rows[2 * i]), s.shape[0] // 2),
}


@pytest.mark.parametrize("name", LEFT)
def test_must_not_fire(name: str) -> None:
    read, n_steps = LEFT[name]
    graph = graph_of(_hand_written(read, n_steps)[0])
    work, remarks = pushed(graph)
    assert ROWS not in remarks
    assert any(op == pt.exp for op in ops_inside(work))
    for steps in (0, 3):
        data = arguments(graph, s=np.arange(4.0), n=steps)
        assert_same_outcomes(
            evaluate(graph.inputs, graph.outputs, data), evaluate(work.inputs, work.outputs, data)
        )


def test_must_not_multiply_rows_that_may_not_be_there() -> None:
    step, rows, matrix, state = pt.lscalar("step"), xs.type(), weights.type(), h.type()
    body = loop.Body(
        index=step,
        states=[state],
        next_states=[pt.tanh(rows[step] @ matrix + state)],
        constants=[rows, matrix],
    )
    last, *_ = loop.TracedLoop.over(n, body, [h], {rows: xs, matrix: weights})
    work, remarks = pushed(graph_of(last))
    assert remarks[0] == (
        "keeps the product of a row of `xs` in the loop: a sequence is not proved to be as long as "
        "the loop has steps"
    )
    assert any(isinstance(op, Dot) for op in ops_inside(work))


def test_a_sum_whose_trace_is_read_stays() -> None:
    totals = scan(
        lambda a, b, total: total + a[:, None] * b[None], sequences=[xs, us], outputs_info=[start]
    )
    _, loops = turned(totals)
    work, remarks = pushed(loops)
    assert any("is read elsewhere" in remark or "summed" not in remark for remark in remarks)
    assert only_loop(work).of_kind(SlotKind.STATE)


@given(scan_graphs(while_loops=False, blockwise=False, gradients=False))
def test_values_stay(generated: GeneratedScan) -> None:
    graph = from_io(generated.inputs, generated.outputs)
    loops, _ = optimized(graph, "remove-unused,scan-to-loop")
    work, _ = optimized(loops, PUSH_OUTS)
    for data in generated.arguments:
        assert_same_outcomes(
            evaluate(loops.inputs, loops.outputs, list(data)),
            evaluate(work.inputs, work.outputs, list(data)),
        )
