"""inline-ofg: its legal cases by number, and a twin that must not fire for each precondition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.gradient import DisconnectedInputError
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.elemwise import Elemwise

import scanopt_cli as so
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.inner_graphs import core_op, walk
from scanopt_cli.ir.scan_view import is_loop
from scanopt_cli.pipeline.grammar import PRESETS
from support.compiled_ways import VM, compiled
from support.graph_building import graph_of, optimized, scan
from support.layers import (
    FIVE,
    MODES,
    Own,
    P,
    Q,
    U,
    V,
    W,
    X,
    Y,
    assert_equal_values,
    given_gradient,
    layer,
)

PASS = "inline-ofg"
ONCE = "inline-ofg{size=0}"
SMALL = layer(pt.exp(P) * Q, Q - P)


def n_graphs(graph: Graph) -> int:
    return sum(isinstance(core_op(node.op), OpFromGraph) for node in walk(graph.fgraph))


def assert_inlined(*outputs: Any, pipeline: str = PASS, left: int = 0) -> Graph:
    graph = graph_of(*outputs)
    assert n_graphs(graph) > left
    after, _ = optimized(graph, pipeline)
    assert n_graphs(after) == left
    assert_equal_values(graph, after)
    return after


def assert_kept(*outputs: Any, why: str = "", pipeline: str = PASS) -> None:
    """Check that nothing is rewritten, and that a remark says why, if there is a reason."""
    graph = graph_of(*outputs)
    after, remarks = optimized(graph, pipeline)
    assert n_graphs(after) == n_graphs(graph)
    assert bool(remarks) == bool(why)
    assert all("keeps `layer" in remark and why in remark for remark in remarks)


def long_sum(p: Any) -> Any:
    for number in range(12):
        p = pt.sin(p + number)
    return p


def test_case_1_applied_once() -> None:
    assert_inlined(layer(long_sum(P))(V, W))
    assert_inlined(SMALL(V, W)[0], pipeline=ONCE)


def test_case_1_twin_applied_twice() -> None:
    op = layer(long_sum(P) * Q)
    assert_kept(op(V, W) + op(W, V))
    # Once in the graph and once in a body, or by an equal Op.
    ys = scan(lambda s, w: op(s, w), outputs_info=[V], non_sequences=[W], n_steps=3)
    assert_kept(op(V, W) + ys[-1])
    assert_kept(op(V, W) + layer(long_sum(P) * Q)(W, V))
    # A node in a body that two loops run is one.
    assert_inlined(ys[-1])


def test_case_2_small_wherever_it_is() -> None:
    ys = scan(lambda s, w: SMALL(s, w)[1] / 4, outputs_info=[V], non_sequences=[W], n_steps=3)
    nested = layer(SMALL(P, Q)[0] + Q)
    after = assert_inlined(ys[-1] + nested(V, U) * nested(U, V) + SMALL(V, W)[0])
    assert not any(remark.startswith("missed") for remark in optimized(after, PASS)[1])


def test_case_2_twin_one_node_more() -> None:
    op = layer(pt.exp(P) * Q)
    assert_inlined(op(V, W) + op(W, V), pipeline="inline-ofg{size=2}")
    assert_kept(op(V, W) + op(W, V), pipeline="inline-ofg{size=1}")
    looping = layer(scan(lambda s: pt.tanh(pt.exp(s)), outputs_info=[P], n_steps=3)[-1] * Q)
    assert_kept(looping(V, W) + looping(W, V), pipeline="inline-ofg{size=4}")


def test_innermost_first_and_no_more_than_is_small() -> None:
    """Each level applies the one below twice: what they come to is large, and stays."""
    op = layer(pt.sin(P) + 1, inputs=(P,))
    for _ in range(30):
        op = layer(op(op(P)), inputs=(P,))
    graph = graph_of(op(V) + op(W))
    after, _ = optimized(graph, PASS)
    kinds = {node.op for node in walk(after.fgraph) if isinstance(node.op, OpFromGraph)}
    assert 0 < len(kinds) < 30
    assert len(list(walk(after.fgraph))) < 300


@pytest.mark.parametrize("inline", [True, False])
def test_case_3_what_pytensor_inlines(inline: bool) -> None:
    op = layer(long_sum(P), inline=inline)
    graph = graph_of(op(V, W) + op(W, V))
    assert n_graphs(optimized(graph, PASS)[0]) == (0 if inline else 2)


def test_names_stay() -> None:
    first, second = layer(pt.exp(P), P)(V, W)
    first.name, second.name = "first", "second"
    after, remarks = optimized(graph_of(first, second), PASS)
    assert [v.name for v in after.outputs] == ["first", "v"]
    assert remarks == ["passed graph: computes the graph of `layer` in its place"]


@pytest.mark.parametrize(
    ("op", "why"),
    [
        (layer(pt.exp(P), pullback=given_gradient), "its gradient is given"),
        (layer(pt.exp(P), pullback=given_gradient, inline=True), "its gradient is given"),
        (layer(pt.exp(P), pushforward=lambda _, given: [given[0]]), "its gradient is given"),
        (layer(pt.exp(P), connection_pattern=[[True], [True]]), "depend on which inputs"),
        (Own([P, Q], [pt.exp(P)], name="layer"), "its class, Own"),
        (layer(pt.exp(P), destroy_map={0: (0,)}), "it works in place"),
        (layer(Elemwise(pt.exp.scalar_op, {0: 0})(P + 1)), "it works in place"),
    ],
    ids=["pullback", "inlined", "pushforward", "pattern", "class", "in place", "body in place"],
)
def test_twins_that_stay(op: OpFromGraph, why: str) -> None:
    assert_kept(op(V, W) + 1, why=why)


def test_a_given_gradient_is_still_taken() -> None:
    cost = layer(pt.exp(P), pullback=given_gradient)(V, W)
    graph = so.optimize(([V, W], [cost]), "loop").graph
    derivative = pt.grad(graph.outputs[0], graph.inputs[0])
    assert compiled(graph.inputs, [derivative], VM)(0.3, 0.7) == [2.0]


def test_twin_the_graph_around_works_in_place() -> None:
    """What was a copy would be the vector itself, which is overwritten."""
    same = layer(X[::-1], inputs=(X,))
    in_place = Elemwise(pt.exp.scalar_op, {0: 0})
    assert_inlined(pt.exp(same(Y)))
    assert_kept(in_place(same(Y)), why="works in place")


def test_twin_a_length_of_one_outside() -> None:
    op = layer(X + Y, inputs=(X, Y))
    one = pt.tensor("one", shape=(1,))
    assert_kept(op(one, Y), why="is not the")
    assert_inlined(op(FIVE, Y))


def test_twin_a_step_would_return_its_input() -> None:
    op = layer(X[::-1], X * 2, inputs=(X,))

    def loop(returned: Any) -> Any:
        def step(s: Any) -> list[Any]:
            first, second = op(s)
            return [pt.tanh(second), returned(first)]

        return scan(step, outputs_info=[X, None], n_steps=3)[1]

    assert_kept(loop(lambda s: s), why="return its own input")
    assert_inlined(loop(lambda s: s * 2))


def test_a_blockwise_and_what_pytensor_makes_stay() -> None:
    assert_kept(vectorize_graph(SMALL(V, W)[0], {V: X, W: Y}))
    assert_kept(pt.grad(pt.logsumexp(X * 2), X).sum() + pt.einsum("i,i->", X, X))


def test_draws_stay_the_same() -> None:
    rng = pytensor.shared(np.random.default_rng(1))
    r = rng.type()
    after_draw, draw = pt.random.normal(P, rng=r, return_next_rng=True)
    op = layer(after_draw, draw, inputs=(r, P))
    after, first = op(rng, V)
    _, second = op(after, W)
    assert_inlined(first, second)


def test_what_was_not_connected_still_is_not() -> None:
    cost = layer(pt.exp(P))(V, W)
    for pipeline in ("none", PASS):
        graph = so.optimize(([V, W], [cost]), pipeline).graph
        with pytest.raises(DisconnectedInputError):
            pt.grad(graph.outputs[0], graph.inputs[1])


def loop_in_a_graph() -> OpFromGraph:
    ys = scan(lambda s, a: pt.tanh(s * a) + s, outputs_info=[P], non_sequences=[Q], n_steps=50)
    return layer(ys[-1])


@pytest.mark.parametrize("preset", ["grad", "loop"])
def test_a_gradient_does_not_run_the_loop_again(preset: str) -> None:
    """The gradient of an OpFromGraph is one that runs the loop of the first anew."""
    cost = loop_in_a_graph()(V, W)
    graph = graph_of(cost, *pt.grad(cost, [V, W]))
    loops = {
        pipeline: sum(map(is_loop, walk(so.optimize(graph, pipeline).graph.fgraph)))
        for pipeline in (preset, PRESETS[preset].replace("inline-ofg,", ""))
    }
    assert list(loops.values()) == [2, 3]
    assert_equal_values(graph, so.optimize(graph, preset).graph)


def test_other_passes_see_what_a_body_holds() -> None:
    """What no step changes is computed before the loop."""
    op = layer(P * pt.exp(pt.cos(Q)) + pt.sin(Q))
    ys = scan(lambda s, a: pt.tanh(op(s, a)), outputs_info=[V], non_sequences=[W], n_steps=3)
    graph = graph_of(ys[-1])
    after = so.optimize(graph, "loop").graph
    (loop,) = (node for node in after.fgraph.apply_nodes if is_loop(node))
    texts = [str(node.op) for node in loop.op.fgraph.toposort()]
    assert not any(name in text for text in texts for name in ("cos", "sin", "exp", "layer"))
    assert_equal_values(graph, after)


def test_the_default_preset_leaves_them() -> None:
    assert PASS not in PRESETS["default"]
    assert n_graphs(so.optimize(graph_of(SMALL(V, W)[0]), "default").graph) == 1


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("mode", MODES, ids=["vm", "numba"][: len(MODES)])
def test_derivatives(order: int, mode: Any) -> None:
    op, looping = SMALL, loop_in_a_graph()

    def cost(v: Any) -> Any:
        ys = scan(lambda s, w: op(s, w)[1] / 4, outputs_info=[v], non_sequences=[W], n_steps=3)
        return op(v, v)[0] + ys.sum() * looping(v, W)

    def derivative(of: Any, by: Any) -> Any:
        for _ in range(order):
            of = pt.grad(of, by)
        return of

    graph = graph_of(derivative(cost(V), V))
    after, _ = optimized(graph, "inline-ofg{size=1000}")
    assert not n_graphs(after)
    assert_equal_values(graph, after, mode)
    after, _ = optimized(graph_of(cost(V)), PASS)
    by = next(v for v in after.inputs if v.name == "v")
    assert_equal_values(graph, from_io(after.inputs, [derivative(after.outputs[0], by)]), mode)
