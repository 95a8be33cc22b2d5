"""clean-ofg: its legal cases by number, and a twin that must not fire for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.gradient import DisconnectedInputError, disconnected_type
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise

import scanopt_cli as so
from scanopt_cli.ir.graph import Graph
from scanopt_cli.ir.inner_graphs import core_op, walk
from scanopt_cli.rules.graph_checking import check
from support.compiled_ways import NUMBA, VM, compiled
from support.graph_building import graph_of, optimized, scan
from support.tiers import deep

PASS = "clean-ofg"
MODES = [VM, *deep(NUMBA)]
V, W, U = pt.dscalars("v", "w", "u")
X, Y = pt.dvectors("x", "y")
FIVE = pt.tensor("five", shape=(5,))
P, Q = pt.dscalars("p", "q")
VALUES: dict[str, Any] = {
    "v": 0.3,
    "w": 0.7,
    "u": -1.2,
    "x": np.array([0.3, 0.5, -0.2, 1.1, 2.0]),
    "y": np.array([1.0, 0.5, 2.0, -1.0, 0.1]),
    "five": np.arange(5.0),
}


def layer(*outputs: Any, inputs: Any = (P, Q), **more: Any) -> OpFromGraph:
    return OpFromGraph(list(inputs), list(outputs), name="layer", **more)


HALF_READ = layer(pt.exp(P), pt.sin(Q), P * 3)


def ends(graph: Graph) -> list[tuple[int, int]]:
    """How many inputs and outputs each OpFromGraph has, at any depth."""
    return sorted(
        (len(node.inputs), len(node.outputs))
        for node in walk(graph.fgraph)
        if isinstance(core_op(node.op), OpFromGraph)
    )


def assert_mended(*outputs: Any, left: list[tuple[int, int]]) -> Graph:
    """Check what is left, that values stay, and that nothing more is found."""
    graph = graph_of(*outputs)
    assert any(f.fix is not None for f in check(graph, select=["O001"]).findings)
    after, _ = optimized(graph, PASS)
    assert ends(after) == left
    assert not [f for f in check(after, select=["O001"]).findings if f.fix is not None]
    assert_equal_values(graph, after)
    assert not optimized(after, PASS)[1]
    return after


def assert_equal_values(graph: Graph, after: Graph, mode: Any = VM) -> None:
    values = [VALUES[v.name] for v in graph.inputs]
    wanted = compiled(graph.inputs, graph.outputs, mode)(*values)
    got = compiled(after.inputs, after.outputs, mode)(*values)
    for old, new in zip(wanted, got, strict=True):
        assert old.shape == new.shape
        np.testing.assert_allclose(new, old, rtol=1e-14)


def assert_left(*outputs: Any, why: str) -> None:
    """Check that nothing is rewritten, that a remark says why, and that the finding has no fix."""
    graph = graph_of(*outputs)
    after, remarks = optimized(graph, PASS)
    assert ends(after) == ends(graph)
    assert [remark.partition(": nobody reads ")[2].partition(", but: ")[2] for remark in remarks]
    assert all(why in remark for remark in remarks)
    findings = check(graph, select=["O001"]).findings
    assert findings
    assert all(finding.fix is None for finding in findings)


def test_cases_1_and_2_outputs_and_what_they_alone_read() -> None:
    first, _, third = HALF_READ(V, pt.tanh(W))
    after = assert_mended(first - third, left=[(1, 2)])
    assert not any(
        isinstance(node.op, Elemwise) and node.op.scalar_op.name == "tanh"
        for node in after.fgraph.apply_nodes
    )
    (node,) = (n for n in after.fgraph.apply_nodes if isinstance(n.op, OpFromGraph))
    assert node.op.name == "layer"
    remarks = optimized(graph_of(first - third), PASS)[1]
    assert remarks == [
        "passed graph: removed input 1 and output 1 of `layer`, which nobody reads",
    ]


def test_twin_all_ends_are_read() -> None:
    graph = graph_of(sum(HALF_READ(V, W)))
    assert not optimized(graph, PASS)[1]
    assert not check(graph, select=["O001"]).findings


def test_case_1_twin_an_equal_one_has_a_reader() -> None:
    """PyTensor makes one node of both, which computes what they share once."""
    op = layer(pt.exp(P) + Q, pt.exp(P) * Q)
    one, two = op(V, W)[0], op(V, W)[1]
    assert not optimized(graph_of(one * two), PASS)[1]
    assert not check(graph_of(one * two), select=["O001"]).findings
    other = op(V, U)[1]
    assert_mended(one * other, left=[(2, 1), (2, 1)])


def test_case_2_an_output_that_is_an_input_reads_it() -> None:
    op = layer(P, pt.exp(P))
    assert_mended(op(V, W)[0] * 2, left=[(1, 1)])


def test_what_feeds_it_goes_in_turn() -> None:
    inner = HALF_READ(V, W)
    op = layer(pt.cos(P))
    assert_mended(op(inner[0], inner[1]), left=[(1, 1), (1, 1)])


def test_in_a_body_and_in_a_loop() -> None:
    nested = layer(HALF_READ(P, Q)[0])
    assert_mended(nested(V, W) + 1, left=[(1, 1), (1, 1)])
    ys = scan(lambda s, w: HALF_READ(s, w)[2] / 4, outputs_info=[V], non_sequences=[W], n_steps=3)
    graph = graph_of(ys)
    after, _ = optimized(graph, PASS)
    assert ends(after) == [(1, 1)]
    assert_equal_values(graph, after)
    assert not check(after, select=["O001"]).findings


@pytest.mark.parametrize("mode", MODES, ids=["vm", "numba"][: len(MODES)])
def test_gradients_before_and_after(mode: Any) -> None:
    """A pullback reads the inputs, outputs and cotangents that its OpFromGraph has, all of them."""
    first, _, third = HALF_READ(V, W)
    cost = first * third
    graph = graph_of(pt.grad(cost, V), cost)
    after, _ = optimized(graph, PASS)
    assert ends(after) == [(1, 2), (3, 1)]
    assert_equal_values(graph, after, mode)
    mended = so.optimize(([V, W], [cost]), PASS).graph
    later = pt.grad(mended.outputs[0], mended.inputs[0])
    wanted = compiled([V, W], [pt.grad(cost, V)], mode)(0.3, 0.7)
    assert compiled(mended.inputs, [later], mode)(0.3, 0.7) == wanted


def test_what_was_not_connected_still_is_not() -> None:
    cost = HALF_READ(V, W)[0]
    with pytest.raises(DisconnectedInputError):
        pt.grad(cost, W)
    graph = so.optimize(([V, W], [cost]), PASS).graph
    with pytest.raises(DisconnectedInputError):
        pt.grad(graph.outputs[0], graph.inputs[1])


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


def given_gradient(inputs: Any, outputs: Any, cotangents: Any) -> Any:
    return [cotangents[0] * 2, disconnected_type()]


def tangents(inputs: Any, given: Any) -> Any:
    return [given[0] * 2]


class Own(OpFromGraph):
    """A program's own class."""


@pytest.mark.parametrize(
    ("op", "why"),
    [
        (layer(pt.exp(P), pullback=given_gradient), "its gradient is given"),
        (layer(pt.exp(P), pushforward=tangents), "its gradient is given"),
        (layer(pt.exp(P), connection_pattern=[[True], [True]]), "depend on which inputs"),
        (Own([P, Q], [pt.exp(P)], name="layer"), "its class, Own"),
        (layer(pt.exp(P), destroy_map={0: (0,)}), "it works in place"),
        (layer(Elemwise(pt.exp.scalar_op, {0: 0})(P + 1)), "it works in place"),
        (layer(pt.constant(1.0), inputs=(P,)), "keeps one input"),
    ],
    ids=["pullback", "pushforward", "pattern", "class", "in place", "body in place", "one"],
)
def test_twins_that_stay(op: OpFromGraph, why: str) -> None:
    assert_left(op(*(V, W)[: len(op.input_types)]) + 1, why=why)


def test_one_of_no_input_that_is_read_keeps_one() -> None:
    graph = graph_of(layer(pt.constant(1.0) + 2)(V, W))
    after, _ = optimized(graph, PASS)
    assert ends(after) == [(1, 1)]
    assert_equal_values(graph, after)


def test_what_pytensor_inlines_or_makes_stays_without_a_remark() -> None:
    assert not optimized(graph_of(layer(pt.exp(P), inline=True)(V, W)), PASS)[1]
    assert not optimized(graph_of(pt.grad(pt.logsumexp(X * 2), X)), PASS)[1]


def test_a_layer_without_inputs() -> None:
    one = layer(pt.constant(2.0) + pt.constant(1.0), pt.exp(pt.constant(0.5)), inputs=())
    first, _ = one(return_list=True)
    assert_mended(first * V, left=[(0, 1)])
