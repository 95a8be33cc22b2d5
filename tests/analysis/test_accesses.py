"""Where indices read, against what NumPy does; and the readers of a loop's output."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytensor.tensor.shape import Shape_i

from scanopt_cli.analysis.accesses.accesses import accesses
from scanopt_cli.analysis.accesses.indices import Extent, read_index
from scanopt_cli.analysis.accesses.row_sources import RowSource
from scanopt_cli.ir.scan_view import is_loop, view_of
from scanopt_cli.loop import Body, TracedLoop
from scanopt_cli.loop.batching import SAME_COUNT
from support.graph_building import graph_of, only_scan, scan

MOST = 7
bounds = st.none() | st.integers(-MOST, MOST)
steps = st.none() | st.integers(-3, 3).filter(bool)
slices = st.builds(slice, bounds, bounds, steps)
lists = st.lists(st.integers(-MOST, MOST), min_size=1, max_size=4).map(np.asarray)
indices = slices | st.integers(-MOST, MOST) | lists


@given(index=indices)
def test_extent_holds_every_row_that_numpy_reads(index: object) -> None:
    """Whatever the number of rows; and in the reversal it is the reversed extent."""
    extent = Extent.of(index)
    for length in range(2 * MOST):
        rows = np.arange(length)
        for source, found in ((rows, extent), (rows[::-1], extent.reversed())):
            try:
                read = np.atleast_1d(source[index])
            except IndexError:
                continue
            if found.n_last is not None:
                assert (read >= length - found.n_last).all()
            if found.n_first is not None:
                assert (read < found.n_first).all()
            assert (read < max(length - found.n_left_out, 0)).all()
            assert not (found.is_empty and read.size)


@given(index=slices | st.integers(-MOST, -1))
def test_last_rows_read_alike_from_as_many_rows(index: object) -> None:
    """A buffer may keep only the last rows of an index that counts from the end."""
    kept = Extent.of(index).n_last
    if kept is None:
        return
    for length in range(kept, 2 * MOST):
        rows = np.arange(length)
        np.testing.assert_array_equal(rows[length - kept :][index], rows[index])


def test_extents_are_exact_where_rows_are_many() -> None:
    assert Extent.of(slice(-3, None)).n_last == 3
    assert Extent.of(slice(-1, -4, -1)).n_last == 3
    assert Extent.of(slice(2, 5)).n_first == 5
    assert Extent.of(slice(5, 3, -1)).n_first == 6
    assert Extent.of(slice(None, -2)).n_left_out == 2
    assert Extent.of(np.array([-4, -2])).n_last == 4
    assert Extent.of(np.array([-4, -2])).n_left_out == 1
    for index in (slice(None), slice(1, None), slice(-3, 5), np.array([0, -1])):
        extent = Extent.of(index)
        assert extent.n_last is extent.n_first is None


@pytest.mark.parametrize(
    ("read", "text", "tail", "head"),
    [
        (lambda ys: ys[-1], "[-1]", 1, None),
        (lambda ys: ys[:3], "[:3]", None, 3),
        (lambda ys: ys[::-1][:2], "[::-1][:2]", 2, None),
        (lambda ys: ys[::-1][-2], "[::-1][-2]", None, 2),
        (lambda ys: ys[[2, 4]], "[[2, 4]]", None, 5),
        (lambda ys: ys.sum(), "an operand of Sum", None, None),
        (lambda ys: ys[pt.lscalar("k")], "[k]", None, None),
        (lambda ys: Shape_i(1)(ys), "its shape", 1, 0),
        (lambda ys: ys[-2:, 0], "[-2:]", 2, None),
    ],
)
def test_readers_of_the_steps(read, text: str, tail: int | None, head: int | None) -> None:
    x, n = pt.dvector("x"), pt.lscalar("n")
    graph = graph_of(read(scan(lambda y: 2 * y, outputs_info=[x], n_steps=n)))
    view = only_scan(graph.fgraph)
    (slot,) = view.outputs()
    found = accesses(view, slot, lambda variable: graph.fgraph.clients[variable])
    assert (text, tail, head) in [(one.text, one.tail, one.head) for one in found]
    steps = next(node.outputs[0] for node, _ in graph.fgraph.clients[slot.output])
    for one in found:
        assert one.n_initial == 0
        assert one.is_reversed == (steps is not one.source)
        assert one.source in one.node.inputs


def test_index_of_rows_keeps_the_indices_of_other_axes() -> None:
    x = pt.dtensor3("x")
    index = read_index(x[1:, 0, :].owner, 0)
    assert index is not None
    assert index.strips(1)
    assert len(index.rest) == 1
    assert read_index(x[:, 0].owner, 1) is not None
    assert read_index(x[0, 0].owner, 1) is None


N, M = pt.lscalar("n"), pt.dmatrix("m")
ROWS = pt.ones((2, 3))


def rows_of_states(dtype: str = "float64") -> Any:
    """The trace of a state of three numbers: the initial row, and one a step."""
    h, index = pt.vector("h", dtype=dtype, shape=(3,)), pt.lscalar("index")
    state = h.type()
    body = Body(index=index, states=[state], next_states=[(state * 2).astype(dtype)])
    return TracedLoop.over(N, body, [h], {})[1]


def sources(made: Any) -> list[tuple[int, int]]:
    """Return the axis of the rows, and how many are initial ones, of what holds a loop's rows."""
    graph = graph_of(made)
    (view,) = (view_of(node) for node in graph.fgraph.toposort() if is_loop(node))
    (slot,) = view.outputs()
    clients = graph.fgraph.clients
    found = RowSource.of(view, slot).every(lambda variable: clients[variable])
    return [(source.axis, source.n_initial) for source in found]


@pytest.mark.parametrize(
    ("make", "further"),
    [
        (lambda trace: trace.T, (1, 1)),
        (lambda trace: trace[1:].T, (1, 0)),
        (lambda trace: pt.specify_shape(trace, (None, 3)), (0, 1)),
        (lambda trace: SAME_COUNT(trace, pt.eq(N, 2)), (0, 1)),
        (lambda trace: pt.join(0, ROWS, trace), (0, 3)),
        (lambda trace: pt.join(0, ROWS.astype("float32"), ROWS, trace), (0, 5)),
        (lambda trace: pt.join(1, ROWS.T, trace.T), (1, 3)),
    ],
)
def test_what_holds_the_rows_of_a_traced_loop(make: Any, further: tuple[int, int]) -> None:
    assert sources(make(rows_of_states()))[-1] == further


@pytest.mark.parametrize(
    "make",
    [
        lambda trace: trace.dimshuffle(0, "x", 1),
        lambda trace: pt.specify_shape(trace, (5, 3)),
        lambda trace: pt.specify_shape(trace, (None, N)),
        lambda trace: pt.join(0, M, trace),
        lambda trace: pt.join(0, trace, ROWS),
        lambda trace: pt.join(1, trace, trace),
        lambda trace: trace[2:],
        lambda trace: trace * 2,
    ],
)
def test_twins_what_holds_other_rows(make: Any) -> None:
    assert sources(make(rows_of_states())) == [(0, 1)]


def test_twin_rows_that_are_cast_where_they_are_joined() -> None:
    assert sources(pt.join(0, ROWS, rows_of_states("float32"))) == [(0, 1)]


@pytest.mark.parametrize("make", [lambda xs: xs.T, lambda xs: pt.join(0, ROWS, xs)])
def test_twins_of_a_scan(make: Any) -> None:
    """Its buffers have the batch axes in front, and all of their initial rows."""
    h = pt.dvector("h", shape=(3,))
    xs = scan(lambda h: h * 2, outputs_info=[h], n_steps=N)
    assert sources(make(xs)) == [(0, 1), (0, 0)]
