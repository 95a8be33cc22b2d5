"""inline-constants: its legal cases by number, and a twin that must not fire for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Constant
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.loop import TracedLoop
from support.graph_building import (
    assert_same_values,
    graph_of,
    labels,
    only_scan,
    optimized,
    outputs_of,
    scan,
)

X = pt.dscalar("x")
N = pt.lscalar("n")


def _with(constant, step=lambda y, c: y * c):
    """A loop with a constant non-sequence. (`scan` itself would not make one of a constant.)"""
    c = constant.type("c")
    ys = scan(step, outputs_info=[X], non_sequences=[c], n_steps=N)
    return graph_of(clone_replace(ys, {c: constant}))


def _over(sequence, n_steps=N, step=lambda a, y: y * a):
    return scan(step, sequences=[sequence], outputs_info=[X], n_steps=n_steps)


def test_case_1_constant_non_sequence() -> None:
    after, remarks = optimized(_with(pt.constant(2.5)), "inline-constants")
    view = only_scan(after.fgraph)
    assert labels(view) == ["sit_sot[0]"]
    constants = [v.data for v in ancestors(view.inner_outputs()) if isinstance(v, Constant)]
    assert constants == [2.5]
    assert remarks == ["passed scan_fn: wrote the value of non_seq `non_seq[0]` into the step"]


def test_case_1_folds_in_the_body() -> None:
    graph = _with(pt.constant(2.0), lambda y, c: y * (c + pt.exp(c)))
    after, _ = optimized(graph, "inline-constants")
    assert len(only_scan(after.fgraph).op.fgraph.apply_nodes) == 1


def test_case_1_twin_variable_non_sequence() -> None:
    ys = scan(lambda y, c: y * c, outputs_info=[X], non_sequences=[pt.dscalar("c")], n_steps=N)
    assert optimized(graph_of(ys), "inline-constants")[1] == []


def test_case_1_twin_large_constant() -> None:
    table = pt.constant(np.zeros((100, 100)))
    graph = _with(table, lambda y, c: y + c.sum())
    after, remarks = optimized(graph, "inline-constants")
    assert labels(only_scan(after.fgraph)) == ["sit_sot[0]", "non_seq[0]"]
    assert "more than 4096 elements" in remarks[0]


def test_case_1_twin_step_that_returns_the_constant() -> None:
    """The state's type says nothing of the length; the constant's does."""
    start, c = pt.dvectors("start", "c")
    ys = scan(lambda y, c: c, outputs_info=[start], non_sequences=[c], n_steps=N)
    graph = graph_of(clone_replace(ys, {c: pt.constant(np.ones(2))}))
    after, remarks = optimized(graph, "inline-constants")
    assert labels(only_scan(after.fgraph)) == ["sit_sot[0]", "non_seq[0]"]
    assert "a step returns the constant as it is" in remarks[0]


@pytest.mark.parametrize(
    "sequence",
    [
        pt.constant(np.full(5, 3.0)),
        pt.constant(np.full(5, np.nan)),
        pt.constant(np.full(9, 3.0))[2:7],
    ],
)
def test_case_2_uniform_constant_sequence(sequence) -> None:
    graph = graph_of(_over(sequence, 5))
    after, _ = optimized(graph, "inline-constants")
    assert labels(only_scan(after.fgraph)) == ["sit_sot[0]"]
    np.testing.assert_array_equal(outputs_of(after, x=2.0)[0], outputs_of(graph, x=2.0)[0])


@pytest.mark.parametrize(
    "rows",
    [
        [1.0, 1.0, 2.0],
        [0.0, -0.0, 0.0],
        [],
    ],
)
def test_case_2_twin_rows_that_differ_or_are_missing(rows) -> None:
    graph = graph_of(_over(pt.constant(np.array(rows))))
    assert optimized(graph, "inline-constants")[1] == []


def test_case_3_alloc_of_a_constant() -> None:
    after, _ = optimized(graph_of(_over(pt.zeros((N,)))), "inline-constants")
    assert labels(only_scan(after.fgraph)) == ["sit_sot[0]"]


def test_case_3_alloc_of_a_variable_becomes_a_non_sequence() -> None:
    v = pt.dscalar("v")
    graph = graph_of(_over(pt.alloc(v, N)))
    after, remarks = optimized(graph, "inline-constants")
    view = only_scan(after.fgraph)
    assert [slot.kind for slot in view.slots] == [SlotKind.SIT_SOT, SlotKind.NON_SEQ]
    assert remarks == ["passed scan_fn: turned uniform seq `seq[0]` into a non_seq"]
    assert outputs_of(after, n=3, v=2.0, x=1.0)[0].tolist() == [2.0, 4.0, 8.0]


def test_case_3_twin_alloc_of_rows() -> None:
    rows = pt.dvector("rows")
    graph = graph_of(_over(pt.alloc(rows, 3)))
    assert optimized(graph, "inline-constants")[1] == []


@pytest.mark.parametrize(
    ("sequence", "told"),
    [
        (pt.alloc(3.0, N, 2), "wrote the value of constant"),
        (pt.alloc(pt.dscalar("v"), N, 2), "into a row"),
        (pt.alloc(pt.dscalar("v"), N + 1, 2)[::-1], "into a row"),
    ],
    ids=["a number", "a filled array", "a slice of one"],
)
def test_case_4_rows_of_traced_loops(sequence: Any, told: str) -> None:
    start = pt.dvector("start")
    ys = scan(lambda a, y: y * a, sequences=[sequence], outputs_info=[start], n_steps=N)
    graph, _ = optimized(graph_of(ys), "scan-to-loop")
    after, remarks = optimized(graph, "inline-constants,remove-unused")
    assert any(told in remark for remark in remarks)
    (node,) = (n for n in after.fgraph.apply_nodes if isinstance(n.op, TracedLoop))
    assert not any(isinstance(n.op, Subtensor) for n in node.op.fgraph.apply_nodes)
    for steps in (0, 1, 5):
        values = {"start": np.array([1.0, 2.0]), "n": steps, "v": 1.5}
        assert_same_values(graph, after, **values)


@pytest.mark.parametrize(
    "step",
    [lambda i, y, a: y * a[i // 2], lambda i, y, a: y * a[i] + a.sum()],
    ids=["another row", "all rows as well"],
)
def test_case_4_twin_other_reads(step: Callable[..., Any]) -> None:
    """What reads other rows, or all, keeps the constant."""
    a = pt.alloc(pt.dscalar("v"), N)
    ys = scan(step, sequences=[pt.arange(N)], non_sequences=[a], outputs_info=[X], n_steps=N)
    graph, _ = optimized(graph_of(ys), "scan-to-loop")
    after, _ = optimized(graph, "inline-constants,remove-unused")
    (node,) = (n for n in after.fgraph.apply_nodes if isinstance(n.op, TracedLoop))
    assert any(v.type.ndim for v in node.op.fgraph.inputs[2:])


def test_inside_a_loop() -> None:
    def outer(y):
        c = pt.dscalar("c")
        zs = scan(lambda z, c: z * c, outputs_info=[y], non_sequences=[c], n_steps=2)
        return clone_replace(zs[-1], {c: pt.constant(3.0, dtype="float64")})

    graph = graph_of(scan(outer, outputs_info=[X], n_steps=N, name="outer"))
    _, remarks = optimized(graph, "inline-constants")
    assert remarks == [
        "passed outer/scan_fn: wrote the value of non_seq `non_seq[0]` into the step"
    ]


def test_case_1_twin_negative_zero() -> None:
    """PyTensor keeps 0.0 and -0.0 as one constant in bodies."""
    graph = _with(pt.constant(np.float64(-0.0)), lambda y, c: y / c)
    after, remarks = optimized(graph, "inline-constants")
    assert labels(only_scan(after.fgraph)) == ["sit_sot[0]", "non_seq[0]"]
    assert "it holds -0.0" in remarks[0]


@pytest.mark.parametrize(
    ("sequence", "told"),
    [
        (pt.alloc(0.5, N, 4)[:, 1:], "passed"),
        (pt.alloc(0.5, N, pt.lscalar("m"))[:, 1:], "passed"),
        (pt.alloc(0.5, N, 3), "passed"),
        (pt.alloc(0.5, N, pt.lscalar("m")), "passed"),
        (pt.alloc(0.5, N, 4)[:5], "passed"),
    ],
    ids=["cut rows", "cut rows of unknown length", "rows", "rows of unknown length", "fewer rows"],
)
def test_case_3_rows(sequence, told: str) -> None:
    """What is inlined has the shape of a row of the sequence, however the rows are cut."""
    graph = graph_of(scan(lambda row: row.sum() + row * 2, sequences=[sequence]))
    after, remarks = optimized(graph, "inline-constants")
    assert [remark.split()[0] for remark in remarks] in ([told], [])
    values = {"n": 5, "m": 2}
    np.testing.assert_array_equal(outputs_of(after, **values), outputs_of(graph, **values))
