"""Every strategy gives the same values, of as few loops as it promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until

from scanopt_cli.analysis.statistics import statistics
from scanopt_cli.autodiff.derivative import Derivative
from scanopt_cli.autodiff.differentiating import grad
from scanopt_cli.errors import GradientError
from scanopt_cli.ir.graph import Graph, as_graph
from support.evaluating import assert_same_outcomes, evaluate
from support.generated.strategies import GeneratedScan, scan_graphs
from support.gradient_loops import W, a, clipped, garch, n, nested, s, x, y
from support.graph_building import (
    arguments,
    graph_of,
    only_scan,
    optimized,
    outputs_of,
    power,
    scan,
)
from support.tiers import deep, examples

pair = pt.vector("pair", shape=(2,), dtype="float64")

POINT: dict[str, Any] = {
    "x": 0.8,
    "a": 0.3,
    "b": 0.6,
    "y": [0.9, 1.1],
    "pair": [0.9, 1.1],
    "s": [0.4, -0.2, 0.7, 0.1],
    "W": [[0.3, -0.2], [0.1, 0.4]],
    "n": 3,
}
ALL = ("reverse", "forward", "taylor", "forward-over-reverse")


def ar2(start: Any, steps: Any = n) -> Any:
    return scan(
        lambda p, q: 0.5 * p * q + 0.1 * q,
        outputs_info=[{"initial": start, "taps": [-2, -1]}],
        n_steps=steps,
        name="ar2",
    )


def rnn() -> Any:
    return scan(
        lambda q, h, w: pt.tanh(h @ w + q),
        sequences=[s],
        outputs_info=[y],
        non_sequences=[W],
        name="rnn",
    )[-1].sum()


def batched() -> Any:
    start, steps = power(3)
    return vectorize_graph(steps[-1], {start: s})


SCALARS = {
    "power": lambda: power(n)[1][-1],
    "cubes, which simplifying fuses": lambda: scan(
        lambda h: 0.5 * h**3 + h, outputs_info=[x], n_steps=n
    ).sum(),
    "two taps": lambda: ar2(pair)[-1],
    "GARCH": garch,
    "nested": nested,
    "while": lambda: scan(
        lambda h, f: (1.5 * h**2 + f, until(h > 1)),
        outputs_info=[x],
        non_sequences=[a],
        n_steps=n,
    ).sum(),
    "map": lambda: scan(lambda q, f: f * q**3, sequences=[pt.arange(1.0, 4)], non_sequences=[x])[
        -1
    ],
}
VECTORS = {
    "RNN": rnn,
    "two taps": lambda: ar2(y).sum(),
    "sequence backwards": lambda: scan(
        lambda q, h: 0.5 * h**2 + q, sequences=[s], outputs_info=[x], go_backwards=True
    )[-1],
    "in an OpFromGraph": lambda: (
        OpFromGraph(
            [x, a],
            [scan(lambda h, f: pt.sin(h) * f, outputs_info=[x], non_sequences=[a], n_steps=3)],
        )(x, a).sum()
        * s.sum()
    ),
    "batched": batched,
}


def at_point(graph: Graph) -> list[Any]:
    return outputs_of(graph, **POINT)


def in_numba(graph: Graph) -> list[Any]:
    function = pytensor.function(graph.inputs, graph.outputs, mode="NUMBA")
    values: list[Any] = function(*arguments(graph, **POINT))
    return values


def assert_agrees(derivative: Derivative, other: Derivative) -> None:
    for mine, theirs in zip(derivative.orders, other.orders, strict=True):
        assert_same_outcomes(at_point(theirs.graph), at_point(mine.graph), rtol=1e-8)


@pytest.mark.deep
@pytest.mark.parametrize("strategy", ALL[1:])
@pytest.mark.parametrize("loop", SCALARS)
def test_three_orders_agree_where_entries_are_few(loop: str, strategy: str) -> None:
    graph = graph_of(SCALARS[loop]())
    assert_agrees(grad(graph, 3, strategy=strategy), grad(graph, 3, strategy="reverse"))


@pytest.mark.deep
@pytest.mark.parametrize("loop", [*list(VECTORS)[:2], *deep(*list(VECTORS)[2:])])
def test_three_orders_agree_where_they_are_many(loop: str) -> None:
    graph = graph_of(VECTORS[loop]())
    # PyTensor's virtual machine cannot run the third reverse mode of a loop that goes backwards.
    order = 2 if "backwards" in loop else 3
    found = grad(graph, order, strategy="forward-over-reverse")
    assert_agrees(found, grad(graph, order, strategy="reverse"))


@pytest.mark.deep
@pytest.mark.parametrize("strategy", ["taylor", "forward-over-reverse"])
def test_numba_agrees(strategy: str) -> None:
    graph = graph_of(garch())
    found = grad(graph, 2, strategy=strategy).graph
    wanted = at_point(grad(graph, 2, strategy="reverse").graph)
    assert_same_outcomes(wanted, in_numba(found), rtol=1e-8)
    assert_same_outcomes(wanted, in_numba(optimized(found, "grad")[0]), rtol=1e-8)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_one_scalar_input_needs_one_loop(order: int) -> None:
    start, xs = power(20)
    derivative = grad(([start], [xs[-1]]), order)
    assert derivative.strategy == "taylor"
    assert "one scalar input" in derivative.reason
    work, _ = optimized(derivative.graph, "grad")
    kinds = [slot.kind.value for slot in only_scan(work.fgraph).slots]
    assert kinds == ["sit_sot"] * (order + 1)


def test_the_seed_example_is_one_loop_and_little_else() -> None:
    start, xs = power(4)
    derivative = grad(([start], [xs[-1]]), 2)
    left = statistics(optimized(derivative.graph, "grad")[0].fgraph)
    assert left.scans == 1
    assert left.outer_nodes <= 4
    (value,) = outputs_of(derivative.graph, x=0.9)
    assert value == pytest.approx(16 * 15 * 0.9**14)


@pytest.mark.deep
@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("loop", ["RNN", "two taps", "GARCH"])
def test_many_inputs_need_two_loops(loop: str, order: int) -> None:
    graph = graph_of((SCALARS | VECTORS)[loop]())
    derivative = grad(graph, order)
    assert derivative.strategy == "forward-over-reverse"
    left = statistics(optimized(derivative.graph, "grad")[0].fgraph)
    assert (left.scans, left.mit_mot) == (2, 0)


def test_auto_goes_by_the_number_of_entries() -> None:
    assert grad(graph_of(garch())).strategy == "forward"
    assert "3 entries" in grad(graph_of(garch())).reason
    assert grad(graph_of(rnn())).strategy == "reverse"
    assert "not known" in grad(graph_of(rnn())).reason
    assert grad(graph_of(ar2(pair)[-1]), wrt=["pair"]).strategy == "forward"
    many = pt.vector("many", shape=(4,), dtype="float64")
    assert grad(graph_of((many**2).sum())).strategy == "reverse"


def test_auto_falls_back_to_reverse_and_says_why() -> None:
    derivative = grad(clipped())
    assert derivative.strategy == "reverse"
    assert derivative.reason.startswith("reverse mode only: GradClip in outer/inner has no push")
    for strategy in ("forward", "taylor"):
        with pytest.raises(GradientError, match="GradClip in outer/inner has no pushforward") as e:
            grad(clipped(), strategy=strategy)
        assert str(e.value).endswith("use strategy reverse, which needs none")


def test_a_truncated_gradient_is_for_reverse_mode() -> None:
    graph = graph_of(
        scan(lambda h: h**2, outputs_info=[x], n_steps=5, truncate_gradient=3, name="t")[-1]
    )
    assert grad(graph).strategy == "reverse"
    with pytest.raises(GradientError, match="truncated after 3 steps, which only reverse mode"):
        grad(graph, strategy="forward-over-reverse")


def test_forward_mode_refuses_many_entries() -> None:
    with pytest.raises(GradientError, match="for each entry of y, whose number of entries"):
        grad(graph_of(ar2(y)[-1]), wrt=["y"], strategy="taylor")
    many = pt.vector("many", shape=(40,), dtype="float64")
    with pytest.raises(GradientError, match="each of 40 entries, and builds at most 16; use strat"):
        grad(graph_of((many**2).sum()), strategy="forward")


def test_a_strategy_that_does_not_exist() -> None:
    with pytest.raises(GradientError, match="no strategy 'sideways'; strategies: reverse"):
        grad(([x], [x**2]), strategy="sideways")


@pytest.mark.parametrize("strategy", ALL)
def test_every_strategy_refuses_a_trimmed_loop(strategy: str) -> None:
    trimmed, _ = optimized(graph_of(power(4)[1][-1]), "save-mem")
    with pytest.raises(GradientError, match="Scan square is not proved to keep every step"):
        grad(trimmed, strategy=strategy)


@pytest.mark.parametrize("steps", [5, n], ids=["5", "n"])
def test_a_gradient_without_its_farthest_writes(steps: Any) -> None:
    """PyTensor would read its rows from the wrong end, and return another number."""
    ys = scan(
        lambda y2, y1: pt.sin(y1) + 0.3,
        outputs_info=[{"initial": y, "taps": [-2, -1]}],
        n_steps=steps,
    )
    graph = graph_of((pytensor.grad((ys**2).sum(), y) ** 2).sum())
    fewer, _ = optimized(graph, "drop-taps")
    with pytest.raises(GradientError, match="has rows behind those that its last step writes"):
        grad(fewer, wrt=["y"])
    shorter, _ = optimized(fewer, "mit-mot-to-sit-sot")
    (wanted,), (got,) = (at_point(grad(each, wrt=["y"]).graph) for each in (graph, shorter))
    np.testing.assert_allclose(got, wanted, rtol=1e-12)


@pytest.mark.parametrize("strategy", ALL)
def test_an_order_that_is_zero(strategy: str) -> None:
    derivative = grad(
        graph_of(scan(lambda h: 2.0 * h, outputs_info=[x], n_steps=3)[-1]), 3, strategy=strategy
    )
    assert [float(at_point(r.graph)[0]) for r in derivative.orders[1:]] == [8, 0, 0]


@pytest.mark.parametrize("strategy", ["reverse", "forward-over-reverse"])
@pytest.mark.parametrize("loop", ["two taps", *deep("RNN", "GARCH", "nested")])
def test_the_whole_hessian(loop: str, strategy: str) -> None:
    out = (SCALARS | VECTORS)[loop]()
    graph = graph_of(out)
    derivative = grad(graph, 2, full=True, strategy=strategy)
    loops = 2 if strategy != "reverse" else 4
    assert loop == "nested" or derivative.orders[-1].statistics.scans <= loops
    inputs = [v for v in graph.inputs if v.name in derivative.wrt]
    slopes = pytensor.grad(graph.outputs[0], inputs)
    flat = pt.concatenate([slope.ravel() for slope in slopes])
    rows = [
        pytensor.grad(flat[i], inputs, disconnected_inputs="ignore") for i in range(_size(inputs))
    ]
    wanted = [
        np.stack(column) for column in zip(*[_values(graph, row) for row in rows], strict=True)
    ]
    found = at_point(derivative.graph)
    assert [value.shape for value in found] == [
        (_size(inputs), *np.shape(POINT[str(v.name)])) for v in inputs
    ]
    for got, value in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-8, atol=1e-12)


def _size(inputs: list[Any]) -> int:
    return sum(np.size(POINT[str(v.name)]) for v in inputs)


def _values(graph: Graph, variables: list[Any]) -> list[Any]:
    return evaluate(graph.inputs, variables, arguments(graph, **POINT))


def test_a_whole_hessian_is_of_order_two() -> None:
    with pytest.raises(GradientError, match="of order 2, not of order 1"):
        grad(([x], [x**2]), full=True)
    with pytest.raises(GradientError, match="strategy taylor builds no whole Hessian"):
        grad(([x], [x**2]), 2, full=True, strategy="taylor")


def delayed() -> Graph:
    """A state that is read two steps later, and that no step computes from itself."""
    zero = pt.constant(0.0, dtype="float64")
    hs = scan(
        lambda before, last, h: [zero, pt.tanh(before) * last + 0 * h],
        outputs_info=[{"initial": y, "taps": [-2, -1]}, x],
        n_steps=n,
        name="delay",
    )
    return graph_of(hs[1][0])


def test_a_start_that_only_other_states_read() -> None:
    """PyTensor's own second gradient is zero here."""
    graph = delayed()
    first = pytensor.grad(graph.outputs[0], _named(graph, "y"))
    lost = pytensor.grad(first.sum(), _named(graph, "y"), disconnected_inputs="ignore")
    assert not np.any(_values(graph, [lost])[0])
    found = at_point(grad(graph, 2, wrt=["y"]).graph)[0]
    p, q = POINT["y"]
    slope = 1 / np.cosh(p) ** 2
    np.testing.assert_allclose(found, [-2 * np.tanh(p) * slope * q + slope, slope])
    with pytest.raises(GradientError, match="no step of delay computes"):
        grad(graph, 2, wrt=["y"], strategy="reverse")


def _named(graph: Graph, name: str) -> Any:
    (variable,) = (v for v in graph.inputs if v.name == name)
    return variable


@given(example=scan_graphs(gradients=False, max_outputs=1))
@settings(max_examples=examples(5, 50))
def test_generated_graphs_have_the_same_derivatives_forwards(example: GeneratedScan) -> None:
    given = as_graph((example.inputs, example.outputs))
    try:
        wanted = grad(given, 2, strategy="reverse")
        found = grad(given, 2, strategy="forward-over-reverse")
    except GradientError:
        return
    for values in example.arguments:
        for order in (1, 2):
            pairs = [
                evaluate(d.orders[order].graph.inputs, d.orders[order].graph.outputs, values)
                for d in (wanted, found)
            ]
            if not any(isinstance(value, Exception) for value in pairs[0]):
                assert_same_outcomes(*pairs, rtol=1e-7)
