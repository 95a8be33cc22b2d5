"""`stable-log-sums`: the maximum is subtracted before exponentials are summed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Variable
from scipy.special import logsumexp

from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.graph import Graph, from_io
from support.compiled_ways import VM, compiled
from support.evaluating import PLAIN
from support.graph_building import optimized, scan

m = pt.dmatrix("m")
v = pt.dscalar("v")
w = pt.dvector("w")
f = pt.fmatrix("f")
INPUTS: list[Variable] = [m, v, w, f]
ROWS = np.array([[0.3, -0.2, 1.0], [2.0, 0.1, -0.7]])
VALUES = [ROWS, 0.5, np.array([0.2, 0.3, 0.5]), ROWS.astype("float32")]


def passed(*outputs: Any) -> Graph:
    return optimized(from_io(INPUTS, list(outputs)), "stable-log-sums")[0]


def over(step: Callable[..., Any], rows: Any = m) -> Any:
    def with_state(row: Any, s: Any) -> Any:
        return s * 0.5 + step(row, s).sum()

    return scan(with_state, sequences=[rows], outputs_info=[v])


def reduced(value: Callable[[Any], Any]) -> Callable[[Any, float], list[float]]:
    """The states of a loop that adds ``value`` of each row."""

    def states(rows: Any, start: float) -> list[float]:
        found = []
        for row in rows:
            start = start * 0.5 + np.sum(value(row))
            found.append(start)
        return found

    return states


W = VALUES[2]
CASES: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "1": (over(lambda r, s: pt.log(pt.exp(r).sum())), logsumexp),
    "1, keepdims": (over(lambda r, s: pt.log(pt.exp(r).sum(keepdims=True))), logsumexp),
    "1, an axis": (
        over(lambda r, s: pt.log(pt.exp(r[:, None] + r).sum(axis=0))),
        lambda r: logsumexp(r[:, None] + r, axis=0),
    ),
    "1, two axes": (
        over(lambda r, s: pt.log(pt.exp(r[:, None] - r).sum(axis=(0, 1)))),
        lambda r: logsumexp(r[:, None] - r),
    ),
    "2": (
        over(lambda r, s: pt.log(pt.exp(r[0]) + pt.exp(r[1]) + pt.exp(r[2]))),
        logsumexp,
    ),
    "2, broadcast": (
        over(lambda r, s: pt.log(pt.exp(r) + pt.exp(r[0]))),
        lambda r: np.logaddexp(r, r[0]),
    ),
    "3, weights": (
        over(lambda r, s: pt.log((w * pt.exp(r)).sum())),
        lambda r: logsumexp(r, b=W),
    ),
    "3, weights of one number": (
        over(lambda r, s: pt.log(0.3 * pt.exp(r[0]) + 0.7 * pt.exp(r[1]))),
        lambda r: logsumexp(r[:2], b=[0.3, 0.7]),
    ),
    "3, weights by rows": (
        over(lambda r, s: pt.log((w[:, None] * pt.exp(r[:, None] + r)).sum(axis=0))),
        lambda r: logsumexp(r[:, None] + r, b=np.broadcast_to(W[:, None], (3, 3)), axis=0),
    ),
    "3, sums and single ones": (
        over(lambda r, s: pt.log(0.5 * pt.exp(r).sum() + pt.exp(r[0]))),
        lambda r: logsumexp([*r, r[0]], b=[0.5, 0.5, 0.5, 1.0]),
    ),
}


@pytest.mark.tiered(every=10)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("mode", [PLAIN, VM], ids=["plain", "vm"])
@pytest.mark.parametrize("scale", [1, 1e3, -1e3])
def test_values_and_gradients(name: str, mode: Any, scale: float) -> None:
    output, value = CASES[name]
    graph = passed(output)
    assert digest(graph.fgraph) != digest(from_io(INPUTS, [output]).fgraph)
    rows = ROWS * scale
    if scale < 0:
        rows = rows - 1e3
    given = [rows, *VALUES[1:]]
    cost = graph.outputs[0][-1]
    outputs = [graph.outputs[0], pt.grad(cost, graph.inputs[0])]
    with np.errstate(all="ignore"):
        found, gradient = compiled(graph.inputs, outputs, mode)(*given)
    np.testing.assert_allclose(found, reduced(value)(rows, 0.5), rtol=1e-12)
    assert np.isfinite(gradient).all()
    if scale == 1:
        wanted = compiled(INPUTS, [pt.grad(output[-1], m)], PLAIN)(*given)
        np.testing.assert_allclose(gradient, wanted[0], rtol=1e-10, atol=1e-12)


def test_no_steps_and_one() -> None:
    output, _ = CASES["3, weights"]
    graph = passed(output)
    for rows in (ROWS[:0], ROWS[:1]):
        given = [rows, *VALUES[1:]]
        np.testing.assert_allclose(
            compiled(graph.inputs, graph.outputs, PLAIN)(*given)[0],
            compiled(INPUTS, [output], PLAIN)(*given)[0],
            rtol=1e-12,
        )


def test_second_derivatives_of_weighted_sums() -> None:
    output, _ = CASES["3, weights"]
    graph = passed(output)
    found = []
    for inputs, outputs in ((graph.inputs, graph.outputs), (INPUTS, [output])):
        first = pt.grad(outputs[0][-1], inputs[0])
        second = pt.grad((first**2).sum(), inputs[0])
        found.append(compiled(inputs, [second], PLAIN)(*VALUES)[0])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)


def test_infinities_stay() -> None:
    output, _ = CASES["3, weights"]
    graph = passed(output)
    rows = np.array([[-np.inf, -np.inf, -np.inf], [-np.inf, 0.0, 1.0]])
    with np.errstate(all="ignore"):
        before = compiled(INPUTS, [output], PLAIN)(rows, *VALUES[1:])[0]
        after = compiled(graph.inputs, graph.outputs, PLAIN)(rows, *VALUES[1:])[0]
    np.testing.assert_allclose(after, before)


def test_float32_stays() -> None:
    ys = scan(
        lambda r, s: s + pt.log(pt.exp(r).sum()),
        sequences=[f],
        outputs_info=[pt.zeros((), dtype="float32")],
    )
    graph = passed(ys)
    assert graph.outputs[0].type.dtype == "float32"
    given = [*VALUES[:3], VALUES[3] + np.float32(100)]
    found = compiled(graph.inputs, graph.outputs, PLAIN)(*given)[0]
    wanted = np.cumsum([logsumexp(row) for row in given[3]])
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_outside_of_loops_and_in_loops_in_loops() -> None:
    def outer(row: Any, s: Any) -> Any:
        inner = scan(
            lambda q, t: pt.log(pt.exp(q + t) + pt.exp(t)), sequences=[row], outputs_info=[s]
        )
        return s + inner[-1]

    ys = scan(outer, sequences=[m], outputs_info=[v])
    output = pt.log((w[:2] * pt.exp(ys)).sum())
    graph = passed(output)
    given = [ROWS * 1e3, *VALUES[1:]]
    with np.errstate(all="ignore"):
        assert np.isinf(compiled(INPUTS, [output], PLAIN)(*given)[0])
    found = compiled(graph.inputs, graph.outputs, PLAIN)(*given)[0]
    wanted = 0.5
    states = []
    for row in given[0]:
        inner = wanted
        for q in row:
            inner = np.logaddexp(q + inner, inner)
        wanted += inner
        states.append(wanted)
    np.testing.assert_allclose(found, logsumexp(states, b=W[:2]), rtol=1e-12)


NOT: dict[str, Any] = {
    "of a known size": over(lambda r, s: pt.log(pt.exp(pt.tanh(r)).sum())),
    "subtracted already": over(lambda r, s: pt.log(pt.exp(r - r.max()).sum()) + r.max()),
    "subtracted already, of two": over(
        lambda r, s: pt.log(
            pt.exp(r[0] - pt.maximum(r[0], r[1])) + pt.exp(r[1] - pt.maximum(r[0], r[1]))
        )
    ),
    "another term": over(lambda r, s: pt.log(1 + pt.exp(r))),
    "a difference": over(lambda r, s: pt.log(pt.exp(r) - pt.exp(r - 1))),
    "one exponential": over(lambda r, s: pt.log(pt.exp(r))),
    "squares": over(lambda r, s: pt.log((r**2).sum())),
    "two exponentials in a product": over(lambda r, s: pt.log((pt.exp(r) * pt.exp(s)).sum())),
    "logsumexp": over(lambda r, s: pt.logsumexp(r)),
    "no loop": pt.log(pt.exp(m).sum()),
}


@pytest.mark.parametrize("name", NOT)
def test_twin_logarithms_that_stay(name: str) -> None:
    assert digest(passed(NOT[name]).fgraph) == digest(from_io(INPUTS, [NOT[name]]).fgraph)


def test_a_second_run_changes_nothing() -> None:
    for output, _ in CASES.values():
        graph = passed(output)
        assert digest(optimized(graph, "stable-log-sums")[0].fgraph) == digest(graph.fgraph)
