"""clean-slices: reads and lengths, its legal cases by number, and a twin for each precondition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import get_mode
from pytensor.graph.traversal import ancestors
from pytensor.scan.utils import until
from pytensor.tensor.math import Sum
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from scanopt_cli.analysis.expression_text import describe
from scanopt_cli.passes.clean_slices.clean_slices import CleanSlices
from scanopt_cli.pipeline.runner import run_pipeline
from scanopt_cli.reports.remark_text import text_of
from support.graph_building import graph_of, power, scan
from support.slicing import STEPS, N, check, cleaned, count, five, outcome, text, unchanged, unknown

# Case 1: slices of slices.


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (lambda x: x[:-1][::-1][:4], "x[3::-1]"),
        (lambda x: x[-2::-1][:4], "x[3::-1]"),
        (lambda x: x[::-1][::-1], "x"),
        (lambda x: x[1:][::-1][1:][::-1], "x[1:4]"),
        (lambda x: x[0:], "x"),
        (lambda x: x[:5], "x"),
        (lambda x: x[-5:], "x"),
        (lambda x: x[1:][:4], "x[1:]"),
        (lambda x: x[1:][-1], "x[-1]"),
        (lambda x: x[::-1][0], "x[-1]"),
        (lambda x: x[1:][::-1][1], "x[3]"),
        (lambda x: x[2:2][1:], "x[:0]"),
        (lambda x: x[3:][:0], "x[:0]"),
    ],
)
def test_case_1_slices_of_slices(read, expected: str) -> None:
    assert check(read(five())) == expected


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (lambda x: x[::-1][::-1], "x"),
        (lambda x: x[: x.shape[0]], "x"),
        (lambda x: x[::-1][:3], "x[:-4:-1]"),
        (lambda x: x[::-1][:0], "x[:0]"),
        (lambda x: x[::-1][:1], "x[-1:]"),
        (lambda x: x[::-1][2:], "x[-3::-1]"),
        (lambda x: x[-3:][::-1], "x[:-4:-1]"),
        (lambda x: x[:-2][::-1], "x[-3::-1]"),
        (lambda x: x[::-1][0], "x[-1]"),
        (lambda x: x[::-1][-2], "x[1]"),
        (lambda x: x[::-1][7], "x[-8]"),
    ],
)
def test_case_1_any_length(read, expected: str) -> None:
    assert check(read(unknown())) == expected


@pytest.mark.parametrize("axis", [0, 1])
def test_case_1_other_axes(axis: int) -> None:
    x = pt.tensor("x", shape=(5, 5), dtype="float64")
    front = (slice(None),) * axis
    read = x[(*front, slice(None, None, -1))][(*front, slice(None, 4))]
    assert check(read) == ["x[:0:-1]", "x[:, :0:-1]"][axis]


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x[1:][-1],
        lambda x: x[1:][0],
        lambda x: x[1:][::-1],
        lambda x: x[:3],
        lambda x: x[::2][::-1],
        lambda x: x[: N + 1],
        lambda x: x[1:][N],
    ],
)
def test_twin_length_is_not_shown(read) -> None:
    unchanged(read(unknown()))


def test_twin_other_axis_in_between() -> None:
    x = pt.tensor("x", shape=(5, 5), dtype="float64")
    unchanged(x[::-1][:, ::-1])


def test_twin_several_axes_at_once() -> None:
    x = pt.tensor("x", shape=(5, 5), dtype="float64")
    unchanged(x[1:, 1:][:, :2])


@pytest.mark.parametrize("index", [5, -6, 9])
def test_twin_out_of_bounds_stays_an_error(index: int) -> None:
    y = pt.dvector("y")
    joined = pt.concatenate([y, y])
    assert "IndexError" in type(outcome(cleaned(joined[:5][::-1][index])[0])).__name__


def test_twin_symbolic_count_may_be_zero() -> None:
    """``ys[-1]`` of 0 steps raises."""
    _, ys = power(N)
    after, _ = cleaned(ys[-1])
    assert text(after).endswith("[1:][-1]")
    check(ys[-1])


def test_twin_a_trace_of_no_steps_has_no_rows() -> None:
    """The loop, as PyTensor compiles it, keeps one row of its trace; an empty one sums to 0."""
    x = pt.dvector("x")
    _, ys = scan(lambda t, y: [y * t, pt.tanh(t) + y], sequences=[x], outputs_info=[x.sum(), None])
    mode = get_mode("FAST_RUN").excluding("inplace")
    (compiled,) = pytensor.function([x], [ys[-1:].sum()], mode=mode).maker.fgraph.outputs
    assert check(compiled) == "Sum(Scan scan_fn.1[-1:])"


# Case 2: through Scan.


@STEPS
def test_case_2_sequence_that_is_reversed_twice(steps: Any) -> None:
    _, ys = power(steps)
    zs = scan(lambda y: 2 * y, sequences=[ys[::-1][::-1]], name="twice")
    after, _ = cleaned(zs)
    (node,) = (n for n in after.fgraph.apply_nodes if getattr(n.op, "name", "") == "twice")
    assert describe(node.inputs[1]) == "Scan square[1:]"
    check(zs)


# Case 3: plain forms, and hazard 3: PyTensor misreads one row that is read backwards.


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (slice(3, -6, -1), "x[3::-1]"),
        (slice(-1, -6, -1), "x[::-1]"),
        (slice(-1, -2, -1), "x[-1:]"),
        (slice(None, -2, -1), "x[-1:]"),
        (slice(2, 1, -1), "x[2:3]"),
        (slice(2, 5), "x[2:]"),
        (slice(0, 3, 1), "x[:3]"),
        (slice(None, -3, -2), "x[-1:]"),
        (slice(1, 3, 2), "x[1:2]"),
    ],
)
def test_case_3_plain_form(part: slice, expected: str) -> None:
    x = five()
    assert check(x[part]) == expected


@pytest.mark.parametrize(
    "part", [slice(None, 3), slice(-2, None), slice(-2, None, -1), slice(None, None, -1)]
)
def test_twin_plain_already(part: slice) -> None:
    unchanged(five()[part])


def test_case_3_writes() -> None:
    x, v = five(), pt.vector("v", shape=(3,), dtype="float64")
    assert check(x[2:5].inc(v)) == "x[2:].inc(v)"


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x[:-2:-1],
        lambda x: x[-1:-2:-1],
        lambda x: x[::-1][:1],
        lambda x: x[-1:][::-1],
        lambda x: x[1:][::-1][:1],
        lambda x: x[3:][::-1][1:],
        lambda x: x[:2][::-1][:1],
        lambda x: x[:-3:-2],
        lambda x: x[-1::-7],
        lambda x: x[1::3][::-1],
    ],
)
@pytest.mark.parametrize("rows", [5, 2, None])
def test_hazard_3_one_row_is_not_read_backwards(read, rows: int | None) -> None:
    """After PyTensor's own rewrites, too."""
    x = pt.vector("x", shape=(rows,), dtype="float64")
    after, _ = cleaned(read(x).sum())
    data = np.arange(1.0, 1.0 + (rows or 4))
    compiled = pytensor.function(after.inputs, after.outputs, mode="FAST_RUN")
    assert compiled(data)[0] == np.sum(read(data))


# Case 6: single elements.


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (lambda x: x[-1:].sum(), "x[-1]"),
        (lambda x: x[2:3].sum(), "x[2]"),
        (lambda x: x[:-2:-1].sum(axis=0), "x[-1]"),
        (lambda x: x[-1:].squeeze(0), "x[-1]"),
    ],
)
def test_case_6(read, expected: str) -> None:
    assert check(read(five())) == expected


def test_case_6_other_axes_and_types() -> None:
    x = pt.tensor("x", shape=(5, 3), dtype="int8")
    assert check(x[2:3].sum(axis=0)) == check(x[2].astype("int64"))
    after, _ = cleaned(x[2:3].sum())
    (node,) = (node for node in after.fgraph.apply_nodes if isinstance(node.op, Sum))
    assert describe(node.inputs[0]) == "x[2]"
    check(x[2:3].sum())


@pytest.mark.parametrize("read", [lambda x: x[-1:].sum(), lambda x: x[:1].sum()])
def test_twin_sum_of_what_may_be_empty(read) -> None:
    unchanged(read(unknown()))
    check(read(unknown()))


# Case 7: lengths.


@STEPS
def test_case_7_length_of_a_loop(steps: Any) -> None:
    _, ys = power(steps)
    zs = scan(lambda y: 2 * y, sequences=[ys], name="twice")
    after, _ = cleaned(zs)
    (node,) = (n for n in after.fgraph.apply_nodes if getattr(n.op, "name", "") == "twice")
    assert describe(node.inputs[0]) == str(steps)
    check(zs)


def test_twin_loop_that_stops_early() -> None:
    x = pt.dscalar("x")
    ys = scan(lambda y: (2 * y, until(y > 3)), outputs_info=[x], n_steps=9, name="early")
    after, _ = cleaned(ys.shape[0])
    assert "Shape" in str([node.op for node in after.fgraph.apply_nodes])
    check(ys[::-1][:3], ys.shape[0])


# The seed case of all this: PyTensor issue 1669.


@pytest.mark.parametrize("steps", [N, 4, 5], ids=["n", "4", "5"])
def test_second_gradient_of_a_power(steps: Any) -> None:
    x, ys = power(steps)
    second = pt.grad(pt.grad(ys[-1], x), x)
    check(second)
    after, _ = cleaned(second)
    assert isinstance(after.outputs[0].owner.op, Subtensor)
    assert count(after, Sum) == 0
    for variable in ancestors(after.outputs):
        node = variable.owner
        if node is not None and isinstance(node.op, Subtensor):
            inner = node.inputs[0].owner
            is_start = steps is N and describe(variable).endswith("[1:][-1]")
            assert inner is None or not isinstance(inner.op, Subtensor) or is_start
        if node is not None and isinstance(node.op, IncSubtensor):
            value = node.inputs[1].owner
            assert value is None or not isinstance(value.op, IncSubtensor)
    assert not any("SpecifyShape" in str(node.op) for node in after.fgraph.apply_nodes)


def test_limit_and_remarks() -> None:
    x = five()
    work = graph_of(x[::-1][::-1], x[1:][1:]).copy()
    (run,) = run_pipeline(work.fgraph, [CleanSlices()], limit=1)
    assert [text_of(remark) for remark in run.remarks] == ["simplified or composed 1 slice"]
    assert run.rewrites == 1


def test_twin_works_in_place() -> None:
    x = five()
    write = x[1:].inc(1.0)
    in_place = IncSubtensor(write.owner.op.idx_list, inplace=True)(*write.owner.inputs)
    work = graph_of(in_place[::-1][::-1])
    (run,) = run_pipeline(work.fgraph, [CleanSlices()])
    assert not run.changed
    assert "works in place" in text_of(run.remarks[0])
