"""clean-ofg: its legal cases by number, and a twin that must not fire for each."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.gradient import DisconnectedInputError, grad_scale
from pytensor.tensor.elemwise import Elemwise

import scanopt_cli as so
from scanopt_cli.ir.graph import from_io
from scanopt_cli.ir.inner_graphs import core_op, walk
from scanopt_cli.passes.clean_ofg.clean_ofg import CleanOfg
from scanopt_cli.pipeline.grammar import PRESETS, parse
from scanopt_cli.pipeline.runner import run_pipeline
from scanopt_cli.rules.graph_checking import check
from support.cleaned_layers import PASS, assert_left, assert_mended
from support.compiled_ways import compiled
from support.graph_building import graph_of, only_scan, optimized, scan
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
    ends,
    given_gradient,
    is_graph,
    layer,
    tangents,
)

HALF_READ = layer(pt.exp(P), pt.sin(Q), P * 3)


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


def test_case_1_twin_another_node_reads_the_output() -> None:
    """All nodes have one Op, so an output goes only if none of them is read there."""
    op = layer(pt.exp(P) + Q, pt.exp(P) * Q, Q - P)
    apart = graph_of(op(V, W)[0] * op(V, U)[1] * op(W, U)[2])
    assert not optimized(apart, PASS)[1]
    assert not check(apart, select=["O001"]).findings
    after = assert_mended(op(V, W)[0] * op(V, U)[1], left=[(2, 2), (2, 2)])
    assert len({node.op for node in after.fgraph.apply_nodes if is_graph(node)}) == 1


def test_case_1_one_op_for_all_places() -> None:
    """Read in a body, in a graph in a graph, and outside: three of four outputs."""
    op = layer(pt.exp(P), pt.sin(Q), P * 3, pt.cos(P))
    nested = layer(op(P, Q)[1] + P)
    ys = scan(lambda s, w: op(s, w)[2] / 4, outputs_info=[V], non_sequences=[W], n_steps=3)
    graph = graph_of(op(U, W)[0] + nested(V, W) + ys[-1])
    after, _ = optimized(graph, PASS)
    assert ends(after) == [(2, 1), (2, 3), (2, 3), (2, 3)]
    shared = {core_op(n.op) for n in walk(after.fgraph) if is_graph(n) and len(n.outputs) == 3}
    assert len(shared) == 1
    assert_equal_values(graph, after)


def test_what_later_has_fewer_readers_is_cleaned_in_bodies_too() -> None:
    """`simplify` leaves out the one reader of an output that a body does not read."""
    op = layer(pt.exp(P), P * Q)
    ys = scan(lambda s, w: op(s, w)[0] / 4, outputs_info=[V], non_sequences=[W], n_steps=3)
    first, second = op(V, W)
    graph = graph_of(first + ys[-1] + pt.switch(pt.constant(True), 1.0, second))
    assert ends(optimized(graph, PASS)[0]) == [(2, 2), (2, 2)]
    after, _ = optimized(graph, f"{PASS},simplify{{outer=true}}")
    assert ends(after) == [(1, 1), (1, 1)]
    assert_equal_values(graph, after)


def test_case_2_what_alone_keeps_itself_alive_goes() -> None:
    """The second output of each layer is read by the next one alone, for its second output."""
    op = layer(pt.tanh(P), Q + P)
    one, two = V, W
    for _ in range(20):
        one, two = op(one, two)
    assert_mended(one, left=[(1, 1)] * 20)


def test_case_3_equal_outputs() -> None:
    op = layer(pt.exp(P) + Q, Q + pt.exp(P), P * Q)
    first, second, third = op(V, W)
    after, remarks = optimized(graph_of(first * third, second), PASS)
    assert ends(after) == [(2, 2)]
    assert remarks == ["passed graph: merged output 1 with output 0 of `layer`, which are equal"]
    assert_equal_values(graph_of(first * third, second), after)
    # Only the second of two equal outputs is read.
    after, _ = optimized(graph_of(second), PASS)
    assert ends(after) == [(2, 1)]
    assert_equal_values(graph_of(second), after)


@pytest.mark.parametrize(
    "outputs",
    [
        # Beside a number of their own: PyTensor takes 0.0 of another graph for -0.0.
        (P / pt.constant([0.0, 0.7193]), P / pt.constant([-0.0, 0.7193])),
        (pt.exp(P) + Q, pt.exp(P) - Q),
        (pt.exp(P), pt.exp(P).astype("float32")),
        (pt.exp(grad_scale(P, 2.0)), pt.exp(grad_scale(P, 3.0))),
    ],
    ids=["zeros", "values", "types", "derivatives"],
)
def test_case_3_twin_outputs_that_differ(outputs: Any) -> None:
    graph = graph_of(*layer(*outputs)(V, W))
    before = ends(graph)
    assert ends(optimized(graph, PASS)[0])[0][1] == before[0][1]


def test_cases_3_and_4_twin_in_place_around() -> None:
    """What is written in place must not be what someone else reads."""
    in_place = Elemwise(pt.exp.scalar_op, {0: 0})
    for op in (layer(P + Q, Q + P), layer(P + Q, P)):
        first, second = op(V * 2, W)
        plain, _ = optimized(graph_of(pt.exp(first), second), PASS)
        assert ends(plain) == [(2, 1)]
        graph = graph_of(in_place(first), second)
        after, remarks = optimized(graph, PASS)
        assert ends(after) == ends(graph)
        (remark,) = remarks
        assert "keeps equal ends of `layer`, output 1 with " in remark
        assert "works in place" in remark


def test_case_4_an_output_that_is_an_input() -> None:
    op = layer(P, pt.exp(P))
    after = assert_mended(op(V, W)[0] * 2, left=[])
    assert not check(after).findings
    assert_mended(op(V * 2, W)[0] - op(V * 2, W)[1], left=[(1, 1)])


def test_case_4_twin_the_type_outside_is_narrower() -> None:
    op = layer(X, X.sum(), inputs=(X,))
    graph = graph_of(*op(FIVE))
    assert ends(optimized(graph, PASS)[0]) == [(1, 2)]
    assert ends(optimized(graph_of(*op(Y)), PASS)[0]) == [(1, 1)]


def test_case_4_twin_a_step_returns_the_input() -> None:
    """PyTensor computes a second derivative wrong, or crashes, if a step returns its state."""
    op = layer(P, Q * P)

    def loop(returned: Any) -> Any:
        def step(s: Any, w: Any) -> list[Any]:
            first, second = op(s, w)
            return [pt.tanh(second), returned(first)]

        return scan(
            step,
            outputs_info=[V, None],
            non_sequences=[W],
            n_steps=3,
        )[1]

    after, _ = optimized(graph_of(loop(lambda s: s)), PASS)
    assert ends(after) == [(2, 2)]
    after, _ = optimized(graph_of(loop(lambda s: s * 2)), PASS)
    assert ends(after) == [(2, 1)]
    assert_equal_values(graph_of(loop(lambda s: s * 2)), after)


def test_case_4_twin_a_step_returns_the_input_through_two() -> None:
    """Each of them alone returns what another one does, not the state."""
    one, two = layer(P, Q * P), layer(Q, pt.sin(P) * Q)

    def step(s: Any, w: Any) -> list[Any]:
        first, second = one(s, w)
        third, fourth = two(w, first)
        return [pt.tanh(second) * fourth, third]

    ys = scan(step, outputs_info=[V, None], non_sequences=[W], n_steps=3)
    graph = graph_of(ys[1])
    after, _ = optimized(graph, PASS)
    body = only_scan(after.fgraph).op.fgraph
    assert not set(body.inputs) & set(body.outputs)
    assert ends(after) == [(2, 1), (2, 2)]
    v, w = sorted(after.inputs, key=str)
    first, again = ((each.outputs[0] ** 2).sum() for each in (graph, after))
    wanted, got = pt.grad(pt.grad(first, V), V), pt.grad(pt.grad(again, v), v)
    assert_equal_values(from_io([V, W], [wanted]), from_io([v, w], [got]))


def test_case_5_an_input_given_twice() -> None:
    op = layer(pt.exp(P) * Q, P - 2 * Q)
    first, second = op(V, V)
    graph = graph_of(first + second)
    after, remarks = optimized(graph, PASS)
    assert ends(after) == [(1, 2)]
    assert remarks == ["passed graph: merged input 1 with input 0 of `layer`, which are equal"]
    assert_equal_values(graph, after)
    later = pt.grad(after.outputs[0], after.inputs)
    assert_equal_values(graph_of(*pt.grad(first + second, [V])), from_io(after.inputs, later))


def test_case_5_twin_elsewhere_they_are_two() -> None:
    op = layer(pt.exp(P) * Q)
    graph = graph_of(op(V, V) + op(V, W))
    assert not optimized(graph, PASS)[1]


def test_what_feeds_it_goes_in_turn() -> None:
    inner = HALF_READ(V, W)
    op = layer(pt.cos(P))
    assert_mended(op(inner[0], inner[1]), left=[(1, 1), (1, 1)])


def test_graphs_in_graphs_however_deep() -> None:
    op = layer(pt.tanh(P) + Q, pt.sin(Q))
    for number in range(14):
        op = layer(op(P, Q)[0] * 2 + number, pt.cos(Q))
    assert_mended(op(V, W)[0], left=[(2, 1)] * 15)


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


@pytest.mark.parametrize(
    "op", [Own([P, Q], [P + Q, Q + P]), layer(P, Q + P, pullback=given_gradient)]
)
def test_equal_ends_of_one_that_stays(op: OpFromGraph) -> None:
    graph = graph_of(*op(V, W))
    after, remarks = optimized(graph, PASS)
    assert ends(after) == ends(graph)
    assert [remark.partition(",")[0].split()[:4] for remark in remarks] == [
        ["missed", "graph:", "keeps", "equal"]
    ]


def test_it_does_not_run_without_an_op_from_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    rewrites = CleanOfg.rewrites
    monkeypatch.setattr(CleanOfg, "rewrites", lambda *args: called.append(1) or rewrites(*args))
    ys = scan(lambda s: pt.exp(-s), outputs_info=[V], n_steps=3)
    optimized(graph_of(ys, pt.special.softmax(X)), "default")
    assert not called
    optimized(graph_of(scan(lambda s: HALF_READ(s, s)[0], outputs_info=[V], n_steps=3)), PASS)
    assert called


def test_a_limit_leaves_a_right_graph() -> None:
    op, other = HALF_READ, layer(pt.exp(P), Q + 1)
    first = op(V, W)
    graph = graph_of(other(first[0], first[1])[0])
    for limit in range(4):
        work = graph.copy()
        run_pipeline(work.fgraph, parse(PASS), limit=limit)
        assert_equal_values(graph, work)


def test_its_former_name() -> None:
    assert parse("remove-unused-ends") == parse(PASS)
    assert all(PASS in text for name, text in PRESETS.items() if name != "none")


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("mode", MODES, ids=["vm", "numba"][: len(MODES)])
def test_derivatives(order: int, mode: Any) -> None:
    """Unread, equal, passed on and given twice, in a body and outside."""
    op = layer(pt.exp(P) * Q, Q * pt.exp(P), P, pt.cos(P))

    def cost(v: Any) -> Any:
        ys = scan(lambda s, w: op(s, w)[1] / 4, outputs_info=[v], non_sequences=[W], n_steps=3)
        one, two, three, _ = op(v, v)
        return one * two + three**2 + ys.sum()

    def derivative(of: Any, by: Any) -> Any:
        for _ in range(order):
            of = pt.grad(of, by)
        return of

    graph = graph_of(derivative(cost(V), V))
    assert_equal_values(graph, optimized(graph, PASS)[0], mode)
    after, _ = optimized(graph_of(cost(V)), PASS)
    by = next(v for v in after.inputs if v.name == "v")
    assert_equal_values(graph, from_io(after.inputs, [derivative(after.outputs[0], by)]), mode)
