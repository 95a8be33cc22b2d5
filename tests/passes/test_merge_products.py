"""`merge-products`: a vector is multiplied by several matrices in one product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytensor.tensor.math import Dot

import scanopt_cli as so
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.pipeline.grammar import PRESETS
from scanopt_cli.reports.remark_text import text_of
from support.evaluating import assert_same_outcomes, evaluate
from support.graph_building import scan
from support.tiers import deep

RUN = "scan-to-loop,merge-products"
U, V, W = pt.dmatrices("u", "v", "w")
H, K = pt.dvectors("h", "k")
INPUTS = [H, K, U, V, W]


def sigmoid(x: Any) -> Any:
    return pt.sigmoid(x)


def lasting(step: Callable[..., Any], n_steps: int = 3) -> Graph:
    """The last two states of a loop."""
    states = scan(step, outputs_info=[H, K], non_sequences=[U, V, W], n_steps=n_steps)
    return from_io(INPUTS, [states[0][-1], states[1]])


def values(n: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(n)
    return [rng.normal(size=s) for s in ((n,), (n,), (n, n), (n, n), (n, n))]


def check(graph: Graph, pipeline: str = RUN, arguments: Any = None) -> tuple[Graph, list[str]]:
    """Run the pass and compare values; return the result and the remarks."""
    result = so.optimize(graph, pipeline)
    arguments = values() if arguments is None else arguments
    assert_same_outcomes(
        *(evaluate(list(g.inputs), list(g.outputs), arguments) for g in (graph, result.graph))
    )
    (run,) = (run for run in result.passes if run.name == "merge-products")
    return result.graph, [text_of(remark) for remark in run.remarks]


def products(graph: Graph) -> int:
    """Count the products in bodies."""
    inside = set(walk(graph.fgraph)) - set(graph.fgraph.apply_nodes)
    return sum(isinstance(getattr(node.op, "core_op", node.op), Dot) for node in inside)


def _both(vector: Any, u: Any, w: Any) -> Any:
    return (u @ vector) * (w @ vector)


CASES: dict[str, tuple[Callable[..., Any], int, list[str]]] = {
    "1: two matrices": (
        lambda h, k, u, v, w: [sigmoid(u @ h) * pt.tanh(v @ h), k],
        *(1, ["computes 2 products of a vector as one"]),
    ),
    "1: a transposed matrix": (
        lambda h, k, u, v, w: [sigmoid(u.T @ h) * pt.tanh(v @ h), k],
        *(1, ["computes 2 products of a vector as one"]),
    ),
    "2: the vector on the left": (
        lambda h, k, u, v, w: [sigmoid(h @ u) * pt.tanh(v @ h) + h @ w, k],
        *(1, ["computes 3 products of a vector as one"]),
    ),
    "products of products": (
        lambda h, k, u, v, w: [_both(pt.tanh(v @ h), u, w) + w @ h, k],
        *(2, ["computes 2 products of a vector as one (2 times)"]),
    ),
    "of two states": (
        lambda h, k, u, v, w: [pt.tanh(u @ h + v @ k), pt.tanh(w @ h + u @ k)],
        *(2, ["computes 2 products of a vector as one (2 times)"]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_cases(name: str) -> None:
    step, left, expected = CASES[name]
    graph, remarks = check(lasting(step))
    assert products(graph) == left
    assert len(remarks) >= 1
    assert all("of a vector as one" in remark for remark in remarks)
    if left == 1:
        assert remarks == expected


LEFT: dict[str, Callable[..., Any]] = {
    "of different vectors": lambda h, k, u, v, w: [pt.tanh(u @ h), pt.tanh(v @ k)],
    "by a matrix that changes": lambda h, k, u, v, w: [
        pt.tanh(u @ h) + (v * k.sum()) @ h,
        k,
    ],
    "of matrices": lambda h, k, u, v, w: [pt.tanh((u @ v) @ h) + (u @ w).sum(), k],
}


@pytest.mark.parametrize("name", LEFT)
def test_what_stays(name: str) -> None:
    before = products(so.optimize(lasting(LEFT[name]), "scan-to-loop").graph)
    graph, remarks = check(lasting(LEFT[name]))
    assert products(graph) == before
    assert remarks == []


def test_other_dtypes_stay() -> None:
    h, u, v = pt.lvector("h"), pt.lmatrix("u"), pt.lmatrix("v")
    ys = scan(lambda h, u, v: u @ h - v @ h, outputs_info=h, non_sequences=[u, v], n_steps=3)
    graph = from_io([h, u, v], [ys[-1]])
    numbers = [np.arange(2), np.arange(4).reshape(2, 2), np.eye(2, dtype="int64")]
    _, remarks = check(graph, arguments=numbers)
    assert remarks == []


def test_matrices_of_other_heights() -> None:
    def step(h: Any, k: Any, u: Any, v: Any, w: Any) -> Any:
        return [pt.tanh(u @ h + (v @ h).sum() * k), k]

    h, k, u, _, w = values()
    graph, _ = check(lasting(step), arguments=[h, k, u, np.ones((5, 3)), w])
    assert products(graph) == 1


def test_shapes_that_do_not_fit() -> None:
    graph = lasting(CASES["1: two matrices"][0])
    result = so.optimize(graph, RUN).graph
    h, k, u, v, w = values()
    for one in (graph, result):
        first = evaluate(list(one.inputs), [one.outputs[0]], [h, k, u[:, :2], v, w])
        assert "ValueError" in str(first)


def test_once_is_enough() -> None:
    graph, _ = check(lasting(CASES["1: two matrices"][0]))
    again = so.optimize(graph, "merge-products")
    assert not again.changed


def test_the_preset_merges() -> None:
    graph = lasting(CASES["1: two matrices"][0])
    assert "merge-products" in PRESETS["loop"]
    result, remarks = check(graph, PRESETS["loop"])
    assert remarks == ["computes 2 products of a vector as one"]
    assert products(result) == 1


@pytest.mark.parametrize(
    ("mode", "known"), [("vm", True), *deep(("NUMBA", True), ("NUMBA", False))]
)
def test_gradients(mode: Any, known: bool) -> None:
    shapes = [(4,), (4,), (4, 4), (4, 4), (4, 4)]
    inputs = [
        pt.tensor(dtype="float64", shape=shape if known else (None,) * len(shape))
        for shape in shapes
    ]
    h, k, *weights = inputs
    ys, _ = scan(
        lambda h, k, u, v, w: [sigmoid(u @ h) * h + pt.tanh(v @ (sigmoid(w @ h) * h)), k],
        outputs_info=[h, k],
        non_sequences=weights,
        n_steps=5,
    )
    graph = from_io(inputs, [*pytensor.grad((ys**2).sum(), [h, *weights])])
    result = so.optimize(graph, PRESETS["loop"].replace("unroll-small,", "")).graph
    functions = [
        pytensor.function(list(g.inputs), list(g.outputs), mode=m, on_unused_input="ignore")
        for g, m in (
            (graph, "FAST_COMPILE"),
            (result, mode if mode == "NUMBA" else pytensor.compile.mode.Mode("vm", "fast_run")),
        )
    ]
    for expected, found in zip(*(f(*values(4)) for f in functions), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@given(st.data())
def test_any_products(data: Any) -> None:
    """Of any vectors, matrices, sides; of vectors that other products make."""

    def step(h: Any, k: Any, *matrices: Any) -> Any:
        vectors = [h, k]
        for _ in range(data.draw(st.integers(1, 5))):
            vector = data.draw(st.sampled_from(vectors))
            matrix = data.draw(st.sampled_from(matrices))
            matrix = matrix.T if data.draw(st.booleans()) else matrix
            made = vector @ matrix if data.draw(st.booleans()) else matrix @ vector
            vectors.append(pt.tanh(made))
        return [vectors[-1], vectors[data.draw(st.integers(0, len(vectors) - 1))] * 0.5]

    check(lasting(step))
