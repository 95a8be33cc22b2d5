"""Gradients of all kinds of loops, taken apart: same values, and no mit_mot left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, note
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until

from scanopt_cli.analysis.statistics import statistics
from scanopt_cli.ir.graph import from_io
from support.evaluating import assert_same_outcomes, evaluator
from support.generated.strategies import GeneratedScan, scan_graphs
from support.graph_building import arguments, graph_of, outputs_of, power, scan
from support.mit_mot_loops import N
from support.taking_apart import COSTS, STEPS, VALUES, ar2, check, taken_apart, vector_power


@pytest.mark.tiered(every=3)
@STEPS
@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("loop", [power, vector_power, ar2])
def test_gradients(loop, cost: str, steps: Any) -> None:
    start, xs = loop(steps)
    after, _ = check(graph_of(pt.grad(COSTS[cost](xs), start)))
    assert statistics(after.fgraph).mit_mot == 0


@pytest.mark.tiered(every=3)
@STEPS
@pytest.mark.parametrize("cost", ["last", "sum", "squares"])
@pytest.mark.parametrize("loop", [power, vector_power, ar2])
def test_second_gradients(loop, cost: str, steps: Any) -> None:
    start, xs = loop(steps)
    gradient = pt.grad(COSTS[cost](xs), start)
    graph = graph_of(gradient, pt.grad(gradient.sum(), start))
    assert statistics(graph.fgraph).mit_mot == 3
    assert statistics(check(graph)[0].fgraph).mit_mot == 0


@STEPS
def test_third_gradient(steps: Any) -> None:
    derivative, xs = power(steps)
    x, derivative = derivative, xs[-1]
    for _ in range(3):
        derivative = pt.grad(derivative, x)
    graph = graph_of(derivative)
    assert statistics(graph.fgraph).mit_mot == 7
    assert statistics(check(graph)[0].fgraph).mit_mot == 0


@STEPS
def test_gradient_of_what_was_taken_apart(steps: Any) -> None:
    """The states can be differentiated like any others."""
    x, xs = power(steps)
    gradient = pt.grad(xs[-1], x)
    after, _ = taken_apart(graph_of(gradient))
    second = pt.grad(after.outputs[0], after.inputs[0])
    expected = graph_of(pt.grad(gradient, x))
    for n in (1, 4):
        values = {"x": 1.1, "n": n}
        assert_same_outcomes(outputs_of(expected, **values), outputs_of(graph_of(second), **values))


def test_sequences_parameters_and_several_states() -> None:
    w, h0, c0 = pt.dmatrix("w"), pt.dvector("h0"), pt.dvector("c0")
    rows = pt.dmatrix("rows")
    hs, cs, _ = scan(
        lambda row, h, c, w: [pt.tanh(w @ h + row + c), 0.5 * c + h**2, h.sum()],
        sequences=[rows],
        outputs_info=[h0, c0, None],
        non_sequences=[w],
        name="cell",
    )
    for cost in (hs[-1].sum(), hs.sum() + (cs**2).sum()):
        graph = graph_of(*pt.grad(cost, [w, h0, c0, rows]))
        rng = np.random.default_rng(3)
        after, _ = check(
            graph,
            w=rng.normal(size=(2, 2)),
            h0=rng.normal(size=2),
            c0=rng.normal(size=2),
            rows=rng.normal(size=(4, 2)),
        )
        assert statistics(after.fgraph).mit_mot == 0


@STEPS
def test_inside_a_loop(steps: Any) -> None:
    def outer(y):
        return scan(lambda z: z**2 * 0.9, outputs_info=[y], n_steps=steps, name="inner")[-1]

    x = pt.dscalar("x")
    ys = scan(outer, outputs_info=[x], non_sequences=[], n_steps=3, name="outer")
    graph = graph_of(pt.grad(ys[-1], x))
    assert statistics(graph.fgraph).mit_mot == 2
    assert statistics(check(graph)[0].fgraph).mit_mot == 0


@pytest.mark.parametrize("limit", [0.1, 3.0, 1e9])
@pytest.mark.parametrize("cost", ["last", "sum", "squares", "every other"])
def test_gradient_of_a_while_loop(cost: str, limit: float) -> None:
    x = pt.dscalar("x")
    xs, zs = scan(
        lambda y, z: ([y * 1.5 + 0.1 * z, z * 0.7], until(y > limit)),
        outputs_info=[x, x],
        n_steps=N,
        name="grow",
    )
    graph = graph_of(pt.grad(COSTS[cost](xs) + zs[-1], x))
    after, _ = check(graph)
    assert statistics(after.fgraph).mit_mot == 0


@STEPS
@pytest.mark.parametrize("truncate", [1, 2, 9])
@pytest.mark.parametrize("cost", ["last", "sum"])
def test_truncated_gradient(cost: str, truncate: int, steps: Any) -> None:
    """The initial buffer is longer than the loop runs."""
    x, s = pt.dscalar("x"), pt.dvector("s")
    ys = scan(
        lambda a, y: y**2 + a,
        sequences=[s],
        outputs_info=[x],
        n_steps=steps,
        truncate_gradient=truncate,
    )
    graph = graph_of(*pt.grad(COSTS[cost](ys), [x, s]))
    after, _ = check(graph, s=[0.1] * 7)
    assert statistics(after.fgraph).mit_mot == 0


@pytest.mark.tiered(every=3)
@STEPS
@pytest.mark.parametrize("cost", ["last", "sum", "squares"])
def test_blockwise_scan(cost: str, steps: Any) -> None:
    x, xs = power(steps)
    batch = pt.dvector("batch")
    gradient = pt.grad(COSTS[cost](xs), x)
    graph = graph_of(*(vectorize_graph(g, {x: batch}) for g in (gradient, pt.grad(gradient, x))))
    after, _ = check(graph)
    assert statistics(after.fgraph).mit_mot == 0


def test_blockwise_twin_step_count_of_each_entry() -> None:
    x, xs = power(N)
    counts = pt.lvector("counts")
    gradient = pt.grad((xs**2).sum(), x)
    _, remarks = taken_apart(graph_of(vectorize_graph(gradient, {N: counts})))
    assert remarks == ["missed keeps mit_mot `mit_mot[0]`: the step count differs within the batch"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_types_stay(dtype: str) -> None:
    start = pt.tensor("v", dtype=dtype, shape=(3,))
    xs = scan(lambda y: y**2, outputs_info=[start], n_steps=N)
    graph = graph_of(pt.grad(xs[-1].sum() + xs.sum(), start))
    after, _ = check(graph, v=[0.5, 0.6, 0.7])
    assert after.outputs[0].type == graph.outputs[0].type


@pytest.mark.deep
@pytest.mark.parametrize(("loop", "cost"), [(power, "sum"), (ar2, "squares")])
def test_numba(loop, cost: str) -> None:
    start, xs = loop(N)
    graph = graph_of(pt.grad(COSTS[cost](xs), start))
    after, _ = taken_apart(graph)
    values = {**VALUES, "n": 4}
    results = [
        pytensor.function(work.inputs, work.outputs, mode="NUMBA")(*arguments(work, **values))
        for work in (graph, after)
    ]
    assert_same_outcomes(*results)


@given(generated=scan_graphs(max_outputs=1))
def test_gradients_keep_values(generated: GeneratedScan) -> None:
    graph = from_io(generated.inputs, generated.outputs)
    after, remarks = taken_apart(graph)
    note("; ".join(remarks))
    after.fgraph.check_integrity()
    old = evaluator(graph.inputs, graph.outputs)
    new = evaluator(after.inputs, after.outputs)
    for values in generated.arguments:
        assert_same_outcomes(old(values), new(values))
