"""Rows of arrays in loops that Numba compiles: checked before the loop, or at every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Variable

from scanopt_cli.loop import Body, Loop, TracedLoop
from scanopt_cli.loop.row_access import ReadNumber, WriteRow, checked_before

v = pt.dvector("v")
m = pt.dmatrix("m")
x = pt.dscalar("x")
n = pt.lscalar("n")
k = pt.lscalar("k")
INPUTS = [v, m, x, n, k]


def reading(index_of: Callable[..., Any], *, is_while: bool = False) -> list[Variable]:
    """Sum rows of ``v``; ``index_of`` takes the index of the loop and a constant."""
    index, total, rows, start = pt.lscalar(), pt.dscalar(), pt.dvector(), pt.lscalar()
    following = total + rows[index_of(index, start)]
    body = Body(
        index=index,
        states=[total],
        next_states=[following],
        condition=following < 4.5 if is_while else None,
    )
    return TracedLoop.over(n, body, [x], {rows: v, start: k})[:1]


def writing(index_of: Callable[..., Any], start: Variable) -> list[Variable]:
    """Write rows of a state; it is 10 and the number of the step."""
    index, state, place = pt.lscalar(), start.type(), pt.lscalar()
    row = pt.cast(index, "float64") + 10
    if start.type.ndim == 2:
        row = pt.arange(2.0) + row
    following = pt.set_subtensor(state[index_of(index, place)], row)
    body = Body(index=index, states=[state], next_states=[following])
    return TracedLoop.over(n, body, [start], {place: k})[:1]


READS: dict[str, tuple[Callable[..., Any], bool]] = {
    "forwards": (lambda i, k: i, True),
    "ahead": (lambda i, k: i + 2, True),
    "behind, which wraps": (lambda i, k: i - 1, True),
    "backwards": (lambda i, k: k - 1 - i, True),
    "every second": (lambda i, k: 2 * i, False),
    "one row": (lambda i, k: k - 4, False),
    "modulo": (lambda i, k: i % k, False),
}


def compiled(outputs: list[Variable]) -> Any:
    return pytensor.function(INPUTS, outputs, mode="NUMBA", on_unused_input="ignore")


def body_of(function: Any) -> Any:
    (node,) = (node for node in function.maker.fgraph.toposort() if isinstance(node.op, Loop))
    return node.op


def outcome(outputs: list[Variable], mode: Any, n_steps: int, length: int) -> Any:
    function = pytensor.function(INPUTS, outputs, mode=mode, on_unused_input="ignore")
    try:
        return function(np.arange(1.0, length + 1), np.zeros((length, 2)), 0.5, n_steps, 5)
    except IndexError:
        return IndexError


def assert_like_python(outputs: list[Variable], n_steps: int, length: int) -> None:
    """Check the values, or that both raise an IndexError."""
    got, wanted = (outcome(outputs, m, n_steps, length) for m in ("NUMBA", "FAST_COMPILE"))
    if wanted is IndexError or got is IndexError:
        assert got is wanted
    else:
        np.testing.assert_allclose(got, wanted)


@pytest.mark.deep
@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize(("n_steps", "length"), [(0, 0), (1, 5), (3, 5), (5, 5), (6, 5), (5, 9)])
def test_reads(name: str, n_steps: int, length: int) -> None:
    index_of, is_sure = READS[name]
    outputs = reading(index_of)
    op = body_of(compiled(outputs))
    assert bool(checked_before(op.fgraph, op.n_states)) is is_sure
    assert_like_python(outputs, n_steps, length)


@pytest.mark.deep
@pytest.mark.parametrize("start", [v, m], ids=["numbers", "vectors"])
@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize(("n_steps", "length"), [(0, 0), (3, 5), (5, 5), (6, 5)])
def test_writes(name: str, start: Variable, n_steps: int, length: int) -> None:
    index_of, is_sure = READS[name]
    outputs = writing(index_of, start)
    op = body_of(compiled(outputs))
    (write,) = (node.op for node in op.fgraph.toposort() if isinstance(node.op, WriteRow))
    assert write.is_checked is not is_sure
    assert_like_python(outputs, n_steps, length)


@pytest.mark.deep
@pytest.mark.parametrize(("n_steps", "length"), [(9, 3), (2, 2), (9, 2)])
def test_twin_a_condition_may_end_the_loop_before_a_row_that_is_not_there(
    n_steps: int, length: int
) -> None:
    outputs = reading(lambda i, _: i, is_while=True)
    op = body_of(compiled(outputs))
    assert not any(isinstance(node.op, ReadNumber) for node in op.fgraph.toposort())
    assert_like_python(outputs, n_steps, length)


def test_ops_in_python() -> None:
    vector, number, index = pt.dvector(), pytensor.scalar.float64(), pytensor.scalar.int64()
    read = ReadNumber()(vector, index)
    write = WriteRow(adds=False, ndim=0)(vector, index, number)
    add = WriteRow(adds=True, ndim=0)(vector, index, number)
    storage: list[list[Any]] = [[None]]
    data = np.arange(3.0)
    read.owner.op.perform(read.owner, [data, 1], storage)
    assert storage == [[1.0]]
    write.owner.op.perform(write.owner, [data, 1, 7.0], storage)
    add.owner.op.perform(add.owner, [data, 1, 1.0], storage)
    np.testing.assert_array_equal(data, [0.0, 8.0, 2.0])
