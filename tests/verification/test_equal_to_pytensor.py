"""Graphs that differ only in what PyTensor takes for equal are found to differ."""

from __future__ import annotations

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor import sparse
from pytensor.scalar.loop import ScalarLoop
from pytensor.sparse.type import SparseTensorType
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.verification.result import Verdict
from scanopt_cli.verification.verifying import verify

pytestmark = pytest.mark.usefixtures("evaluated_here")

x = pt.vector("x")


def test_constants_that_pytensor_takes_for_equal() -> None:
    """0.0 and -0.0, and sparse entries that are close: it keeps one frozen node for both."""
    for sign in (0.0, -0.0):
        other = pt.arctan2(pt.constant(-sign), -abs(x) - 1)
        found = verify(([x], [pt.arctan2(pt.constant(sign), -abs(x) - 1)]), ([x], [other]))
        assert found.verdict is Verdict.DIFFERS
    matrix = SparseTensorType.format_cls["csr"](np.eye(2) * 1e-8)
    close = [sparse.as_sparse_variable(each) for each in (matrix, -matrix)]
    left, right = (sparse.structured_dot(each, x[:, None] * 1e8) for each in close)
    assert verify(([x], [left]), ([x], [right])).verdict is not Verdict.IDENTICAL


def test_ops_that_pytensor_takes_for_equal() -> None:
    """A scalar loop that may stop, and one that returns the condition."""
    s, flag = ps.float64("s"), ps.bool("flag")
    stopping = ScalarLoop([s], [s * 1.5], [flag], until=ps.lt(3.0, s * 1.5))
    going_on = ScalarLoop([s, flag], [s * 1.5, ps.lt(3.0, s * 1.5)])
    assert stopping == going_on
    steps, start, state = pt.lscalar("steps"), pt.dscalar("start"), pt.bscalar("state").astype(bool)
    inputs = [steps, start, state.owner.inputs[0]]
    left, right = (Elemwise(op)(steps, start, state)[0] for op in (stopping, going_on))
    found = verify((inputs, [left]), (inputs, [right]), runs=20)
    assert found.verdict is Verdict.DIFFERS
