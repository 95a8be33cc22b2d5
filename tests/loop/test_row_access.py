"""Rows of arrays in loops that Numba compiles: checked before the loop, or at every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Variable

from scanopt_cli import loop
from scanopt_cli.loop import Body, Loop, TracedLoop
from scanopt_cli.loop.row_access import ReadNumber, WriteEntries, WriteRow, checked_before

v = pt.dvector("v")
m = pt.dmatrix("m")
pairs = pt.dmatrix("pairs", shape=(None, 2))
x = pt.dscalar("x")
n = pt.lscalar("n")
k = pt.lscalar("k")
INPUTS = [v, m, pairs, x, n, k]


def reading(
    index_of: Callable[..., Any], *, of: Variable = v, is_while: bool = False
) -> list[Variable]:
    """Sum rows of ``v``, or second entries; ``index_of`` takes the loop's index and a constant."""
    index, total, rows, start = pt.lscalar(), pt.dscalar(), of.type(), pt.lscalar()
    place = index_of(index, start)
    following = total + (rows[place] if of is v else rows[place, 1])
    body = Body(
        index=index,
        states=[total],
        next_states=[following],
        condition=following < 4.5 if is_while else None,
    )
    return TracedLoop.over(n, body, [x], {rows: of, start: k})[:1]


def writing(index_of: Callable[..., Any], start: Variable) -> list[Variable]:
    """Write rows of a state; it is 10 and the number of the step."""
    index, state, place = pt.lscalar(), start.type(), pt.lscalar()
    row = pt.cast(index, "float64") + 10
    if start is pairs:
        row = pt.stack([row, row * 2])
    elif start.type.ndim == 2:
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
        rows = np.arange(2.0 * length).reshape(length, 2)
        return function(np.arange(1.0, length + 1), rows * 0, rows, 0.5, n_steps, 5)
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
@pytest.mark.parametrize("of", [v, pairs], ids=["numbers", "entries"])
def test_reads(name: str, of: Variable, n_steps: int, length: int) -> None:
    index_of, is_sure = READS[name]
    outputs = reading(index_of, of=of)
    op = body_of(compiled(outputs))
    assert bool(checked_before(op.fgraph, op.n_states)) is is_sure
    assert_like_python(outputs, n_steps, length)


@pytest.mark.deep
@pytest.mark.parametrize("start", [v, m, pairs], ids=["numbers", "vectors", "entries"])
@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize(("n_steps", "length"), [(0, 0), (3, 5), (5, 5), (6, 5)])
def test_writes(name: str, start: Variable, n_steps: int, length: int) -> None:
    index_of, is_sure = READS[name]
    outputs = writing(index_of, start)
    op = body_of(compiled(outputs))
    kind = WriteEntries if start is pairs else WriteRow
    (write,) = (node.op for node in op.fgraph.toposort() if isinstance(node.op, kind))
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
    rows = np.zeros((2, 2))
    for adds in (False, True):
        entries = WriteEntries(adds, (2,))(pt.dmatrix(), index, number, number)
        entries.owner.op.perform(entries.owner, [rows, 1, 3.0, 4.0], storage)
    np.testing.assert_array_equal(rows, [[0.0, 0.0], [6.0, 8.0]])
    entry = ReadNumber((1,))(pt.dmatrix(), index)
    entry.owner.op.perform(entry.owner, [rows, 1], storage)
    assert storage == [[8.0]]


@pytest.mark.deep
@pytest.mark.parametrize("steps", [1, 4])
def test_twin_a_step_overwrites_what_is_traced(steps: int) -> None:
    """The value before the step is written before the step overwrites it."""
    index, state = pt.lscalar(), pt.dvector()
    body = Body(
        index=index,
        states=[state],
        next_states=[pt.set_subtensor(state[0], state[0] + state[1])],
        traced=[state, state[::-1]],
    )
    outputs = TracedLoop.over(n, body, [v], {})
    for traced in outputs[2:4]:
        # Both outputs are needed, so that the step overwrites the state.
        assert_like_python([pt.concatenate([traced, outputs[:1]])], steps, 3)


@pytest.mark.deep
@pytest.mark.parametrize("place", [(2,), (-3,)])
def test_twin_an_entry_that_is_not_there(place: tuple[int, ...]) -> None:
    index, total, rows = pt.lscalar(), pt.dscalar(), pt.dmatrix()
    rows = pt.dmatrix(shape=(None, 2))
    body = Body(index=index, states=[total], next_states=[total + rows[(index, *place)]])
    outputs = TracedLoop.over(n, body, [x], {rows: pairs})[:1]
    assert_like_python(outputs, 2, 3)


@pytest.mark.deep
def test_twin_a_row_that_is_broadcast() -> None:
    """The row of one entry is written to both."""
    index, state = pt.lscalar(), pairs.type()
    row = pt.stack([pt.cast(index, "float64")])
    body = Body(index=index, states=[state], next_states=[pt.set_subtensor(state[index], row)])
    outputs = TracedLoop.over(n, body, [pairs], {})[:1]
    op = body_of(compiled(outputs))
    assert not any(isinstance(node.op, WriteEntries) for node in op.fgraph.toposort())
    assert_like_python(outputs, 2, 3)


@pytest.mark.parametrize("ndim", [0, 1])
@pytest.mark.parametrize("is_read", [False, True])
def test_complex_rows(ndim: int, is_read: bool) -> None:
    """No rule reads complex numbers: they are left to the code of PyTensor."""
    rows = pt.tensor(
        "rows", shape=(None,) * (ndim + 1), dtype="complex128" if is_read else "float64"
    )
    start = pt.tensor("start", shape=(None,) * ndim, dtype="complex128")
    outputs = loop.scan(lambda h, row: (h * 0.5j + row, h), start, rows)
    values = (np.arange(8.0) * (1 - 2j if is_read else 1)).reshape((4, 2) if ndim else (8,))
    first = np.asarray([1j, 2.0]) if ndim else np.asarray(1j)
    found, expected = (
        pytensor.function([rows, start], outputs, mode=mode)(values, first)
        for mode in ("NUMBA", "FAST_COMPILE")
    )
    for one, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-12)
