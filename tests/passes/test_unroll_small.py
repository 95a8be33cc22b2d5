"""`unroll-small`: a step computes small arrays entry by entry, and the same values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.gradient import DisconnectedGrad, disconnected_grad_
from pytensor.scan.utils import until
from pytensor.tensor import linalg
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import ProdWithoutZeros

from scanopt_cli.ir.graph import Graph
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.loop import Body, TracedLoop
from support.graph_building import assert_same_values, graph_of, optimized, scan
from support.unrolling import VALUES, a, b, h, n, rows, unrolled, weights, wide


def check(*outputs: Any) -> Graph:
    """Check that the pass keeps values, and return the graph."""
    graph = graph_of(*outputs)
    work, _ = unrolled(graph)
    assert_same_values(graph, work, **VALUES)
    return work


def arrays(graph: Graph) -> list[str]:
    """Return what the steps of a graph compute as arrays, other than for traces."""
    (op,) = (node.op for node in walk(graph.fgraph) if isinstance(node.op, TracedLoop))
    return sorted(
        str(type(node.op).__name__)
        for node in op.fgraph.toposort()
        if any(getattr(v.type, "ndim", 0) for v in node.outputs)
        and type(node.op).__name__ not in ("MakeVector", "Reshape")
    )


def definite(m: Any) -> Any:
    return m @ m.T + 0.1 * pt.eye(3)


# What a step makes of a matrix and a vector, both states.
MATRICES: dict[str, Callable[[Any, Any], Any]] = {
    # case 1
    "arithmetic": lambda m, v: pt.tanh(m * 2 - v),
    "sums": lambda m, v: m * 0.1 + m.sum(axis=0) + m.sum() + v.prod(),
    "extrema": lambda m, v: m.max(axis=1)[:, None] - m.min() + v.max() - m * 0.1,
    "all and any": lambda m, v: pt.where(pt.all(m > 0) | pt.any(v > 0), m * 0.9, m - 0.1),
    # case 2
    "transpose": lambda m, v: m.T + v[:, None],
    "reshape": lambda m, v: (m.reshape((9,)) * 0.5)[::-1].reshape((3, 3)) + v,
    "joins": lambda m, v: pt.concatenate([m[1:], v[None]]) * 0.9,
    "stacks": lambda m, v: pt.stack([m[0], v, m[:, 1]]) * 0.5,
    "writes": lambda m, v: pt.set_subtensor(m[1], v)[:, ::-1].inc(0.1) * 0.9,
    "indices": lambda m, v: m[[2, 0, 0]] * 0.5 + m[[0, 1, 2], [2, 1, 0]],
    "writes twice": lambda m, v: pt.inc_subtensor(m[[1, 1]], v) * 0.5,
    "adds once": lambda m, v: (
        m * 0.5 + pt.inc_subtensor(v[[0, 0, 1]], v * 0.3, ignore_duplicates=True)
    ),
    "masks": lambda m, v: m * 0.5 + v[pt.eq(pt.arange(3), 1)].sum(),
    "writes by a mask": lambda m, v: m * 0.5 + v[pt.neq(pt.arange(3), 1)].set(1.5),
    "adds by a mask": lambda m, v: m * 0.5 + v[v > v.mean()].inc(v[0]),
    "writes entries by a mask": lambda m, v: m[m > 0].set(-0.5) * 0.9,
    "writes rows by a mask": lambda m, v: m[v > 0].set(v.sum()) * 0.5 + v[v > 9].set(1),
    "writes a part of rows by a mask": lambda m, v: m[v > 0, 0].set(2) * 0.5,
    "writes many by a known mask": lambda m, v: (
        m * 0.5 + v[np.array([True, False, True])].set(v[1:] * 2)
    ),
    "writes many by a mask": lambda m, v: m * 0.5 + v[v > 0].set(2 * v[v > 0]),
    "writes a row where a mask says": lambda m, v: m[m[:, 0] > 0].set(v[None]) * 0.5,
    "products without zeros": lambda m, v: m * 0.5 + ProdWithoutZeros()(v * 0) + v,
    "empty arrays": lambda m, v: m * 0.5 + pt.diagonal(m, offset=3).sum() + v,
    "diagonals": lambda m, v: pt.diag(pt.diagonal(m)) * 0.5 + pt.eye(3) * v.sum(),
    # case 3
    "products": lambda m, v: pt.tanh(m @ m.T + pt.outer(v, m @ v) + (v @ m)),
    "inverse": lambda m, v: linalg.inv(definite(m)) * 0.1 + v,
    "inverse of what is not symmetric": lambda m, v: linalg.inv(m + 3 * pt.eye(3)[::-1]) + v,
    "determinant": lambda m, v: m * 0.5 + linalg.det(definite(m)[::-1]),
    "slogdet": lambda m, v: m * 0.5 + sum(linalg.SLogDet()(definite(m)[[1, 0, 2]])),
    "cholesky": lambda m, v: linalg.cholesky(definite(m)) * 0.5,
    "upper cholesky": lambda m, v: linalg.cholesky(definite(m), lower=False) * 0.5,
    "solve": lambda m, v: linalg.solve(definite(m)[::-1], m) * 0.1,
    "solve a vector": lambda m, v: m * 0.1 + linalg.solve(definite(m), v, b_ndim=1),
    "solve symmetric": lambda m, v: linalg.solve(definite(m), m, assume_a="sym") * 0.1,
    "solve definite": lambda m, v: linalg.solve(definite(m), m, assume_a="pos") * 0.1,
    "solve triangular": lambda m, v: linalg.solve_triangular(definite(m), m, lower=True) * 0.1,
    "solve unit": lambda m, v: linalg.solve_triangular(m, m, unit_diagonal=True) * 0.1,
    "solve by a factor": lambda m, v: linalg.cho_solve((pt.tril(definite(m)), True), m) * 0.1,
    # case 4
    "softmax": lambda m, v: pt.special.softmax(m, axis=1) + pt.special.log_softmax(v),
    "logsumexp": lambda m, v: pt.logsumexp(m + v[:, None], axis=0) - m,
    # case 5
    "batches": lambda m, v: m * 0.5 + (pt.stack([m[:2, :2], m[1:, 1:]]) @ m[1:, :2]).sum() + v,
}


# The same, where there is no result.
UNDEFINED: dict[str, Callable[[Any, Any], Any]] = {
    "no cholesky": lambda m, v: linalg.cholesky(-definite(m)),
    "solve what is singular": lambda m, v: linalg.solve(pt.outer(v, v) * 0, m),
    "solve what is not definite": lambda m, v: linalg.solve(-definite(m), m, assume_a="pos"),
    "triangular and singular": lambda m, v: linalg.solve_triangular(pt.tril(m, -1), m, lower=True),
}


@pytest.mark.parametrize("name", UNDEFINED)
def test_undefined_results_are_nan(name: str) -> None:
    step = UNDEFINED[name]
    ms, _, found = scan(
        lambda m, v: [m * 0.9, v * 0.9, step(m, v)], outputs_info=[a, h, None], n_steps=n
    )
    work = check(ms, found)
    assert arrays(work) == []


# Nodes that stay: masks, and sums of nothing.
_STAY = (
    *("masks", "writes many by a mask", "writes a row where a mask says", "empty arrays"),
    "writes a part of rows by a mask",
)


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("name", MATRICES)
def test_cases_1_to_5(name: str) -> None:
    step = MATRICES[name]
    ms, vs = scan(
        # A product, since arithmetic alone is faster of vectors.
        lambda m, v: [step(m, v) + (m @ v) * 0.01, v * 0.9],
        outputs_info=[a, h],
        n_steps=n,
    )
    work = check(ms[-1], vs, ms)
    assert bool(arrays(work)) is (name in _STAY)


def test_case_6() -> None:
    ys = scan(
        lambda row, y, b: pt.tanh(b @ y + row),
        sequences=[rows],
        outputs_info=[h],
        non_sequences=[b],
    )
    work = check(ys)
    assert arrays(work) == []


def test_integers_and_booleans() -> None:
    counts, flags = pt.vector("counts", dtype="int8", shape=(3,)), pt.vector("flags", dtype="bool")
    flags = pt.specify_shape(flags, (3,))
    ys, zs = scan(
        lambda y, z: [
            y + pt.cast(y.sum() // 7 + ProdWithoutZeros()(y) // 1000, "int8") + pt.cast(z, "int8"),
            z ^ (y > 3),
        ],
        outputs_info=[counts, flags],
        n_steps=3,
    )
    graph = graph_of(ys, zs)
    work, _ = unrolled(graph)
    given = {"counts": np.array([1, 50, -90], dtype="int8"), "flags": np.array([True, False, True])}
    assert_same_values(graph, work, **given)


def test_a_singular_inverse_is_an_error() -> None:
    ms = scan(lambda m: linalg.inv(m * 0), outputs_info=[a], n_steps=2)
    work, _ = unrolled(graph_of(ms))
    function = pytensor.function(list(work.inputs), list(work.outputs), mode="FAST_COMPILE")
    with pytest.raises(np.linalg.LinAlgError):
        function(VALUES["a"])


def test_a_zero_in_a_diagonal_matrix_is_no_error() -> None:
    """PyTensor, too, makes reciprocals of the diagonal."""
    vs = scan(lambda v: v * 0.5 + linalg.inv(pt.diag(v - 0.5))[2, 2], outputs_info=[h], n_steps=1)
    graph = graph_of(vs)
    work, _ = unrolled(graph)
    assert_same_values(graph, work, h=np.array([0.5, -1.2, 2.0]))


@pytest.mark.parametrize(
    "pipeline",
    [
        "scan-to-loop,trace-to-last,unroll-small{always=true}",
        "scan-to-loop,unroll-small{always=true},trace-to-last",
    ],
)
def test_only_what_is_traced_is_formed(pipeline: str) -> None:
    """The last value is formed after the loop."""
    ys = scan(lambda y, b: pt.tanh(b @ y), outputs_info=[h], non_sequences=[b], n_steps=4)
    graph = graph_of(ys[-1] * 2)
    work, _ = optimized(graph, f"{pipeline},remove-unused,merge-states")
    assert_same_values(graph, work, **VALUES)
    (op,) = (node.op for node in walk(work.fgraph) if isinstance(node.op, TracedLoop))
    assert op.n_states == 3
    assert {v.type.ndim for v in op.fgraph.outputs} == {0}


def test_while_loops() -> None:
    ys = scan(
        lambda y, b: (pt.tanh(b @ y) + 1, until(y.sum() > 2.9)),
        outputs_info=[h * 0],
        non_sequences=[b],
        n_steps=9,
    )
    check(ys, ys[-1])


def test_arrays_and_numbers_in_one_step() -> None:
    """A product with a wide array stays, and what feeds it is formed."""
    ys, zs = scan(
        lambda y, z, b, weights: [pt.tanh(b @ y) + z[:3], pt.tanh(weights @ y + z)],
        outputs_info=[h, wide],
        non_sequences=[b, weights],
        n_steps=4,
    )
    work = check(ys, zs)
    assert "Blockwise" in arrays(work)


def test_what_only_feeds_arrays_stays_an_array() -> None:
    """A row is not read entry by entry to be put together again, nor is a state."""
    ys, _ = scan(
        lambda row, z, y, weights: [pt.tanh(weights @ (row + y) + z), weights.T @ z],
        sequences=[rows],
        outputs_info=[wide, h],
        non_sequences=[weights],
    )
    work = check(ys)
    (op,) = (node.op for node in walk(work.fgraph) if isinstance(node.op, TracedLoop))
    assert op.n_states == 2


def test_states_that_change_their_shape_stay() -> None:
    index, state = pt.lscalar(), pt.dvector()
    body = Body(index=index, states=[state], next_states=[state[1:] * 2])
    graph = graph_of(TracedLoop.over(2, body, [h], {})[0])
    work, remarks = optimized(graph, "unroll-small{always=true}")
    assert not any(remark.startswith("passed") for remark in remarks)
    assert_same_values(graph, work, **VALUES)


x = pt.dvector("x", shape=(3,))
KEPT: dict[str, Any] = {
    "pullback": OpFromGraph([x], [x * 2], pullback=lambda _, __, cotangents: [cotangents[0] * 7]),
    "pushforward": OpFromGraph([x], [x * 2], pushforward=lambda _, tangents: [tangents[0] * 7]),
    "a view": disconnected_grad_,
    "a large operand": lambda y: OpFromGraph([x, wide], [x * 2 + wide[0]])(y, pt.ones(40)),
}


@pytest.mark.parametrize("name", KEPT)
def test_ops_that_stay(name: str) -> None:
    """Those have derivatives of their own, or an operand that is large."""
    graph = graph_of(scan(lambda y: KEPT[name](y) * 0.5, outputs_info=[h], n_steps=3))
    work = unrolled(graph)[0]
    kinds = OpFromGraph | DisconnectedGrad
    assert any(isinstance(node.op, kinds) for node in walk(work.fgraph))
    assert_same_values(graph, work, **VALUES)


def test_sums_of_one_term_and_copies_are_no_operations() -> None:
    ys = scan(lambda y: pt.fill(y * 3, y[:1].sum(axis=0)), outputs_info=[h], n_steps=2)
    work = check(ys)
    (op,) = (node.op for node in walk(work.fgraph) if isinstance(node.op, TracedLoop))
    assert not any(isinstance(node.op, Elemwise) for node in op.fgraph.apply_nodes)


ERRORS: dict[str, Callable[[Any], Any]] = {
    "a mask of another length": lambda y: y[y[:1] > -9].set(1.0),
    "a split into less": lambda y: pt.concatenate(
        [y[:2], *pt.split(y, pt.stack([y.shape[0] - 2] * 2), n_splits=2)]
    )[:3],
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_stay_errors(name: str) -> None:
    """Only the initial state is known to have three entries."""
    state = pt.dvector()
    body = Body(index=pt.lscalar(), states=[state], next_states=[ERRORS[name](state)])
    graph = graph_of(TracedLoop.over(2, body, [h], {})[0])
    work, _ = optimized(graph, "unroll-small{always=true}")
    for each in (graph, work):
        function = pytensor.function(list(each.inputs), list(each.outputs), mode="FAST_COMPILE")
        with pytest.raises((ValueError, IndexError)):
            function(VALUES["h"])
