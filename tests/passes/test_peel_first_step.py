"""peel-first-step: its legal case of both forms of loops, and a twin for each precondition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph
from pytensor.scalar.basic import Exp, same_out
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.ir.graph import Graph
from scanopt_cli.ir.scan_view import is_loop, view_of
from support.graph_building import graph_of, only_scan, optimized, power, scan
from support.step_counts import check, noisy_walk, trimmed_to, unchanged

N = pt.lscalar("n")
PASSES = "peel-first-step"


def test_case_1_first_and_last() -> None:
    start = pt.dvector("start")
    ys, zs = scan(
        lambda t, a: [a * 0.9 + t, a * t],
        sequences=[pt.arange(100.0)],
        outputs_info=[start, None],
    )
    graph = graph_of(ys[0, 1], zs[0] + ys[-1], zs[-2])
    steps, kept, remarks = trimmed_to(graph, PASSES)
    assert (steps, kept) == ("100", ["2", "2"])
    assert len(remarks) == 1
    assert remarks[0].endswith("outside of the loop")


def test_case_1_twin_may_run_no_step() -> None:
    _, xs = power(N)
    (remark,) = unchanged(graph_of(xs[0], xs[-1]), PASSES)
    assert remark.endswith("the trip count n may be 0")


def test_case_1_twin_loop_inside() -> None:
    x = pt.dscalar("x")

    def step(y):
        return scan(lambda z: z * 1.1, outputs_info=[y], n_steps=3, name="inner")

    ys = scan(lambda y: step(y).sum(), outputs_info=[x], n_steps=100, name="outer")
    (remark,) = unchanged(graph_of(ys[0], ys[-1]), PASSES)
    assert remark.endswith("a step has a loop or a graph inside")


def test_case_1_twin_random_state() -> None:
    ys, _ = noisy_walk()
    _, remarks = optimized(graph_of(ys[0], ys[-1]), PASSES)
    assert remarks[0].endswith("it has states without a trace")


def test_case_1_twin_few_steps_and_other_rows() -> None:
    _, xs = power(30)
    assert unchanged(graph_of(xs[0], xs[-1]), PASSES) == []
    _, xs = power(300)
    assert unchanged(graph_of(xs[1], xs[-1]), PASSES) == []
    assert unchanged(graph_of(xs[0], xs.sum()), PASSES) == []


@pytest.mark.parametrize("rows", [[0], [-1, -2]])
def test_case_1_twin_lists_of_rows(rows: list[int]) -> None:
    ys = scan(lambda y: y * 0.9, outputs_info=[pt.dvector("start")], n_steps=100)
    assert unchanged(graph_of(ys[rows], ys[-1]), PASSES) == []


def test_case_1_twin_step_in_place() -> None:
    exp_inplace = Elemwise(Exp(same_out), {0: 0})
    ys = scan(lambda y: exp_inplace(y * -1.0), outputs_info=[pt.dvector("start")], n_steps=100)
    (remark,) = unchanged(graph_of(ys[0], ys[-1]), PASSES)
    assert remark.endswith("a step does Exp")


def test_case_1_twin_batches() -> None:
    x, xs = power(300)
    batched = vectorize_graph([xs[0], xs[-1]], {x: pt.dvector("batch")})
    assert unchanged(graph_of(*batched), PASSES) == []


def test_case_1_twin_rows_that_are_not_kept() -> None:
    """The first of the last three rows is not the row of the first step."""
    zs = scan(lambda t: t * 0.9, sequences=[pt.arange(100.0)])
    view = only_scan(graph_of(zs).fgraph)
    view.slots[-1].outer_input = pt.constant(3)
    (kept,) = view.rebuild().values()
    assert unchanged(graph_of(kept[0], kept[-1]), PASSES) == []


X, S = pt.dscalar("x"), pt.dvector("s")


def _turned(*outputs: Any) -> tuple[Graph, Graph]:
    """Return a graph, and the same of TracedLoops."""
    graph = graph_of(*outputs)
    return graph, optimized(graph, "scan-to-loop")[0]


def _walk(steps: Any) -> Any:
    return scan(lambda y: y * 0.99 + 0.1, outputs_info=[X], n_steps=steps)


@pytest.mark.parametrize("is_batched", [False, True])
def test_case_1_of_traced_loops(is_batched: bool) -> None:
    start = pt.dvector("start")
    ys, zs = scan(
        lambda t, a: [a * 0.9 + t, a * t],
        sequences=[pt.arange(100.0)],
        outputs_info=[start, None],
    )
    reads = [ys[0, 1], zs[0] + ys[-1], zs[-2]]
    if is_batched:
        reads = vectorize_graph(reads, {start: pt.stack([start, start * 2])})
    graph, loops = _turned(*reads)
    work, remarks = optimized(loops, PASSES)
    assert remarks[0].endswith("outside of the loop")
    check(graph, work, counts=(0,))
    last, _ = optimized(work, "trace-to-last")
    (view,) = (view_of(node) for node in last.fgraph.apply_nodes if is_loop(node))
    assert is_batched or not any(map(last.fgraph.clients.get, (s.output for s in view.outputs())))


@pytest.mark.parametrize(
    ("reads", "steps", "reason"),
    [
        (lambda xs: [xs[0], xs[-1]], N, "the trip count n may be 0"),
        (lambda xs: [xs[0], xs[-1]], 30, None),
        (lambda xs: [xs[1], xs[-1]], 300, None),
        (lambda xs: [xs[0], xs.sum()], 300, None),
    ],
)
def test_case_1_of_traced_loops_twins(
    reads: Callable[[Any], list[Any]], steps: Any, reason: str | None
) -> None:
    graph, loops = _turned(*reads(_walk(steps)))
    work, remarks = optimized(loops, PASSES)
    assert [remark.endswith(str(reason)) for remark in remarks] == ([True] if reason else [])
    check(graph, work)


def test_case_1_of_traced_loops_twin_rows_that_may_not_be_there() -> None:
    xs = scan(lambda a, y: y + a, sequences=[S], outputs_info=[X], n_steps=300)
    _, loops = _turned(xs[0], xs[-1])
    _, remarks = optimized(loops, PASSES)
    assert remarks[0].endswith("one of its sequences may be too short")
