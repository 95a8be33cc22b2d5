"""Tangents go through Ops that PyTensor itself has no pushforward for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.conditional.op import ifelse
from pytensor.gradient import disconnected_grad, grad_scale, pushforward, zero_grad
from pytensor.graph.replace import vectorize_graph
from pytensor.raise_op import Assert

from scanopt_cli.analysis.provenance.inference import TimeDirection
from scanopt_cli.autodiff.differentiating import grad
from scanopt_cli.autodiff.forward import jvp
from scanopt_cli.autodiff.pedigree.pedigree import pedigree
from scanopt_cli.autodiff.pushforward_rules import TangentError
from support.evaluating import evaluate
from support.graph_building import graph_of, power, scan

x = pt.dscalar("x")
v = pt.dvector("v")
A = pt.dmatrix("A")
T = pt.dtensor3("T")
S = A @ A.T + 3 * pt.eye(3)
_RNG = np.random.default_rng(0)
POINT = {
    "x": np.array(0.4),
    "v": np.array([0.3, -0.7, 1.2]),
    "A": _RNG.normal(size=(3, 3)),
    "T": _RNG.normal(size=(2, 3, 3)),
}
OUTPUTS = {
    "matmul": A @ A,
    "matmul of a batch": T @ A,
    "matrix times vector": A @ v,
    "Cholesky": pt.linalg.cholesky(S),
    "Cholesky of a batch": pt.linalg.cholesky(T @ T.transpose(0, 2, 1) + pt.eye(3)),
    "solve, both sides moving": pt.linalg.solve(S, v),
    "triangular": pt.linalg.solve_triangular(pt.linalg.cholesky(S), v, lower=True),
    "expm": pt.linalg.expm(A),
    "inverse": pt.linalg.inv(S),
    "product": A.prod(axis=0),
    "cumsum": pt.cumsum(v),
    "cumsum of a batch": vectorize_graph(pt.cumsum(v), {v: A}),
    "sorted": pt.sort(v),
    "a power of a negative base": v**2,
    "gathered and added": pt.inc_subtensor(v[[0, 2, 0]], v),
    "written": pt.set_subtensor(A[0], v),
    "alloc": pt.alloc(x, 2, 3),
    "joined": pt.join(0, v, v * x),
    "branches": ifelse(x > 0, v * 2, v * v),
    "asserted": Assert("small")(v * 2, pt.all(v < 10)),
    "log softmax": pt.special.log_softmax(v),
    "range of floats": pt.arange(x, x + 3.0, 1.0),
    "no gradient": zero_grad(v) * v,
    "disconnected": disconnected_grad(v) * v,
    "scaled": grad_scale(v, 2.0) * v,
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_tangents_agree_with_reverse_mode(name: str) -> None:
    out: Any = OUTPUTS[name]
    graph = graph_of(out)
    weights = pt.cos(pt.arange(out.size)).reshape(out.shape, ndim=out.ndim)
    cost = (out * weights).sum()
    inputs = [u for u in (x, v, A, T) if str(u.name) in {str(i.name) for i in graph.inputs}]
    rng = np.random.default_rng(1)
    seeds = [pt.constant(rng.normal(size=POINT[str(u.name)].shape)) for u in inputs]
    slopes = pytensor.grad(cost, inputs, disconnected_inputs="ignore")
    wanted = sum((slope * seed).sum() for slope, seed in zip(slopes, seeds, strict=True))
    pushed = jvp([cost], [dict(zip(inputs, seeds, strict=True))])
    found = pushed.tangents[0][0]
    assert found is not None
    first, second = evaluate(inputs, [wanted, found], [POINT[str(u.name)] for u in inputs])
    np.testing.assert_allclose(second, first, rtol=1e-8)


def test_several_directions_share_one_loop() -> None:
    w = pt.dscalar("w")
    last = scan(lambda h, f: pt.sin(h * f), outputs_info=[x], non_sequences=[w], n_steps=3)[-1]
    one = pt.constant(1.0, dtype="float64")
    pushed = jvp([last], [{x: one}, {w: one}])
    nodes = {row[0].owner.inputs[0].owner.inputs[0].owner for row in pushed.tangents}  # type: ignore[union-attr]
    assert len(nodes) == 1
    values = [np.array(0.4), np.array(0.7)]
    wanted = evaluate([x, w], pytensor.grad(last, [x, w]), values)
    found = evaluate([x, w], [row[0] for row in pushed.tangents], values)  # type: ignore[misc]
    np.testing.assert_allclose(found, wanted)


def test_a_draw_has_no_tangent() -> None:
    rng = pytensor.shared(np.random.default_rng(0))
    with pytest.raises(TangentError, match=r"normal.* has no pushforward"):
        jvp([pt.random.normal(x, 1.0, rng=rng)], [{x: pt.ones_like(x)}])


def test_what_nothing_moves_has_no_tangent() -> None:
    pushed = jvp([v.sum(), x * 2], [{x: pt.ones_like(x)}])
    assert pushed.tangents[0][0] is None
    assert pushed.tangents[0][1] is not None


def test_tangents_of_pytensor_are_known_by_name_and_structure() -> None:
    start, xs = power(3)
    tangent = pushforward([xs[-1]], [start], [pt.ones_like(start)], use_op_pushforward=True)[0]
    (own,) = pedigree(graph_of(tangent)).scans
    assert (own.tangents_of, own.generation, own.direction) == ("square", 1, TimeDirection.FORWARD)


def test_a_loop_that_is_only_called_like_tangents_is_a_loop() -> None:
    out = scan(lambda h: h**2, outputs_info=[x], n_steps=3, name="rop_of_square")[-1]
    (own,) = pedigree(graph_of(out)).scans
    assert (own.tangents_of, own.generation) == (None, 0)


def test_the_transpose_of_a_pullback_copies_no_loop() -> None:
    """PyTensor has no pushforward of a cumulative sum, whose pullback reads its shape."""
    start, xs = power(3)
    found = grad(([start], [pt.cumsum(xs)[-1]]), 2, strategy="forward")
    assert [one.statistics.scans for one in found.orders] == [1, 1, 1]
    assert "rop_of_square" in str(found.pedigree)
