"""clean-slices: buffers that are written, by number of the case, and what must not fire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Variable
from pytensor.tensor.basic import Alloc, AllocEmpty
from pytensor.tensor.subtensor import IncSubtensor

from scanopt_cli.analysis.expression_text import describe
from scanopt_cli.ir.graph import from_io
from scanopt_cli.pipeline.optimizing import optimize
from support.graph_building import graph_of, only_scan, power, scan
from support.slicing import N, check, cleaned, count, five

# Case 4: writes into zeros.


def zeros(length: Any) -> Any:
    return pt.zeros((length,))


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (lambda v: zeros(5)[1:].inc(zeros(4)[-1].inc(v)), "Alloc(0.0, 5)[-1].inc(v)"),
        (lambda v: zeros(5)[1:].set(zeros(4)[1].set(v)), "Alloc(0.0, 5)[2].set(v)"),
        (lambda v: zeros(5)[1:].inc(zeros(4)[0].inc(v)[::-1]), "Alloc(0.0, 5)[-1].inc(v)"),
        (lambda v: zeros(5)[::-1].inc(zeros(5)[0].inc(v)), "Alloc(0.0, 5)[-1].inc(v)"),
        (lambda v: zeros(5)[0].inc(v)[::-1], "Alloc(0.0, 5)[-1].inc(v)"),
    ],
)
def test_case_4_row_that_is_written_twice(write, expected: str) -> None:
    assert check(write(pt.dscalar("v"))) == expected


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (lambda v: zeros(5)[:5].inc(v), "v"),
        (lambda v: zeros(5)[::-1].inc(v), "v[::-1]"),
        (lambda v: zeros(5)[::-1].inc(v[::-1]), "v"),
        (lambda v: zeros(v.shape[0])[: v.shape[0]].inc(v), "v"),
        (lambda v: zeros(7)[1:].inc(zeros(6)[:5].inc(v)), "Alloc(0.0, 7)[1:6].inc(v)"),
        (lambda v: zeros(6)[:5].inc(v[::-1])[::-1], "Alloc(0.0, 6)[1:].inc(v)"),
        (lambda v: zeros(6)[1:].inc(v)[1:], "v"),
        (lambda v: zeros(6)[1:].inc(v)[:1], "Alloc(0.0, 6)[:1]"),
        (lambda v: zeros(6)[1:].inc(v)[2], "v[1]"),
        (lambda v: zeros(6)[1:].inc(v)[0], "0.0"),
    ],
)
def test_case_4_vector(write, expected: str) -> None:
    assert check(write(five("v"))) == expected


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (lambda v: zeros(7)[1:].inc(zeros(6)[:2].inc(v)), "Alloc(0.0, 7)[1:3].inc(v)"),
        (lambda v: zeros(7)[1:].inc(zeros(6)[:2].inc(v)[::-1]), "Alloc(0.0, 7)[5:].inc(v)"),
        (lambda v: zeros(6)[:2].inc(v)[::-1], "Alloc(0.0, 6)[4:].inc(v)"),
        (lambda v: zeros(6)[1:].inc(v)[2:4], "Alloc(v, 2)"),
        (lambda v: five()[1:].set(v)[:2:-1], "Alloc(v, 2)"),
    ],
)
def test_case_4_broadcast(write, expected: str) -> None:
    assert check(write(pt.dscalar("v"))) == expected


@pytest.mark.parametrize("axis", [0, 1])
def test_case_4_broadcast_along_either_axis(axis: int) -> None:
    """A row that is repeated is not turned; a column that is written backwards is."""
    v = pt.tensor("v", shape=[(1, 3), (2, 1)][axis], dtype="float64")
    write = pt.zeros((4, 3))[1:].inc(pt.zeros((3, 3))[:2].inc(v)[::-1])
    after, _ = cleaned(write)
    assert count(after, IncSubtensor) == 1
    check(write)


def test_case_4_other_axes() -> None:
    """A batch in front of the rows, as vectorised gradients have it."""
    v = pt.tensor("v", shape=(3, 2), dtype="float64")
    write = pt.zeros((3, 5))[:, 1:].inc(pt.zeros((3, 4))[:, :2].inc(v)[:, ::-1])
    assert check(write) == "Alloc(0.0, 3, 5)[:, 3:].inc(v[:, ::-1])"


def test_case_4_issue_1292() -> None:
    x = pt.vector("x", shape=(4,), dtype="float64")
    after, _ = cleaned(pt.grad(x[1:][-1], x))
    assert count(after, IncSubtensor) == 1
    check(pt.grad(x[1:][-1], x))


SCALAR, X = pt.dscalar("v"), five()


@pytest.mark.parametrize(
    "write",
    [
        # What is written into is not zero.
        pt.ones((5,))[1:].inc(zeros(4)[-1].inc(SCALAR)),
        zeros(5)[1:].inc(pt.ones((4,))[-1].inc(SCALAR)),
        X[:-1].inc(SCALAR)[::-1],
        # It is perhaps broadcast.
        zeros(5)[::-1].inc(pt.dvector("y")),
        # It is cast.
        zeros(5)[::-1].inc(pt.vector("y", shape=(5,), dtype="float32")),
        # It may be out of bounds.
        zeros(N + 1)[1:].inc(zeros(N)[-1].inc(SCALAR)),
        # It is not all that is written.
        zeros(7)[:3].inc(zeros(5)[1:4].inc(pt.vector("y", shape=(3,), dtype="float64"))[2:]),
        # What is read back is only a part of what is written.
        zeros(5)[1:3].inc(pt.vector("y", shape=(2,), dtype="float64"))[2:4],
        X[1:3].inc(pt.vector("y", shape=(2,), dtype="float64"))[1],
    ],
)
def test_twins_of_case_4(write: Variable) -> None:
    work = graph_of(write)
    after, _ = cleaned(write)
    assert count(after, IncSubtensor) == count(work, IncSubtensor)
    check(write)


@pytest.mark.parametrize("steps", [N, 9], ids=["n", "9"])
def test_case_4_seed_of_a_last_state(steps: Any) -> None:
    """The read of the last state shows that there is one."""
    x, ys = power(steps)
    gradient = pt.grad(ys[-1], x)
    after, remarks = cleaned(gradient)
    assert count(after, IncSubtensor) == 2
    assert "passed merged 1 nested write into zeros" in remarks
    check(gradient)


def test_twin_read_that_may_not_run() -> None:
    y = pt.dvector("y")
    chosen = pytensor.ifelse(pt.gt(N, 3), y[-1], pt.constant(np.float64(1.0)))
    write = zeros(y.shape[0] + 1)[1:].inc(zeros(y.shape[0])[-1].inc(chosen))
    after, _ = cleaned(write)
    assert count(after, IncSubtensor) == 2
    check(write)


def test_twin_read_that_is_not_part_of_the_value() -> None:
    """Else its error would be lost."""
    y = pt.dvector("y")
    write = zeros(y.shape[0] + 1)[1:].inc(zeros(y.shape[0])[-1].inc(1.0))
    after, _ = cleaned(write, y[-1])
    assert count(after, IncSubtensor) == 2
    check(write)


# Case 5: whole writes, and rows that are read back.


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (lambda x, v: x[0:].set(v), "v"),
        (lambda x, v: x[::-1].set(v), "v[::-1]"),
        (lambda x, v: AllocEmpty("float64")(5)[:5].set(v), "v"),
        (lambda x, v: AllocEmpty("float64")(6)[1:].set(v)[2], "v[1]"),
        (lambda x, v: AllocEmpty("float64")(1)[:1].set(v[2][None])[0], "v[2]"),
        (lambda x, v: AllocEmpty("float64")(1)[:1].set(v[2][None]), "v[2]"),
        (lambda x, v: x[2].set(v[0])[2], "v[0]"),
        (lambda x, v: x[1:].set(v[0])[2], "v[0]"),
        (lambda x, v: x[2].set(v[0])[3:], "x[3:]"),
        (lambda x, v: x[2:3].inc(v[0][None]), "x[2].inc(v[0])"),
        (lambda x, v: v[1][None][0], "v[1]"),
    ],
)
def test_case_5(read, expected: str) -> None:
    assert check(read(five(), five("v"))) == expected


def test_case_5_rows_of_a_matrix() -> None:
    v = pt.vector("v", shape=(3,), dtype="float64")
    buffer = AllocEmpty("float64")(4, 3)[:1].set(v[None])
    assert check(buffer[0]) == "v"


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (lambda x, v: x[:, 2].set(v)[:, 2], "v"),
        (lambda x, v: x[:, 2].set(v)[:, 2:3], "v"),  # with an axis more
        (lambda x, v: x[:, 2].set(v)[:, 3], "x[:, 3]"),
        (lambda x, v: x[:, 2].inc(v)[:, 2], "x[:, 2].inc(v)[:, 2]"),
    ],
)
def test_case_5_other_axes(read, expected: str) -> None:
    """A batch in front of the rows; what is added to rows that are not zero is no value of them."""
    x, v = (pt.tensor(name, shape=(3, 5)[:n], dtype="float64") for name, n in (("x", 2), ("v", 1)))
    assert check(read(x, v)) == expected


@pytest.mark.parametrize("steps", [N, 9], ids=["n", "9"])
def test_twin_start_of_a_long_loop_keeps_its_form(steps: Any) -> None:
    """Another form is not recognised by PyTensor's memory saving, which keeps all rows for it."""
    _, ys = power(steps)
    after, _ = cleaned(ys)
    start = only_scan(after.fgraph).node.inputs[1]
    assert (
        describe(start) == ("AllocEmpty(n+1)" if steps is N else "AllocEmpty(10)") + "[:1].set(x)"
    )
    assert start.owner.inputs[1].type.shape == (1,)


def test_case_8_start_of_a_short_loop() -> None:
    _, ys = power(5)
    after, _ = cleaned(ys)
    assert describe(only_scan(after.fgraph).node.inputs[1]) == "Alloc(x, 6)"
    check(ys)


def test_case_8_of_several_taps() -> None:
    x = pt.dscalar("x")
    start = pt.stack([x, x])
    for value, expected in ((pt.zeros(2), "Alloc(0.0, 6)"), (x, "Alloc(x, 6)"), (start, None)):
        buffer = AllocEmpty("float64")(6)[:2].set(value)
        after, _ = cleaned(buffer)
        assert count(after, IncSubtensor) == (expected is None)
        assert expected is None or describe(after.outputs[0]) == expected


@pytest.mark.parametrize(
    "start",
    [
        # More rows than are filled in no time.
        AllocEmpty("float64")(9)[:1].set(SCALAR[None]),
        # Not the start.
        AllocEmpty("float64")(6)[1:2].set(SCALAR[None]),
        # Rows that differ.
        AllocEmpty("float64")(6)[:2].set(X[:2]),
        # Cast.
        AllocEmpty("float64")(6)[:1].set(pt.fscalar("w")[None]),
        # Perhaps broadcast.
        AllocEmpty("float64")(6, 5)[:1].set(pt.dvector("y")[None]),
        # Not empty before.
        X[:1].set(SCALAR[None]),
    ],
)
def test_twins_of_case_8(start: Variable) -> None:
    after, _ = cleaned(start)
    assert count(after, IncSubtensor) == 1
    assert not any(isinstance(node.op, Alloc) for node in after.fgraph.apply_nodes)


@pytest.mark.parametrize(
    "read",
    [
        # Perhaps broadcast.
        lambda x: x[1:].set(pt.dvector("v"))[2],
        # Cast.
        lambda x: x[1:].set(pt.vector("v", shape=(4,), dtype="float32"))[2],
        # Added.
        lambda x: x[1:].inc(pt.vector("v", shape=(4,), dtype="float64"))[2],
        # Not shown where.
        lambda x: x[N].set(pt.dscalar("v"))[2],
        # Some rows were there before.
        lambda x: x[1:].set(pt.vector("v", shape=(4,), dtype="float64"))[:3],
    ],
)
def test_twins_of_case_5(read) -> None:
    after, _ = cleaned(read(five()))
    assert count(after, IncSubtensor) == 1
    check(read(five()))


def gradient_of_equal_rows(rows: Callable[[Any, Any], Any], n_steps: Any) -> Any:
    v, n, h0 = pt.dvector("v"), pt.lscalar("n"), pt.dvector("h0")
    states = scan(
        lambda x, h: pt.tanh(h * x + 1),
        sequences=[rows(v, n)],
        outputs_info=[h0],
        n_steps=n if n_steps is None else n_steps,
    )
    return from_io([v, n, h0], pt.grad((states**2).sum(), [v, h0]))


EQUAL_ROWS: dict[str, Callable[[Any, Any], Any]] = {
    "alloc": lambda v, n: pt.alloc(v, n, 3),
    "transposed": lambda v, n: pt.alloc(v[:, None], 3, n).T,
}


def values_at(graph: Any, steps: int) -> Any:
    mode = Mode("vm", "fast_run").excluding("fusion")
    function = pytensor.function(
        list(graph.inputs), list(graph.outputs), mode=mode, on_unused_input="ignore"
    )
    try:
        return function(np.array([0.3, 0.5, 0.7]), steps, np.array([1.0, 2.0, 3.0]))
    except ValueError:
        return None


@pytest.mark.parametrize(
    "passes", ["clean-slices", "inline-constants,clean-slices", "grad", "loop"]
)
@pytest.mark.parametrize("name", EQUAL_ROWS)
def test_must_not_drop_a_buffer_that_has_the_shape_of_no_rows(name: str, passes: str) -> None:
    """A Scan loses the shape of a trace of no steps: an error stays, no shape is wrong."""
    graph = gradient_of_equal_rows(EQUAL_ROWS[name], None)
    result = optimize(graph, passes)
    for steps in (1, 4):
        for found, wanted in zip(
            values_at(result.graph, steps), values_at(graph, steps), strict=True
        ):
            np.testing.assert_allclose(found, wanted, rtol=1e-12)
    found = values_at(result.graph, 0)
    assert found is None or [value.shape for value in found] == [(3,), (3,)]
    if passes == "inline-constants,clean-slices":
        remarks = [str(remark) for run in result.passes for remark in run.remarks]
        assert any("trace of no steps" in " ".join(text.split()) for text in remarks), remarks


@pytest.mark.parametrize("name", EQUAL_ROWS)
def test_case_4_trace_of_some_steps(name: str) -> None:
    """The twin: the loop runs four steps."""
    graph = gradient_of_equal_rows(lambda v, n: EQUAL_ROWS[name](v, 4), 4)
    result = optimize(graph, "inline-constants,clean-slices")
    remarks = [str(remark) for run in result.passes for remark in run.remarks]
    assert not any("trace of no steps" in " ".join(text.split()) for text in remarks), remarks
    for found, wanted in zip(values_at(result.graph, 4), values_at(graph, 4), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
