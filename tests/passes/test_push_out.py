"""`push-out`: what needs no loop is computed before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor import sparse
from pytensor.compile.ops import DeepCopyOp
from pytensor.conditional.op import IfElse
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.op import Scan
from pytensor.scan.utils import until

from scanopt_cli.analysis.statistics import statistics
from scanopt_cli.ir.scan_view import is_loop
from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.passes.push_out import hoisting
from scanopt_cli.pipeline.grammar import PRESETS
from support.graph_building import assert_same_values, graph_of, only_scan, optimized, scan

x, w = pt.dscalars("x", "w")
n = pt.lscalar("n")
s, t = pt.dvectors("s", "t")
m = pt.dmatrix("m")


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_case_1_invariants(steps: int) -> None:
    graph = graph_of(
        scan(
            lambda y, m: pt.tanh(y @ pt.exp(m @ m)),
            outputs_info=[pt.dvector("h")],
            non_sequences=[m],
            n_steps=n,
        )
    )
    work, remarks = optimized(graph, "push-out,remove-unused")
    body = only_scan(work.fgraph).op.fgraph
    assert not any(node.op == pt.exp for node in body.toposort())
    assert "moved" in remarks[0]
    assert_same_values(graph, work, h=np.ones(3), m=np.arange(9.0).reshape(3, 3) / 20, n=steps)


@pytest.mark.parametrize("steps", [1, 4])
def test_must_not_move_the_length_of_a_buffer_that_a_step_makes(steps: int) -> None:
    """The step knows by it that a loop inside keeps every step, so that its last row is enough."""

    def step(y: Any) -> Any:
        return scan(lambda z: pt.sin(z) + 0.1, outputs_info=[y], n_steps=n)[-1] * pt.exp(n)

    graph = graph_of(scan(step, outputs_info=[x], n_steps=3)[-1])
    work, _ = optimized(graph, PRESETS["loop"])
    (outer,) = (node for node in work.fgraph.toposort() if is_loop(node))
    body = outer.op.fgraph
    (inner,) = (node for node in body.toposort() if is_loop(node))
    assert not any(node.op == pt.exp for node in body.toposort())
    assert not [v for v in inner.outputs if v.type.ndim and body.clients.get(v)]
    assert_same_values(graph, work, x=0.4, n=steps)


@pytest.mark.parametrize("steps", [1, 4])
def test_must_not_move_lengths_by_which_the_type_of_an_array_is_known(steps: int) -> None:
    """A loop inside, whose rows are of one row, refuses rows of an unknown number of rows."""
    one_row = pt.tensor("one_row", shape=(None, 1, 2))

    def step(y: Any, one_row: Any) -> Any:
        shape = pt.shape(one_row)
        rows = (y * one_row.reshape((-1, 2))).reshape((shape[0], shape[1], 2))
        assert rows.type.shape == (None, 1, 2)
        return y + scan(lambda row, z: z * row.sum(), sequences=[rows], outputs_info=[x])[-1]

    graph = graph_of(scan(step, outputs_info=[x], non_sequences=[one_row], n_steps=n, strict=False))
    work, remarks = optimized(graph, "push-out")
    assert "moved" in remarks[0]
    assert_same_values(graph, work, x=0.4, n=steps, one_row=np.arange(6.0).reshape(3, 1, 2) / 3)


def test_case_1_while_loops_and_invariant_outputs() -> None:
    ys, zs = scan(
        lambda y, w: ((y + pt.exp(w), pt.exp(w)), until(y > 3)),
        outputs_info=[x, None],
        non_sequences=[w],
        n_steps=20,
    )
    graph = graph_of(ys, zs)
    work, _ = optimized(graph, "push-out")
    assert_same_values(graph, work, x=1.0, w=-1.0)


@pytest.mark.parametrize("steps", [0, 4])
def test_case_2_sequences(steps: int) -> None:
    graph = graph_of(
        scan(lambda a, y: y + pt.exp(a) * 2, sequences=[s], outputs_info=[x], name="sums")
    )
    work, remarks = optimized(graph, "push-out")
    assert remarks == ["passed sums: computes elementwise arithmetic of sequences before the loop"]
    assert_same_values(graph, work, x=1.0, s=np.arange(float(steps)))


@pytest.mark.parametrize("steps", [0, 4])
def test_case_2_a_loop_that_is_not_needed(steps: int) -> None:
    ys, zs = scan(lambda a, y: (pt.exp(a), a * 2), sequences=[s], outputs_info=[x, None])
    graph = graph_of(ys, zs)
    work, _ = optimized(graph, "push-out")
    assert statistics(work.fgraph).scans == 0
    assert_same_values(graph, work, x=1.0, s=np.arange(float(steps)))


def _with_sequence(sequence: Any, states: Any) -> Any:
    """The last row, of a loop whose first sequence is another one, of any length."""
    node = states.owner
    node = node if isinstance(node.op, Scan) else node.inputs[0].owner
    return node.op.make_node(node.inputs[0], sequence, *node.inputs[2:]).outputs[0][-1]


@pytest.mark.parametrize("rows", [3, 4, 7])
def test_case_2_sequences_longer_than_the_loop_are_cut(rows: int) -> None:
    first = scan(lambda a, b, y: y + pt.exp(a) * b, sequences=[s, s], outputs_info=[x])
    graph = graph_of(_with_sequence(t, first))
    work, remarks = optimized(graph, "push-out,remove-unused")
    assert "computes elementwise arithmetic of sequences before the loop" in remarks[0]
    assert not any(node.op == pt.exp for node in only_scan(work.fgraph).op.fgraph.toposort())
    assert_same_values(graph, work, x=1.0, s=np.arange(3.0), t=np.arange(float(rows)))


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_case_2_a_sequence_that_is_too_short_raises(rows: int) -> None:
    first = scan(lambda a, y: y + pt.exp(a), sequences=[s], outputs_info=[x])
    graph = graph_of(_with_sequence(t, first))
    work, remarks = optimized(graph, "push-out")
    assert "passed" in remarks[0]
    assert_same_values(graph, work, x=1.0, s=np.arange(3.0), t=np.arange(float(rows)))


def test_case_2_while_loops() -> None:
    """The steps are what the loop is cut to; it may stop before."""
    ys = scan(
        lambda a, y: (y + pt.exp(a), until(y > 4)), sequences=[s], outputs_info=[x], n_steps=n
    )
    graph = graph_of(ys)
    work, remarks = optimized(graph, "push-out")
    assert "computes elementwise arithmetic" in remarks[0]
    for steps in (1, 3, 6):
        assert_same_values(graph, work, x=1.0, s=np.arange(6.0) / 4, n=steps)


def outer_sums(product: Callable[[Any, Any], Any]) -> Any:
    return scan(
        lambda a, b, y: y + product(a, b),
        sequences=[m, pt.dmatrix("k")],
        outputs_info=[pt.zeros((m.shape[1], 2))],
    )


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_case_2_outer_products_stay_in_the_loop(steps: int) -> None:
    graph = graph_of(outer_sums(lambda a, b: a[:, None] * b[None] * 2 - pt.exp(b)))
    work, remarks = optimized(graph, "push-out")
    assert "computes elementwise arithmetic of sequences before the loop" in remarks[0]
    view = only_scan(work.fgraph)
    whole = (False, False)
    assert all(v.inner_inputs[0].type.broadcastable != whole for v in view.of_kind(SlotKind.SEQ))
    assert not any(node.op == pt.exp for node in view.op.fgraph.toposort())
    assert_same_values(graph, work, m=np.ones((steps, 3)), k=np.arange(2.0 * steps).reshape(-1, 2))


def test_case_2_outer_products_of_which_a_slow_function_is_computed() -> None:
    graph = graph_of(outer_sums(lambda a, b: pt.exp(a[:, None] * b[None])))
    work, _ = optimized(graph, "push-out")
    assert not any(node.op == pt.exp for node in only_scan(work.fgraph).op.fgraph.toposort())
    assert_same_values(graph, work, m=np.ones((4, 3)), k=np.ones((4, 2)))


def test_case_2_a_map_of_outer_products_needs_no_loop() -> None:
    graph = graph_of(scan(lambda a, b: a[:, None] * b, sequences=[m, pt.dmatrix("k")]))
    work, _ = optimized(graph, "push-out")
    assert statistics(work.fgraph).scans == 0
    assert_same_values(graph, work, m=np.ones((4, 3)), k=np.ones((4, 2)))


TERMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "invariants": lambda a, y, w: pt.add(w, y, pt.exp(w)),
    "sequences": lambda a, y, w: pt.add(y, a, pt.exp(a)),
    "both": lambda a, y, w: pt.add(a, y, w),
    "a constant": lambda a, y, w: pt.add(np.float64(2.5), pt.sin(y), a),
    "factors": lambda a, y, w: pt.mul(a, y, w),
    "a sum in a sum": lambda a, y, w: pt.add(a, pt.tanh(pt.add(w, y, a)), w),
    "the state twice": lambda a, y, w: pt.add(a, y, y, w),
}


@pytest.mark.parametrize("steps", [0, 1, 4])
@pytest.mark.parametrize("name", TERMS)
def test_case_3_terms_that_need_no_loop_are_one(name: str, steps: int) -> None:
    ys = scan(
        lambda a, y, w: TERMS[name](a, y, w), sequences=[s], outputs_info=[x], non_sequences=[w]
    )
    graph = graph_of(ys)
    work, remarks = optimized(graph, "push-out,remove-unused")
    assert remarks[0].startswith("passed scan_fn: ")
    for node in only_scan(work.fgraph).op.fgraph.toposort():
        states = [v for v in node.inputs if v.owner is None]
        assert len(node.inputs) <= 2 or len(set(states)) < len(states)
    assert_same_values(graph, work, x=0.5, w=0.25, s=np.linspace(0.1, 0.9, steps))


def test_case_3_other_dtypes_stay_one_sum() -> None:
    """Parts of a sum of small integers are small integers, which overflow earlier."""
    i = pt.vector("i", dtype="int8")
    ys = scan(
        lambda a, y, w: pt.add(a.astype("int64"), y, w),
        sequences=[i],
        outputs_info=[n],
        non_sequences=[pt.lscalar("k")],
    )
    work, _ = optimized(graph_of(ys), "push-out,remove-unused")
    adds = [v for v in only_scan(work.fgraph).op.fgraph.toposort() if v.op == pt.add]
    assert [len(node.inputs) for node in adds] == [3]


def test_case_3_other_widths_stay_one_sum() -> None:
    """A sum of numbers of single precision would be rounded to that."""
    single = pt.fscalars("a", "b")
    ys = scan(
        lambda y, a, b: pt.add(a, b, y), outputs_info=[x], non_sequences=list(single), n_steps=n
    )
    graph = graph_of(ys)
    work, _ = optimized(graph, "push-out,remove-unused")
    (node,) = only_scan(work.fgraph).op.fgraph.toposort()
    assert len(node.inputs) == 3
    assert_same_values(graph, work, x=0.5, a=np.float32(1.0), b=np.float32(1e-9), n=2)


NOT: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "a buffer that the step writes into": (
        lambda: scan(
            lambda y, w: pt.set_subtensor(pt.alloc(w, 3)[0], y).sum(),
            outputs_info=[x],
            non_sequences=[w],
            n_steps=n,
        ),
        [],
    ),
    "constants alone": (
        lambda: scan(
            lambda y: y ** pt.expand_dims(pt.constant(2.0), 0), outputs_info=[t], n_steps=n
        ),
        [],
    ),
    "a copy": (
        lambda: scan(
            lambda y, s: y + DeepCopyOp()(s), outputs_info=[t], non_sequences=[s], n_steps=n
        ),
        [],
    ),
    "a sequence of one row by its type": (
        lambda: _with_sequence(
            pt.tensor("t", shape=(1,)),
            scan(lambda a, b, y: y + pt.exp(a) * b, sequences=[s, s], outputs_info=[x]),
        ),
        [
            "keeps arithmetic of sequences in the loop: a sequence has static length 1, so its row "
            "would be broadcast to all steps"
        ],
    ),
    "a map over a sequence whose length is not known to be that of the loop": (
        lambda: _with_sequence(t, scan(lambda a: pt.exp(a), sequences=[s])),
        [
            "keeps arithmetic of sequences in the loop: a sequence is not proved to be as long as "
            "the loop has steps",
        ],
    ),
    "what reads a state": (lambda: scan(lambda y: pt.exp(y), outputs_info=[x], n_steps=n), []),
}


@pytest.mark.parametrize("name", NOT)
def test_must_not_fire(name: str) -> None:
    build, reasons = NOT[name]
    _, remarks = optimized(graph_of(build()), "push-out")
    assert remarks == [f"missed scan_fn: {reason}" for reason in reasons]


def test_must_not_fire_on_maps_kept_in_buffers_of_different_starts() -> None:
    """PyTensor's rewriter takes the smallest tap of all mit_sots for each of them."""
    u, v = pt.dvector("u"), pt.dvector("v")
    ys, zs = scan(
        lambda a, *_: (a + 1, a * 2),
        sequences=[s],
        outputs_info=[{"initial": u, "taps": [-2, -1]}, {"initial": v, "taps": [-3, -1]}],
    )
    graph = graph_of(ys, zs)
    work, _ = optimized(graph, "push-out")
    assert_same_values(graph, work, s=np.arange(4.0), u=[1.0, 2.0], v=[1.0, 2.0, 3.0])


def test_must_not_fire_in_batches() -> None:
    ys = scan(lambda y, w: y + pt.exp(w), outputs_info=[x], non_sequences=[w], n_steps=3)
    _, remarks = optimized(graph_of(vectorize_graph(ys, {x: pt.dvector("xs")})), "push-out")
    assert remarks == []


def test_sparse_matrices_stay_in_the_body() -> None:
    matrix = sparse.csr_matrix("matrix", dtype="float64")
    u, v, n = pt.dmatrix("u"), pt.dmatrix("v"), pt.lscalar("n")
    states = scan(
        lambda v, w, u: v + sparse.dot(w.T, u),
        outputs_info=[v],
        non_sequences=[matrix, u],
        n_steps=n,
    )
    work, _ = optimized(graph_of(states), "push-out")
    body = only_scan(work.fgraph).op.fgraph
    assert any(isinstance(v.type, sparse.SparseTensorType) for v in body.inputs)
    assert not any(isinstance(node.op, IfElse) for node in work.fgraph.apply_nodes)


CHEAP: dict[str, tuple[Callable[[], Any], bool]] = {
    "additions and products": (
        lambda: scan(lambda a, y: y + a * a - 1, sequences=[s], outputs_info=[x]),
        False,
    ),
    "a function": (
        lambda: scan(lambda a, y: y + pt.exp(a * a), sequences=[s], outputs_info=[x]),
        True,
    ),
    "a function of a state": (
        lambda: scan(lambda a, y: pt.exp(y + a * a), sequences=[s], outputs_info=[x]),
        False,
    ),
    "a function of an invariant": (
        lambda: scan(
            lambda a, y, w: y * pt.exp(w) + a * a,
            sequences=[s],
            outputs_info=[x],
            non_sequences=[w],
        ),
        False,
    ),
    "the whole body": (lambda: scan(lambda a: a * a - 1, sequences=[s]), True),
}


@pytest.mark.parametrize("name", CHEAP)
def test_case_2_without_cheap_arithmetic(name: str) -> None:
    build, is_moved = CHEAP[name]
    graph = graph_of(build())
    work, remarks = optimized(graph, "push-out{cheap=false}")
    assert any("of sequences before" in remark for remark in remarks) is is_moved
    assert any("invariant node" in remark for remark in remarks) is ("invariant" in name)
    assert_same_values(graph, work, x=0.1, s=np.linspace(0.1, 0.5, 4), w=0.3)
    _, remarks = optimized(graph, "push-out")
    assert any("of sequences before" in remark for remark in remarks)


@pytest.mark.parametrize("steps", [0, 1, 5])
@pytest.mark.parametrize("is_backwards", [False, True])
def test_case_4_a_loop_that_copies_rows(steps: int, is_backwards: bool) -> None:
    graph = graph_of(*scan(lambda a, b: [b, a], sequences=[s, t], go_backwards=is_backwards))
    work, remarks = optimized(graph, "push-out")
    assert statistics(work.fgraph).scans == 0
    assert len(remarks) == 1
    assert_same_values(graph, work, s=np.arange(steps) + 1.5, t=np.arange(steps) * 2.0)


@pytest.mark.parametrize("name", ["steps", "a state", "a while loop"])
def test_must_not_copy_rows(name: str) -> None:
    copies = {
        "steps": lambda: scan(lambda a: a, sequences=[s], n_steps=n),
        "a state": lambda: scan(lambda a, y: [a, y + 1], sequences=[s], outputs_info=[None, x])[0],
        "a while loop": lambda: scan(lambda a: (a, until(a > 2)), sequences=[s]),
    }
    graph = graph_of(copies[name]())
    work, _ = optimized(graph, "push-out")
    assert statistics(work.fgraph).scans == 1


def _looked_at_to_guard(monkeypatch: pytest.MonkeyPatch, count: int) -> int:
    """Count how often a node is asked whether it may raise, to move products before a loop."""
    rows, products = pt.dmatrix("rows"), []
    for _ in range(count):
        rows = pt.concatenate([rows, m])  # the length of each is one sum more
        products.append(rows)
    graph = graph_of(
        scan(
            lambda y, m, *rows: y + sum((part @ m * y).sum() for part in rows),
            outputs_info=[x],
            non_sequences=[m, *products],
            n_steps=n,
        )
    )
    asked = 0
    is_total = hoisting.is_total

    def counted(node: Any) -> bool:
        nonlocal asked
        asked += 1
        return is_total(node)

    with monkeypatch.context() as patch:
        patch.setattr(hoisting, "is_total", counted)
        _, remarks = optimized(graph, "push-out")
    assert "moved" in remarks[0]
    return asked


def test_lengths_of_what_is_moved_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (_looked_at_to_guard(monkeypatch, count) for count in (5, 20))
    assert many < 6 * few, "in proportion to their number"
