"""`push-out`, case 5: a number that a step multiplies a matrix by is kept out of products of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.math import Dot

from scanopt_cli.ir.graph import Graph
from scanopt_cli.ir.inner_graphs import core_op, walk
from scanopt_cli.ir.scan_view import is_loop
from support.compiled_ways import NUMBA, VM, assert_close, compiled
from support.evaluating import evaluate
from support.graph_building import arguments, assert_same_values, graph_of, optimized, scan
from support.tiers import deep

x = pt.dscalar("x")
a, b, w = pt.dmatrices("a", "b", "w")
h = pt.dvector("h")
n = pt.lscalar("n")
RNG = np.random.default_rng(8)
POINT = {
    "x": 0.4,
    "a": RNG.normal(size=(3, 4)),
    "b": RNG.normal(size=(4, 3)),
    "w": RNG.normal(size=(3, 3)) / 4,
    "h": RNG.normal(size=3),
    "n": 3,
}

type Step = Callable[..., Any]


def repeated(product: Step, steps: Any = 4) -> Any:
    """The last number, of steps that multiply by what they compute of it and of matrices."""
    return scan(
        lambda y, a, b, h: pt.tanh(product(y, a, b, h).sum() / 9 + y),
        outputs_info=[x],
        non_sequences=[a, b, h],
        n_steps=steps,
    )[-1]


CASES: dict[str, Step] = {
    "the left one is multiplied": lambda y, a, b, h: pt.dot(y * a, b),
    "the right one": lambda y, a, b, h: pt.dot(a, b * y),
    "both": lambda y, a, b, h: pt.dot(y * a, pt.exp(y) * b),
    "by several numbers": lambda y, a, b, h: pt.dot(pt.mul(y, pt.sin(y), a), b),
    "what is computed of matrices": lambda y, a, b, h: pt.dot(y * pt.exp(a), b.T.T),
    "by numbers of one state twice": lambda y, a, b, h: pt.dot(pt.mul(y, a, a), b) * y,
}
TWINS: dict[str, Step] = {
    "each row by its own number": lambda y, a, b, h: pt.dot((y * h)[:, None] * a, b),
    "a matrix that a step computes": lambda y, a, b, h: pt.dot(y * a, pt.tanh(b * y)),
    "a number is added": lambda y, a, b, h: pt.dot(y + a, b),
    "a number of another dtype": lambda y, a, b, h: pt.dot(
        y * pt.cast(a, "float32"), pt.cast(b, "float32")
    ),
}


def products(graph: Graph) -> int:
    """How many products of matrices the bodies of loops have."""
    bodies = [core_op(node.op).fgraph for node in walk(graph.fgraph) if is_loop(node)]
    return sum(isinstance(core_op(node.op), Dot) for body in bodies for node in body.apply_nodes)


@pytest.mark.parametrize("steps", [4, n], ids=["4", "n"])
@pytest.mark.parametrize("passes", ["push-out", "scan-to-loop,push-out"], ids=["scan", "traced"])
@pytest.mark.parametrize("case", CASES)
def test_case(case: str, passes: str, steps: Any) -> None:
    graph = graph_of(repeated(CASES[case], steps))
    work, _ = optimized(graph, passes)
    assert products(graph) == 1
    assert products(work) == 0
    for count in (1, 3) if steps is n else (4,):
        assert_same_values(graph, work, **{**POINT, "n": count})


@pytest.mark.parametrize("name", TWINS)
def test_must_not_fire(name: str) -> None:
    graph = graph_of(repeated(TWINS[name]))
    work, _ = optimized(graph, "push-out")
    assert products(work) == 1
    assert_same_values(graph, work, **POINT)


@pytest.mark.parametrize("mode", [VM, *deep(NUMBA)], ids=["vm", "numba"])
@pytest.mark.parametrize("case", CASES)
def test_compiled(case: str, mode: Any) -> None:
    graph = graph_of(repeated(CASES[case]))
    work, _ = optimized(graph, "push-out")
    data = arguments(graph, **POINT)
    wanted = evaluate(graph.inputs, graph.outputs, data)
    for old, new in zip(wanted, compiled(work.inputs, work.outputs, mode)(*data), strict=True):
        assert_close(old, new)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_derivatives(case: str, order: int) -> None:
    """Of the graph before, and by the pass of those graphs."""
    cost = repeated(CASES[case])
    for _ in range(order):
        cost = sum(pt.sum(g * g) for g in pytensor.grad(cost, [x, a, b]))
    graph = graph_of(cost)
    work, _ = optimized(graph, "push-out")
    assert_same_values(graph, work, **POINT)


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("preset", ["grad", "loop"])
def test_gradients_by_the_matrix_leave_products_to_no_loop(preset: str, levels: int) -> None:
    """Backward, ``(c * E) @ W.T`` stayed in the innermost loop, where ``c`` alone varies."""

    def loops(y: Any, w: Any, left: int) -> Any:
        def step(y: Any, w: Any) -> Any:
            return pt.tanh(y * pt.exp(w @ w).sum() / 9) if left == 1 else loops(y, w, left - 1)

        return scan(step, outputs_info=[y], non_sequences=[w], n_steps=3)[-1]

    graph = graph_of(pytensor.grad(loops(x, w, levels), w))
    work, _ = optimized(graph, preset)
    assert products(graph)
    assert products(work) == 0
    assert_same_values(graph, work, **POINT)
