"""scan-to-loop of batched Scans: what all entries of the batch share is computed once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.graph.replace import vectorize_graph

from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.loop import TracedLoop
from support.compiled_ways import BACKENDS, NUMBA, VM, compiled, optimized_by
from support.filters import (
    MATRICES,
    YS,
    A,
    P,
    Q,
    R,
    Y,
    assert_same,
    filtered,
    state_ranks,
    values,
)
from support.graph_building import scan
from support.tiers import examples

INPUTS = [YS, *MATRICES]
SHAPES = ((4, 6), (1, 5), (3, 1), (2, 0))


@pytest.mark.parametrize("pipeline", ["scan-to-loop", "loop"])
@pytest.mark.parametrize("mode", [VM, NUMBA], ids=["VM", "NUMBA"])
def test_the_covariance_of_filters(pipeline: str, mode: Any) -> None:
    outputs = vectorize_graph(filtered(Y), {Y: YS})
    graph = optimized_by(INPUTS, outputs, pipeline)
    assert state_ranks(graph) == [[2, 2, 1]]
    assert_same(INPUTS, outputs, [values(shape) for shape in SHAPES], [mode], pipeline)


@pytest.mark.deep
@pytest.mark.parametrize("pipeline", ["scan-to-loop", "loop"])
def test_its_derivatives(pipeline: str) -> None:
    (total,) = vectorize_graph([filtered(Y)[2][-1]], {Y: YS})
    first = pt.grad((total**2).sum(), [A, Q, R, P, YS])
    second = pt.grad(first[0].sum() + first[4].sum(), [A, YS])
    data = [values(shape) for shape in SHAPES[:3]]
    assert_same(INPUTS, [total, *first, *second], data, [VM], pipeline, tolerance=1e-7)
    graph = optimized_by(INPUTS, [total, *first], pipeline)
    assert [2, 2, 1] in state_ranks(graph) or [2, 2] in state_ranks(graph)


def test_the_covariance_in_their_gradients() -> None:
    """The backward loop reads the covariances of one entry, of which it computes the gains once."""
    (total,) = vectorize_graph([filtered(Y)[2][-1]], {Y: YS})
    graph = optimized_by(INPUTS, [total.sum(), *pt.grad(total.sum(), [A, Q])], "scan-to-loop")
    loops = [node for node in walk(graph.fgraph) if isinstance(node.op, TracedLoop)]
    assert len(loops) >= 2
    assert all(v.type.ndim < 4 for node in loops for v in node.op.split(node.inputs)[2])


def shared_series(other: Any) -> tuple[list[Any], list[Any]]:
    """Return the inputs and outputs of loops over the sum of a series, as often as said, and y."""
    count, y = pt.lscalar("count"), pt.dvector("y")
    series = pt.alloc(y, count, y.shape[0]) + pt.alloc(y, other(count), y.shape[0])
    last = scan(lambda v, m: 0.5 * m + v, sequences=[Y], outputs_info=[R])[-1]
    total = vectorize_graph(last, {Y: series})
    return [count, y, R], [total]


def test_sums_of_what_entries_share() -> None:
    inputs, outputs = shared_series(lambda count: count)
    assert state_ranks(optimized_by(inputs, outputs, "scan-to-loop")) == [[0]]
    data = [[np.int64(n), np.arange(4.0), np.array(1.0)] for n in (1, 3)]
    assert_same(inputs, outputs, data, [VM, NUMBA], "scan-to-loop")


def test_twin_sums_of_batches_that_may_differ() -> None:
    inputs, outputs = shared_series(lambda count: abs(count - 6))
    graph = optimized_by(inputs, outputs, "scan-to-loop")
    assert state_ranks(graph) == [[1]]
    function = compiled(graph.inputs, graph.outputs, VM)
    y, start = np.arange(4.0), np.array(1.0)
    assert function(np.int64(3), y, start)[0].shape == (3,)
    with pytest.raises((ValueError, AssertionError), match=r"broadcast|shape"):
        function(np.int64(2), y, start)


def test_twins_a_start_or_a_matrix_of_each_entry() -> None:
    starts, matrices = pt.dtensor3("starts"), pt.dtensor3("matrices")
    rng = np.random.default_rng(0)
    many = rng.normal(size=(4, 3, 3))
    many = 0.1 * many @ many.transpose(0, 2, 1)
    for own, stack in ((P, starts), (Q, matrices)):
        outputs = vectorize_graph(filtered(Y), {Y: YS, own: stack})
        inputs = [stack, *INPUTS]
        assert state_ranks(optimized_by(inputs, outputs, "scan-to-loop")) == [[2, 3, 1]]
        assert_same(inputs, outputs, [[many, *values((4, 6))]], [VM], "scan-to-loop")


def test_twin_a_state_that_reads_what_each_entry_has() -> None:
    def fn(y: Any, m: Any, p: Any, q: Any) -> list[Any]:
        return [m + p.sum(), p @ q + 0.1 * y]

    outputs = scan(fn, sequences=[Y], outputs_info=[R, P], non_sequences=[Q])
    outputs = vectorize_graph(outputs, {Y: YS})
    assert state_ranks(optimized_by(INPUTS, outputs, "scan-to-loop")) == [[1, 3]]
    assert_same(INPUTS, outputs, [values(shape) for shape in SHAPES], [VM], "scan-to-loop")


_UPDATES = [
    lambda y, m, p, q: p @ q / 3,
    lambda y, m, p, q: pt.tanh(p) + q,
    lambda y, m, p, q: p.T - 0.1 * q,
    lambda y, m, p, q: 0.3 * p + y,
    lambda y, m, p, q: 0.3 * p + pt.tanh(m),
]


@pytest.mark.tiered
@settings(max_examples=examples(2, 16))
@given(
    update=st.sampled_from(_UPDATES),
    shape=st.sampled_from([(3, 4), (1, 3), (2, 1), (2, 0)]),
    own=st.sampled_from([{}, {P}, {Q}]),
)
@pytest.mark.parametrize("mode", BACKENDS)
def test_generated_batches(mode: Any, update: Any, shape: tuple[int, int], own: Any) -> None:
    def fn(y: Any, m: Any, p: Any, q: Any) -> list[Any]:
        return [0.5 * m + y * pt.tanh(p).sum(), update(y, m, p, q), p[0, 0] * 2]

    outputs = scan(fn, sequences=[Y], outputs_info=[R, P, None], non_sequences=[Q])
    if shape[1]:
        outputs = [
            *outputs,
            *pt.grad(outputs[0].sum() + outputs[2].sum(), [P, Q, Y], disconnected_inputs="ignore"),
        ]
    stacks = {v: pt.dtensor3() for v in own}
    batched = vectorize_graph(outputs, {Y: YS, **stacks})
    data = values(shape)
    arrays = [np.stack([np.eye(3) * (i + 1) for i in range(shape[0])]) for _ in stacks]
    inputs = [*stacks.values(), *INPUTS]
    assert_same(inputs, batched, [[*arrays, *data]], [mode], "scan-to-loop", tolerance=1e-7)
