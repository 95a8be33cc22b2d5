"""clean-ofg: generators, batches, and classes that others match."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.blockwise import Blockwise

from support.cleaned_layers import PASS, assert_left, assert_mended
from support.compiled_ways import VM, compiled
from support.graph_building import graph_of, optimized
from support.layers import (
    FIVE,
    MODES,
    P,
    Q,
    U,
    V,
    W,
    X,
    Y,
    assert_equal_values,
    ends,
    layer,
)

HALF_READ = layer(pt.exp(P), pt.sin(Q), P * 3)


def test_next_generators_stay_with_their_draws() -> None:
    """PyMC looks for the next generator among the outputs of an OpFromGraph."""
    rng, other = (pytensor.shared(np.random.default_rng(seed)) for seed in (1, 2))
    r, o = rng.type(), other.type()
    after_r, draw = pt.random.normal(P, rng=r, return_next_rng=True)
    after_o, more = pt.random.normal(draw, rng=o, return_next_rng=True)
    op = layer(after_r, draw, after_o, more, inputs=(r, o, P))
    graph = graph_of(op(rng, other, V)[1])
    after, _ = optimized(graph, PASS)
    assert ends(after) == [(2, 2)]  # without the second draw and its generator
    kept, _ = optimized(graph_of(op(rng, other, V)[3]), PASS)
    assert ends(kept) == [(3, 3)]
    values = [compiled(g.inputs, g.outputs, VM)(0.3)[0] for g in (graph, after)]
    assert values[0] == values[1]


@pytest.mark.pymc
def test_pymc_finds_the_next_generators() -> None:
    from pymc.pytensorf import collect_default_updates

    rng = pytensor.shared(np.random.default_rng(1))
    r = rng.type()
    after, draw = pt.random.normal(P, rng=r, return_next_rng=True)
    graph = graph_of(layer(after, draw, draw * 2, pt.exp(Q), inputs=(r, P, Q))(rng, V, W)[2])
    cleaned, _ = optimized(graph, PASS)
    assert ends(cleaned) == [(2, 2)]
    for each in (graph, cleaned):
        ((found, update),) = collect_default_updates(each.outputs).items()
        assert found is rng
        assert update.owner is each.outputs[0].owner


def test_equal_generators_are_not_merged() -> None:
    rng = pytensor.shared(np.random.default_rng(1))
    r = rng.type()
    after, draw = pt.random.normal(P, rng=r, return_next_rng=True)
    graph = graph_of(*layer(after, after, r, draw, draw, inputs=(r, P))(rng, V))
    assert ends(optimized(graph, PASS)[0]) == [(2, 4)]  # one draw


@pytest.mark.parametrize("mode", MODES, ids=["vm", "numba"][: len(MODES)])
def test_blockwise(mode: Any) -> None:
    batched = vectorize_graph(HALF_READ(V, W)[0], {V: X, W: Y})
    after = assert_mended(batched * 2, left=[(1, 1)])
    assert_equal_values(graph_of(batched * 2), after, mode)
    with_core = layer(pt.exp(P) * FIVE, pt.sin(Q), inputs=(P, Q, FIVE))
    batched = Blockwise(with_core, signature="(),(),(a)->(a),()")(X, Y, FIVE)[0]
    assert_mended(batched, left=[(2, 1)])


def test_blockwise_twin_an_input_alone_carries_the_batch() -> None:
    batched = vectorize_graph(layer(pt.exp(P))(V, W), {W: Y})
    assert_left(batched, why="it alone carries a batch dimension")
    told = vectorize_graph(layer(pt.exp(P))(V, W), {V: X, W: FIVE})
    assert_left(told, why="it alone carries a batch dimension")


def test_blockwise_and_plain_share_what_they_need() -> None:
    """One node needs an input for its batch, so that all keep it."""
    op = layer(pt.exp(P), P * Q)
    batched = vectorize_graph(op(V, W)[0], {W: Y})
    graph = graph_of(batched, op(U, V)[0])
    after, _ = optimized(graph, PASS)
    assert ends(after) == [(2, 1), (2, 1)]
    assert_equal_values(graph, after)


@pytest.mark.parametrize("mode", MODES, ids=["vm", "numba"][: len(MODES)])
def test_blockwise_cases_3_to_5(mode: Any) -> None:
    op = layer(X, P * X.sum(), X.sum() * P, Q + P, inputs=(P, Q, X))
    made = vectorize_graph(op(V, V, FIVE)[:], {V: Y})
    graph = graph_of(*made)
    after, _ = optimized(graph, PASS)
    assert ends(after) == [(2, 3)]  # the vector is broadcast, not passed on
    assert_equal_values(graph, after, mode)
    twice = layer(X.sum() + Y, inputs=(X, Y))
    twice_given = Blockwise(twice, signature="(a),(b)->(b)")(FIVE, FIVE)
    assert ends(optimized(graph_of(twice_given), PASS)[0]) == [(2, 1)]
    twice_given = Blockwise(twice, signature="(a),(b)->(a)")(FIVE, FIVE)
    graph = graph_of(twice_given)
    after, _ = optimized(graph, PASS)
    assert ends(after) == [(1, 1)]
    assert_equal_values(graph, after, mode)


def test_the_class_of_another_package_stays() -> None:
    """Einsum is matched by its class, and so is what PyTensor makes for a Kronecker product."""
    matrix = pt.dmatrix("m")
    for made in (pt.einsum("ij,jk->ik", matrix, matrix), pt.linalg.kron(matrix, matrix)):
        graph = graph_of(made.sum())
        after, remarks = optimized(graph, PASS)
        assert ends(after) == ends(graph)
        assert not remarks
