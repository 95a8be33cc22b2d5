"""clean-slices on random chains of slices, buffers and loops: the same values as before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from hypothesis import given, note
from hypothesis import strategies as st

from scanopt_cli.ir.graph import from_io
from scanopt_cli.passes.clean_slices.clean_slices import CleanSlices
from scanopt_cli.pipeline.runner import run_pipeline
from scanopt_cli.reports.remark_text import text_of
from support.evaluating import assert_same_outcomes, evaluate, evaluator
from support.generated.strategies import GeneratedScan, scan_graphs
from support.graph_building import power
from support.slicing import N, five, text

X = five()

bounds = st.none() | st.integers(-7, 7)
slices = st.builds(slice, bounds, bounds, st.sampled_from([None, 1, -1, 2, -2]))
indices = slices | slices | st.integers(-6, 6)


@given(
    parts=st.lists(slices, min_size=1, max_size=4),
    last=indices,
    rows=st.integers(0, 6),
    is_known=st.booleans(),
)
def test_chains_of_slices(parts: list[slice], last: Any, rows: int, is_known: bool) -> None:
    """Against NumPy."""
    x = pt.vector("x", shape=(rows if is_known else None,), dtype="float64")
    read, data = x, np.arange(1.0, 1.0 + rows)
    expected: Any = data
    try:
        for part in (*parts, last):
            read = read[part]
            expected = expected[part]
    except IndexError as error:
        expected = error
    after = from_io([x], [read]).copy()
    run_pipeline(after.fgraph, [CleanSlices()])
    note(text(after))
    got = evaluate(after.inputs, after.outputs, [data])
    assert_same_outcomes([expected], got)
    (again,) = run_pipeline(after.fgraph, [CleanSlices()])
    assert not again.changed


places = st.integers(-3, 3) | st.integers(-2, 1).map(lambda more: N + more)
loop_slices = st.builds(slice, st.none() | places, st.none() | places, st.sampled_from([None, -1]))


@given(parts=st.lists(loop_slices, min_size=1, max_size=3), last=loop_slices | places)
def test_chains_of_slices_of_a_loop(parts: list[slice], last: Any) -> None:
    """For any number of steps, errors included."""
    x, ys = power(N)
    read = ys.owner.inputs[0]
    for part in (*parts, last):
        read = read[part]
    before = from_io([x, N], [read])
    after = before.copy()
    run_pipeline(after.fgraph, [CleanSlices()])
    note(text(after))
    old, new = evaluator(before.inputs, before.outputs), evaluator(after.inputs, after.outputs)
    for steps in range(5):
        given_values = [np.asarray(1.1), np.asarray(steps)]
        assert_same_outcomes(old(given_values), new(given_values))


@st.composite
def buffers(draw: Any, depth: int = 3) -> Any:
    """Zeros, ones or ``x``, with rows of one another written into them and read from them."""
    kind = draw(st.sampled_from(["zeros", "zeros", "x", "ones"]))
    rows = draw(st.integers(1, 5))
    made: Any = {"zeros": pt.zeros((rows,)), "ones": pt.ones((rows,))}.get(kind, X[:rows])
    for _ in range(draw(st.integers(0, depth))):
        index = draw(slices | st.integers(-5, 5))
        if draw(st.booleans()) and isinstance(index, slice):
            made = made[index]
            continue
        value = X[2] if draw(st.booleans()) or not depth else draw(buffers(depth=depth - 1))
        if isinstance(index, int) and value.type.ndim:
            value = value.sum()
        place = made[index]
        made = place.set(value) if draw(st.booleans()) else place.inc(value)
    return made


@given(buffer=buffers())
def test_buffers_that_are_written_and_read(buffer: Any) -> None:
    """An error in what is not read any more may go."""
    before = from_io([X], [buffer, buffer.sum()])
    expected = evaluate(before.inputs, before.outputs, [np.arange(1.0, 6.0)])
    work = before.copy()
    run_pipeline(work.fgraph, [CleanSlices()])
    note(text(work))
    got = evaluate(work.inputs, work.outputs, [np.arange(1.0, 6.0)])
    assert_same_outcomes(_refined(expected, got), got)


def _refined(expected: list[Any], got: list[Any]) -> list[Any]:
    """What is expected, but for errors that are none any more."""
    pairs = zip(expected, got, strict=True)
    return [new if isinstance(old, Exception) else old for old, new in pairs]


@given(generated=scan_graphs())
def test_generated_loops(generated: GeneratedScan) -> None:
    graph = from_io(generated.inputs, generated.outputs)
    work = graph.copy()
    (run,) = run_pipeline(work.fgraph, [CleanSlices()])
    note("; ".join(text_of(remark) for remark in run.remarks))
    old, new = evaluator(graph.inputs, graph.outputs), evaluator(work.inputs, work.outputs)
    for values in generated.arguments:
        got = new(values)
        assert_same_outcomes(_refined(old(values), got), got)
    (again,) = run_pipeline(work.fgraph, [CleanSlices()])
    assert not again.changed
