"""`simplify`: bodies without needless arithmetic, and the same values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor import function
from pytensor.compile.builders import OpFromGraph
from pytensor.gradient import pushforward
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.basic import MergeFeature

from scanopt_cli import enabled
from scanopt_cli.analysis.statistics import statistics
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.inner_graphs import core_op, inner_graphs
from scanopt_cli.ir.scan_view import is_loop
from scanopt_cli.passes.simplify import simplify
from scanopt_cli.pipeline.optimizing import optimize
from support.evaluating import evaluate
from support.graph_building import (
    assert_same_values,
    graph_of,
    only_scan,
    optimized,
    outputs_of,
    scan,
)


def test_case_1_bodies() -> None:
    x = pt.dscalar("x")
    graph = graph_of(scan(lambda y: (y * 1.0 + 0.0) ** 1 + y - y, outputs_info=[x], n_steps=3))
    work, remarks = optimized(graph, "simplify")
    assert statistics(work.fgraph).inner_nodes < statistics(graph.fgraph).inner_nodes
    assert statistics(work.fgraph).outer_nodes == statistics(graph.fgraph).outer_nodes
    assert remarks[0].startswith("passed scan_fn: simplified: ")
    assert_same_values(graph, work, x=1.5)


def test_case_1_bodies_of_op_from_graphs_and_the_graph_itself() -> None:
    x = pt.dscalar("x")
    y = pt.dscalar("y")
    layer = OpFromGraph([x], [x * 1.0 + 0.0 * x])
    graph = graph_of(layer(y) * 1.0)
    work, remarks = optimized(graph, "simplify{outer=true}")
    assert [remark.split(":")[0] for remark in remarks] == [
        "passed OpFromGraph",
        "passed graph",
    ]
    assert_same_values(graph, work, y=1.5)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_forward_derivatives_have_one_state_an_order(order: int) -> None:
    """Simplified and merged, the 2^n states of the n-th forward derivative are n+1."""
    x = pt.dscalar("x")
    graph = graph_of(scan(lambda y: y - 0.001 * y**2, outputs_info=[x], n_steps=20)[-1])
    for _ in range(order):
        (x,), (last,) = graph.inputs, graph.outputs
        (forward,) = pushforward([last], [x], [pt.ones_like(x)], use_op_pushforward=True)
        raw = graph_of(forward)
        graph, _ = optimized(raw, "merge-equal,simplify,merge-states,remove-unused")
        assert_same_values(raw, graph, x=1.5)
    assert len(only_scan(graph.fgraph).slots) == order + 1


@pytest.mark.parametrize(
    ("step", "left"),
    [
        (lambda y: y * y, 1),
        (lambda y: y**2 * y**3, 1),
        (lambda y: (2 * y) * (3 * y), 1),
        (lambda y: pt.exp(y) * pt.exp(y), 2),
        (lambda y: pt.tanh(y + 1) * 2 - 3 * pt.tanh(1 + y), 5),
    ],
    ids=["square", "powers", "factors", "exponents", "common"],
)
def test_common_factors_and_subexpressions(step: Callable[[Any], Any], left: int) -> None:
    """Powers of a common factor are one power, and what is computed twice is computed once."""
    x = pt.dscalar("x")
    graph = graph_of(scan(step, outputs_info=[x], n_steps=3))
    work, _ = optimized(graph, "merge-equal,simplify")
    assert statistics(work.fgraph).inner_nodes <= left
    assert_same_values(graph, work, x=0.4)


def test_reversed_slices_of_known_lengths_stay_right() -> None:
    """PyTensor 3.3.7 itself reads `x[0]` here, where `x[4]` is right."""
    s = pt.matrix("s", shape=(3, 5), dtype="float64")
    graph = graph_of(scan(lambda row: row[:-2:-1].sum(), sequences=[s]))
    work, _ = optimized(graph, "simplify{outer=true}")
    assert_same_values(graph, work, s=np.arange(15.0).reshape(3, 5))


def test_limit() -> None:
    from scanopt_cli.pipeline.grammar import parse
    from scanopt_cli.pipeline.runner import run_pipeline

    x = pt.dscalar("x")
    work = graph_of(scan(lambda y: y * 1.0 + 0.0, outputs_info=[x], n_steps=3))
    before = statistics(work.fgraph)
    run_pipeline(work.fgraph, parse("simplify"), limit=0)
    assert statistics(work.fgraph) == before


LOG_SUMS: dict[str, Callable[[Any, Any], Any]] = {
    "log of exponentials": lambda a, x: pt.log(pt.exp(a) + pt.exp(x)),
    "logsumexp": lambda a, x: pt.logsumexp(pt.stack([a, x])),
    "softmax": lambda a, x: pt.special.softmax(pt.stack([a, x])).max() + x,
    "log_softmax": lambda a, x: pt.special.log_softmax(pt.stack([a, x])).min() + x,
}


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("name", LOG_SUMS)
@pytest.mark.parametrize("pipeline", ["simplify", "simplify{outer=true}", "grad"])
def test_bodies_that_belong_to_a_class_of_ops_stay(name: str, pipeline: str) -> None:
    """PyTensor makes a LogAddExp, whose body it would write otherwise again and again."""
    s, x = pt.dvector("s"), pt.dscalar("x")
    ys = scan(LOG_SUMS[name], sequences=[s], outputs_info=[x])
    graph = graph_of(ys[-1], pt.grad(ys[-1], s), LOG_SUMS[name](s[0], x))
    work, remarks = optimized(graph, pipeline)
    assert not any("again and again" in remark for remark in remarks)
    assert_same_values(graph, work, s=np.arange(4.0), x=0.3)


def test_a_draw_that_nobody_reads_advances_the_generator() -> None:
    """PyTensor's rewrites that are tagged ``random_unsafe`` return another generator."""
    generator = pt.random.type.random_generator_type("generator")

    def step(rng: Any) -> Any:
        following, _ = pt.random.normal(rng=rng, return_next_rng=True)
        return following

    graph = graph_of(scan(step, outputs_info=[generator], n_steps=3))
    work, _ = optimized(graph, "simplify{outer=true}")
    last, wanted = np.random.default_rng(1), np.random.default_rng(1)
    wanted.normal(size=3)
    (found,) = evaluate(work.inputs, work.outputs, [last])
    assert found.bit_generator.state == wanted.bit_generator.state


def test_forms_that_lead_to_one_another_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of them a body has, it comes to have the same one, and keeps it."""
    from scanopt_cli.passes.simplify import simplify

    x, y = pt.dscalars("x", "y")

    class Swapping:
        """Makes ``-(b - a)`` of ``a - b`` and back."""

        def rewrite(self, fgraph: Any) -> None:
            (old,) = fgraph.outputs
            node = old.owner
            if node.op == pt.sub:
                fgraph.replace(old, pt.neg(pt.sub(*node.inputs[::-1])))
            else:
                fgraph.replace(old, pt.sub(*node.inputs[0].owner.inputs[::-1]))

    monkeypatch.setattr(simplify, "sound_rewriter", lambda *_: Swapping())
    found = {
        digest(optimized(from_io([x, y], [form]), "simplify{outer=true}")[0].fgraph)
        for form in (x - y, pt.neg(y - x))
    }
    assert found == {digest(from_io([x, y], [x - y]).fgraph)}


def test_joins_of_many_slices_take_no_time_that_grows_with_their_square() -> None:
    """PyTensor joins one pair in each sweep; of few operands it joins all."""
    x = pt.dvector("x")

    def nodes(count: int) -> int:
        parts = [x[i : i + 1] for i in range(count)]
        after, _ = optimized(graph_of(pt.concatenate(parts)), "simplify{outer=true}")
        return len(after.fgraph.apply_nodes)

    assert nodes(20) == 1
    assert nodes(400) > 400


def test_forms_that_do_not_settle_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from scanopt_cli.passes.simplify import simplify

    class Growing:
        """Adds one, for ever."""

        def rewrite(self, fgraph: Any) -> None:
            (old,) = fgraph.outputs
            fgraph.replace(old, old * 1.5)

    monkeypatch.setattr(simplify, "sound_rewriter", lambda *_: Growing())
    x = pt.dscalar("x")
    graph = graph_of(x + 1)
    work, remarks = optimized(graph, "simplify{outer=true}")
    assert digest(work.fgraph) == digest(graph.fgraph)
    assert remarks == ["missed graph: not simplified: no fixpoint after 6 rewrites"]


@pytest.mark.parametrize("b", [0.5, 1.0, 1.5])
def test_sums_of_booleans_stay_right(b: float) -> None:
    """PyTensor 3.3.7 itself makes ``2 - (b + b)`` of ``(1 - b) + (1 - b)``, of booleans."""
    x = pt.dscalar("b")
    is_large = pt.gt(x, 1.0)
    one, other = pt.maximum(1.0, x), pt.maximum(1.0, x)
    graph = graph_of((1 - is_large) + (1 - is_large), pt.grad(one + other * 1.0, x))
    work, _ = optimized(graph, "simplify{outer=true}")
    assert_same_values(graph, work, b=b)


def test_terms_are_collected_once_the_booleans_are_gone() -> None:
    v = pt.dvector("v")
    total = scan(
        lambda v: pt.special.log_softmax(v) + (v - v) + pt.maximum(v, v),
        non_sequences=[v],
        n_steps=pt.lscalar("n"),
    ).sum()
    once, _ = optimized(graph_of(pt.grad(total, v)), "simplify{outer=true}")
    assert optimized(once, "simplify{outer=true}")[1] == []


@pytest.mark.parametrize("passes", ["simplify{outer=true}", "grad"])
def test_zeros_of_a_batch_are_as_long_as_it(passes: str) -> None:
    """PyTensor's ``local_merge_alloc`` asserted that the length of the batch is 1."""
    rows, start, starts = pt.dmatrix("rows"), pt.dvector("start"), pt.dmatrix("starts")
    ys = scan(lambda row, a: a * row, sequences=[rows], outputs_info=[start])
    cost = sum((read * 1.3).sum() for read in (ys[-1], ys[:2], ys[:2]))
    graph = graph_of(vectorize_graph(pt.grad(cost, rows), {start: starts}))
    work, _ = optimized(graph, passes)
    values = {"rows": np.ones((4, 3)), "starts": np.ones((2, 3))}
    (wanted,), (got,) = outputs_of(graph, **values), outputs_of(work, **values)
    assert wanted.shape == (2, 4, 3)
    np.testing.assert_allclose(got, wanted)


def test_a_check_that_fails_stays_in_the_graph() -> None:
    """PyTensor folds it, and does not handle the AssertionError."""
    x = pt.dscalar("x")
    two = pt.exp(pt.constant(np.ones(3)))[: 2 + pt.constant(0)]
    work = optimize(graph_of(pt.specify_shape(two, (5,)).sum() + x), "grad").graph
    (raised,) = outputs_of(work, x=1.0)
    assert isinstance(raised, AssertionError)


def _wide(n: int) -> Graph:
    """Return a graph of which each input of one node is rewritten, and some twice."""
    parts = pt.dscalars(*(f"x{i}" for i in range(n)))
    return graph_of(pt.stack([pt.exp(part * 1.0) + 0.0 for part in (*parts, *parts[:3])]))


def test_a_node_of_many_inputs_is_not_looked_at_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []
    process = MergeFeature.process_node

    def counted(self: MergeFeature, fgraph: FunctionGraph, node: Apply) -> None:
        looked_at.append(len(node.inputs))
        process(self, fgraph, node)

    monkeypatch.setattr(MergeFeature, "process_node", counted)
    _, remarks = optimized(_wide(20), "simplify{outer=true}")
    assert remarks
    assert 0 < max(looked_at) < 20


def _repeated_terms(n: int) -> Graph:
    """Return a loop in whose step equal terms are computed ``n + 1`` times, and its gradient."""
    x = pt.dscalar("x")

    def step(y: Any) -> Any:
        return sum((pt.tanh(y * 1.0 + i * 0.0) for i in range(n)), start=pt.tanh(y))

    last = scan(step, outputs_info=[x], n_steps=3)[-1]
    return graph_of(last, pt.grad(last, x))


@pytest.mark.parametrize(
    "make", [lambda: _wide(5), lambda: _repeated_terms(3), lambda: _repeated_terms(0)]
)
def test_nodes_are_merged_as_pytensor_merges_them(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], Graph]
) -> None:
    graph = make()
    found = digest(optimized(graph, "simplify{outer=true}")[0].fgraph)
    monkeypatch.setattr(simplify._Merging, "process_node", MergeFeature.process_node)
    assert digest(optimized(graph, "simplify{outer=true}")[0].fgraph) == found


def _filtered(*, changing: bool) -> Graph:
    """Return a loop that multiplies by an inverse, of a matrix that steps change or do not."""
    w, x, start = pt.dmatrix("w"), pt.dmatrix("x"), pt.dvector("start")

    def step(x_t: Any, h: Any, w: Any) -> Any:
        matrix = w @ w.T + pt.eye(w.shape[0]) * (1 + x_t[0] ** 2 if changing else 2.0)
        return pt.tanh(pt.linalg.inv(matrix) @ h + x_t)

    hs = scan(step, sequences=[x], outputs_info=[start], non_sequences=[w])
    loss = (hs**2).sum()
    return graph_of(loss, pt.grad(loss, w), pt.grad(loss, start))


def _ops_in_bodies(graph: Graph, pipeline: str) -> set[str]:
    work = optimize(graph, pipeline).graph
    loops = [node.op for node in work.fgraph.apply_nodes if is_loop(node)]
    bodies = [body for op in loops for body in inner_graphs(op)]
    assert bodies
    return {type(core_op(node.op)).__name__ for body in bodies for node in body.toposort()}


@pytest.mark.parametrize("pipeline", ["default,simplify,push-out", "grad", "loop"])
def test_an_inverse_that_no_step_changes_leaves_the_loop_as_such(pipeline: str) -> None:
    found = _ops_in_bodies(_filtered(changing=False), pipeline)
    assert not found & {"MatrixInverse", "Solve", "CholeskySolve", "SolveTriangular"}


@pytest.mark.parametrize("pipeline", ["grad", "loop"])
def test_twin_an_inverse_that_steps_change_becomes_a_solution(pipeline: str) -> None:
    found = _ops_in_bodies(_filtered(changing=True), pipeline)
    assert found & {"Solve", "CholeskySolve", "SolveTriangular"}


@pytest.mark.tiered(every=4)
@pytest.mark.parametrize("changing", [False, True])
@pytest.mark.parametrize("n_steps", [0, 1, 4])
def test_inverses_in_loops_keep_their_values(changing: bool, n_steps: int) -> None:
    graph = _filtered(changing=changing)
    rng = np.random.default_rng(3)
    arguments = [rng.normal(size=(3, 3)), rng.normal(size=(n_steps, 3)), rng.normal(size=3)]
    by_name = dict(zip(["w", "x", "start"], arguments, strict=True))
    values = [by_name[v.name] for v in graph.fgraph.inputs]
    expected = function(graph.fgraph.inputs, graph.fgraph.outputs, mode="FAST_RUN")(*values)
    for preset in ("grad", "loop"):
        with enabled(preset):
            compiled = function(graph.fgraph.inputs, graph.fgraph.outputs, mode="NUMBA")
        for one, other in zip(compiled(*values), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
