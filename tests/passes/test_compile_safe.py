"""`compile-safe`: forms of loops that PyTensor compiles wrongly, written otherwise.

That PyTensor compiles the result right is in ``tests/upstream/test_cured.py``; here is
where the pass fires, where it does not, and that values stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.compile.ops import DeepCopyOp
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until

import scanopt_cli as so
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.copies import number_of_copy
from scanopt_cli.ir.graph import Graph
from scanopt_cli.ir.slots import SlotKind
from support.evaluating import assert_same_outcomes, evaluate
from support.graph_building import arguments, graph_of, optimized, scan, scan_views

x, w = pt.dscalars("x", "w")
n = pt.lscalar("n")
a, b = pt.dtensor3("a"), pt.dtensor3("b")
m = pt.dmatrix("m")
VM = Mode("vm", "fast_run").excluding("fusion")
VALUES: dict[str, Any] = {
    "x": 0.5,
    "w": 2.0,
    "n": 4,
    "k": -2,
    "a": np.arange(16.0).reshape(4, 2, 2) / 7,
    "b": np.ones((4, 2, 2)),
    "m": np.arange(4.0).reshape(2, 2),
}


def raw(states: Any) -> Any:
    """The buffer of a state, initial rows included."""
    return states.owner.inputs[0]


def checked(graph: Graph) -> list[str]:
    """Run the pass; check values, and that a second run finds nothing; return its remarks."""
    work, remarks = optimized(graph, "compile-safe")
    data = [np.asarray(VALUES[str(v.name)], dtype=v.type.dtype) for v in graph.inputs]
    assert_same_outcomes(
        evaluate(graph.inputs, graph.outputs, data), evaluate(work.inputs, work.outputs, data)
    )
    before = digest(work.fgraph)
    again, more = optimized(work, "compile-safe")
    assert not [remark for remark in more if remark.startswith("passed")]
    assert digest(again.fgraph) == before
    return [remark.partition(": ")[2] for remark in remarks if remark.startswith("passed")]


def sums(step: Callable[..., Any], start: Any = None) -> Any:
    start = pt.zeros((2, 2)) if start is None else start
    return scan(step, sequences=[a, b], outputs_info=[start], name="sums")


@pytest.mark.parametrize(
    "step",
    [
        lambda p, q, s: pt.add(s, pt.dot(p, q), p),
        lambda p, q, s: pt.add(p, pt.dot(p, q), s),
        lambda p, q, s: pt.add(pt.dot(p, q), s, pt.dot(q, p), q),
    ],
    ids=["state first", "state last", "two products"],
)
def test_case_2_sums_of_many_terms(step: Callable[..., Any]) -> None:
    assert checked(graph_of(raw(sums(step))[-1])) == [
        "regrouped the sum `sit_sot[0]`, so that PyTensor does not push it out"
    ]


def test_case_2_products_that_are_computed_from_states() -> None:
    told = checked(graph_of(raw(sums(lambda p, q, s: s + pt.dot(s, p)))[-1]))
    assert told == ["regrouped the sum `sit_sot[0]`, so that PyTensor does not push it out"]


def test_case_2_sums_that_pytensor_gets_right_stay() -> None:
    assert checked(graph_of(raw(sums(lambda p, q, s: s + pt.dot(p, q)))[-1])) == []
    assert checked(graph_of(raw(sums(lambda p, q, s: pt.add(s, p, q)))[-1])) == []


def test_case_1_invariant_states_are_hoisted() -> None:
    ys = scan(lambda y, w: w + 1, outputs_info=[x], non_sequences=[w], n_steps=n)
    assert checked(graph_of(ys)) == ["hoisted the invariant state `x`"]


def test_case_1_while_loops_in_which_nothing_varies() -> None:
    ys, zs = scan(
        lambda y, z, w: ((w + 1, w * 2), until(w > 9)),
        outputs_info=[x, x],
        non_sequences=[w],
        n_steps=20,
    )
    assert checked(graph_of(ys, zs)) == ["a step copies 2 outputs"]


def test_case_3_maps_in_buffers_of_different_starts() -> None:
    ys, zs = scan(
        lambda p, *_: (p + 1, p * 2),
        sequences=[m[:, 0]],
        outputs_info=[
            {"initial": m[0], "taps": [-2, -1]},
            {"initial": pt.zeros(3), "taps": [-3, -1]},
        ],
    )
    assert len(checked(graph_of(ys, zs))) == 1


def test_case_4_conditions_that_read_states() -> None:
    def loop(rate: float, name: str) -> Any:
        return scan(lambda y: (y * rate, until(y > 3)), outputs_info=[x], n_steps=30, name=name)[-1]

    one, two, three = loop(1.5, "one"), loop(1.7, "two"), loop(1.9, "three")
    assert (
        checked(graph_of(one, two, three))
        == ["made the stop condition differ from those of other loops"] * 3
    )
    assert checked(graph_of(one)) == []


def test_case_5_buffers_that_mit_sots_share() -> None:
    start = {"initial": m[0], "taps": [-2, -1]}
    ys, _ = scan(
        lambda y2, y1, z2, z1: (y1 + y2, z1 * 2 + z2), outputs_info=[start, start], n_steps=n
    )
    node = raw(ys).owner
    shared = node.op.make_node(node.inputs[0], node.inputs[1], node.inputs[1])
    graph = graph_of(*(output[2:] for output in shared.outputs))
    assert checked(graph) == ["copied the initial buffers of 1 state, so that they stay distinct"]
    apart = scan(
        lambda y2, y1, z1: (y1 + y2, z1 * 2), outputs_info=[start, {"initial": x}], n_steps=n
    )
    assert checked(graph_of(*apart)) == []


def test_case_5_gradients_of_loops_with_several_states() -> None:
    """Once trimmed, their mit_mots start equal."""
    p, q = pt.dvectors("p", "q")
    ys, zs = scan(lambda p, q, y, z: (2 * y + p, 3 * z + q), sequences=[p, q], outputs_info=[x, w])
    graph = graph_of(*pt.grad(ys[-1] + zs[-1], [p, q]))
    data = arguments(graph, p=np.ones(3), q=np.ones(3), x=0.0, w=0.0)
    for preset in ("default", "trim-steps,save-mem"):
        assert_same_outcomes(
            [np.array([4.0, 2.0, 1.0]), np.array([9.0, 3.0, 1.0])], compiled(graph, preset, data)
        )


def test_case_5_many_states_have_few_copies_each() -> None:
    many = 40
    ps = [pt.dvector() for _ in range(many)]
    outputs = [scan(lambda p, y: 2 * y * p, sequences=[p], outputs_info=[x])[-1] for p in ps]
    graph = graph_of(*(pt.grad(y, p) for y, p in zip(outputs, ps, strict=True)))
    work, remarks = optimized(graph, "compile-safe")
    assert len([told for told in remarks if "copied the initial buffers" in told]) == many - 1
    starts = [
        slot.outer_input
        for view in scan_views(work.fgraph)
        for slot in view.of_kind(SlotKind.MIT_MOT)
    ]
    assert sorted(number_of_copy(start)[0] for start in starts) == list(range(many))
    copies = [node for node in work.fgraph.apply_nodes if isinstance(node.op, DeepCopyOp)]
    assert len(copies) < 5 * many  # those of other cases, too
    again, remarks = optimized(work, "compile-safe")
    assert not [told for told in remarks if "copied the initial buffers" in told]
    assert len(again.fgraph.apply_nodes) == len(work.fgraph.apply_nodes)


def test_case_5_starts_that_are_constant() -> None:
    start = {"initial": pt.constant(np.array([1.0, 2.0])), "taps": [-2, -1]}
    *_, ys, zs = scan(
        lambda y2, y1, z2, z1: (y1 + y2, z1 * z2, 3 * y1, 3 * z1),
        outputs_info=[start, start, None, None],
        n_steps=n,
    )
    graph = graph_of(ys, zs)
    data = arguments(graph, n=4)
    right = evaluate(graph.inputs, graph.outputs, data)
    assert_same_outcomes(right, compiled(graph, "save-mem{prealloc=false}", data))


def test_case_6_a_row_of_a_trimmed_trace() -> None:
    _, maps = scan(
        lambda p, y: (y + p, 2 * y + 1), sequences=[m[:, 0]], outputs_info=[x, None], n_steps=n
    )
    graph = graph_of(maps[-2])
    data = arguments(graph, m=np.ones((6, 2)), x=0.3, n=2)
    for preset in ("default", "save-mem"):
        right = evaluate(graph.inputs, graph.outputs, data)
        assert_same_outcomes(right, compiled(graph, preset, data))


def test_a_state_that_needs_two_things() -> None:
    """An invariant sum of three terms, in a loop that PyTensor would do without."""
    ys = scan(
        lambda state, p, q, r, stop: (pt.add(p, pt.dot(p, q), r), until(stop)),
        outputs_info=[m],
        non_sequences=[a[0], b[0], a[1], pt.gt(n, 0)],
        n_steps=4,
    )
    assert checked(graph_of(ys)) == [
        "regrouped the sum `m`, so that PyTensor does not push it out",
        "a step copies 1 output",
    ]


def test_uniform_sequences_vary_no_more_than_nothing() -> None:
    ys = scan(lambda q, y: q + 1, sequences=[pt.constant(np.ones(5))], outputs_info=[x])
    graph = graph_of(ys)
    data = arguments(graph, x=0.5)
    right = evaluate(graph.inputs, graph.outputs, data)
    assert_same_outcomes(right, compiled(graph, "simplify{outer=true}", data))


def compiled(graph: Graph, passes: str, data: Any) -> Any:
    """Optimise a graph and evaluate it as PyTensor compiles it."""
    work = so.optimize(graph, passes).graph
    function = pytensor.function(work.inputs, work.outputs, mode=VM, on_unused_input="ignore")
    return function(*data)


k = pt.lscalar("k")
MISREAD: dict[str, Callable[[], Any]] = {
    "the last rows of a map": lambda: scan(lambda p: p * 2, sequences=[m[:, 0]])[-2:],
    "last rows up to an index": lambda: scan(lambda y: y * 2, outputs_info=[x], n_steps=n)[-3:k],
    "an index behind arithmetic": lambda: pt.sin(scan(lambda p: p * 2, sequences=[m[:, 0]]))[k:-1],
    "every other of the last rows": lambda: scan(lambda p: p * 2, sequences=[m[:, 0]])[-4:4:2],
    "a slice of a slice": lambda: scan(lambda y: y * 2, outputs_info=[x], n_steps=n)[1:][k:],
    "from an index to the last but one": lambda: scan(lambda y: y * 2, outputs_info=[x], n_steps=n)[
        k:-1
    ],
    "all but the last rows, nothing else": lambda: scan(
        lambda y: y * 2, outputs_info=[x], n_steps=n
    )[:-2],
    "the first rows of a while loop": lambda: scan(
        lambda y: (y * 2, until(y > 5)), outputs_info=[x], n_steps=30
    )[1:3],
}
UNDERSTOOD: dict[str, Callable[[], Any]] = {
    "the last row": lambda: scan(lambda y: y * 2, outputs_info=[x], n_steps=n)[-1],
    "the last rows of a state": lambda: scan(lambda y: y * 2, outputs_info=[x], n_steps=n)[-3:],
    "the last rows of enough": lambda: scan(lambda p: p * w, non_sequences=[x], n_steps=5)[-3:],
    "everything": lambda: scan(lambda y: y * 2, outputs_info=[x], n_steps=n),
    "every other": lambda: scan(lambda y: y * 2, outputs_info=[x], n_steps=n)[::2],
    "arithmetic that is added up": lambda: pt.sin(
        scan(lambda y: y * 2, outputs_info=[x], n_steps=n)
    ).sum(),
    "a reversal": lambda: scan(lambda y: y * 2, outputs_info=[x], n_steps=n)[::-1],
    "the first rows": lambda: scan(lambda y: y * 2, outputs_info=[x], n_steps=n)[:2],
    "the last row of a while loop": lambda: scan(
        lambda y: (y * 2, until(y > 5)), outputs_info=[x], n_steps=30
    )[-1],
}


@pytest.mark.parametrize("name", MISREAD)
def test_case_6_reads_that_pytensor_misunderstands(name: str) -> None:
    (told,) = checked(graph_of(MISREAD[name]()))
    assert told.startswith("readers of `")


@pytest.mark.parametrize("name", UNDERSTOOD)
def test_case_6_reads_that_pytensor_understands(name: str) -> None:
    assert checked(graph_of(UNDERSTOOD[name]())) == []


def test_batched_loops_stay() -> None:
    ys = scan(lambda y, w: w + 1, outputs_info=[x], non_sequences=[w], n_steps=3)
    batched = vectorize_graph(ys, {x: pt.dvector("xs")})
    work, remarks = optimized(graph_of(batched), "compile-safe")
    assert not [remark for remark in remarks if remark.startswith("passed")]
    assert not any(isinstance(node.op, DeepCopyOp) for node in work.fgraph.apply_nodes)


def test_loops_in_bodies_are_looked_at() -> None:
    def outer(row: Any, h: Any) -> Any:
        return h + scan(lambda y, v: v * 2, outputs_info=[h], non_sequences=[row], n_steps=3)[-1]

    ys = scan(outer, sequences=[m[:, 0]], outputs_info=[x])
    (told,) = checked(graph_of(ys))
    assert "hoisted the invariant state" in told


def test_optimize_ends_with_it_whatever_is_named() -> None:
    graph = graph_of(raw(sums(lambda p, q, s: pt.add(s, pt.dot(p, q), p)))[-1])
    result = so.optimize(graph, "merge-states")
    assert [run.name for run in result.passes] == ["merge-states", "compile-safe"]
    assert so.optimize(graph, "none").passes == ()
    again = so.optimize(result.graph, "merge-states")
    assert not again.changed


def test_what_one_pass_writes_and_the_last_writes_back_is_no_change() -> None:
    """`simplify` flattens the sum each time."""
    graph = graph_of(raw(sums(lambda p, q, s: pt.add(s, pt.dot(p, q), p)))[-1])
    first = so.optimize(graph, "grad")
    second = so.optimize(first.graph, "grad")
    assert (first.changed, second.changed) == (True, False)
    assert digest(second.graph.fgraph) == digest(first.graph.fgraph)


def test_the_values_of_saved_graphs_compiled() -> None:
    graph = graph_of(raw(sums(lambda p, q, s: pt.add(s, pt.dot(p, q), p)))[-1])
    data = arguments(graph, a=VALUES["a"], b=VALUES["b"])
    right = evaluate(graph.inputs, graph.outputs, data)
    assert_same_outcomes(right, compiled(graph, "grad", data))
