"""clean-slices: buffers that are written, by number of the case, and what must not fire."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Variable
from pytensor.tensor.basic import AllocEmpty
from pytensor.tensor.subtensor import IncSubtensor

from graph_building import graph_of, only_scan, power
from scanopt_cli.scans.describing import describe
from slicing import STEPS, N, check, cleaned, count, five

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
        # It is broadcast.
        zeros(5)[:].inc(SCALAR),
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


@STEPS
def test_case_4_seed_of_a_last_state(steps: Any) -> None:
    """The read of the last state shows that there is one."""
    x, ys = power(steps)
    gradient = pt.grad(ys[-1], x)
    after, remarks = cleaned(gradient)
    assert count(after, IncSubtensor) == 2
    assert "changed wrote 1 value into zeros to where they end up" in remarks
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


def test_twin_start_of_a_loop_keeps_its_form() -> None:
    _, ys = power(5)
    after, _ = cleaned(ys)
    start = only_scan(after.fgraph).node.inputs[1]
    assert describe(start) == "AllocEmpty(6)[:1].set(x)"
    assert start.owner.inputs[1].type.shape == (1,)


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
