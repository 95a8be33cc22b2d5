"""Programs that a pass once gave other values, or an error: each stays what it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Variable

import scanopt_cli as so
from scanopt_cli.loop import Body, TracedLoop
from support.evaluating import PLAIN
from support.graph_building import scan

type Program = tuple[Sequence[Variable], Any, Sequence[Any]]
"""Inputs, an output and arguments."""

H, X, Y = pt.dvectors("h", "x", "y")
N = pt.lscalar("n")
M = pt.dmatrix("m")
START = np.array([1.0, 2.0, 4.0])


def a_slice_of_rows_and_columns() -> Program:
    """A later loop reads ``states[:-1, ::-1]`` as a sequence: `trim-steps` left out the second."""
    states = scan(lambda h: h * 1.5 + 1, outputs_info=H, n_steps=X.shape[0] + 1)
    sums = scan(
        lambda row, s: s + row,
        sequences=[states[:-1, ::-1]],
        outputs_info=pt.zeros_like(H),
        n_steps=X.shape[0],
    )
    return [H, X], sums, [START, np.zeros(4)]


def a_slice_of_no_rows() -> Program:
    """``states[-3:-5]`` has no rows; `trim-steps` shifted its bounds to ``[2:]``."""
    states = scan(lambda h: h * 1.1 + 1, outputs_info=H, n_steps=N)
    return [H, N], pt.concatenate([states[-3:-5], states[:-5]]), [START, 12]


def initial_rows_that_are_written() -> Program:
    """`normalize-reads` took the write into ``v`` for a slice of it."""
    v = pt.tensor("v", shape=(2,), dtype="float64")
    initial = {"initial": pt.inc_subtensor(v[:], Y), "taps": [-2, -1]}
    states = scan(lambda p, q: p * pt.sin(q), outputs_info=[initial], n_steps=N)
    return [v, Y, N], pt.concatenate([v, states]), [[1.0, 2.0], [10.0, 10.0], 3]


def an_entry_of_a_repeated_one() -> Program:
    """`clean-slices` read the second entry of what has one, and is repeated."""
    a, b = pt.lscalars("a", "b")
    return [a, b], pt.alloc(pt.stack([a, b])[:1], 3)[1] + 0, [5, 7]


def columns_before_a_trace() -> Program:
    """Before a trace that starts as ``x[2]``, ``x[:2]`` has two rows, ``x[:, :2]`` perhaps one."""
    trace = scan(lambda h: h * 2, outputs_info=M[2], n_steps=2)
    joined = pt.join(1, M[:, :2], pt.concatenate([M[2][None], trace]))
    return [M], pt.ones((3, M.shape[1] + 2))[:, : joined.shape[1]], [np.ones((3, 1))]


def products_that_wrap_around() -> Program:
    """`push-out-sums` cast the factors of an integer product before they were multiplied."""
    columns, rows, total, w = pt.bmatrix("columns"), pt.bmatrix("rows"), M, pt.dscalar("w")
    index, c, r, s, v = pt.lscalar(), columns.type(), rows.type(), total.type(), w.type()
    new = s + v * (c[index][:, None] * r[index][None, :])
    body = Body(index=index, states=[s], constants=[c, r, v], next_states=[new])
    last = TracedLoop.over(N, body, [total], {c: columns, r: rows, v: w})[0]
    data = np.full((2, 3), 100, "int8"), np.full((2, 2), 3, "int8"), np.zeros((3, 2)), 0.5, 2
    return [columns, rows, total, w, N], last, data


def an_invariant_that_may_fail_without_steps() -> Program:
    """To a loop of no steps, `push-out` gave an array of no entries for what it computed."""
    _, rows = scan(
        lambda s, w: (s * 2, pt.cumsum(w) + s),
        outputs_info=[X, None],
        non_sequences=[Y],
        n_steps=N,
    )
    return [X, Y, N], rows.sum(), [np.ones(3), np.ones(3), 0]


def a_masked_term_that_is_the_largest() -> Program:
    """`stable-log-sums` subtracted the maximum of all terms, also of those whose weight is 0."""
    rows = scan(lambda x, w: pt.log((w * pt.exp(x)).sum()), sequences=[M], non_sequences=[Y])
    return [M, Y], rows, [[[500.0, -300.0], [-600.0, 3.0]], [0.0, 1.0]]


def rows_whose_number_is_stated() -> Program:
    """`trim-steps` left a TracedLoop three steps, but behind it the statement that it has four."""
    states = scan(lambda h: h * 1.5 + 1, outputs_info=H, n_steps=4)
    return [H], pt.specify_shape(states, (states.shape[0], None))[:3], [START]


PROGRAMS: dict[Callable[[], Program], Sequence[str]] = {
    a_slice_of_rows_and_columns: ["clean-slices,trim-steps", "scan-to-loop,trim-steps"],
    a_slice_of_no_rows: ["default", "trim-steps", "scan-to-loop,trim-steps"],
    initial_rows_that_are_written: ["clean-slices,normalize-reads"],
    an_entry_of_a_repeated_one: ["clean-slices", "grad", "loop"],
    columns_before_a_trace: ["scan-to-loop,normalize-reads,clean-slices"],
    products_that_wrap_around: ["push-out-sums"],
    an_invariant_that_may_fail_without_steps: ["loop", "scan-to-loop,push-out"],
    a_masked_term_that_is_the_largest: ["stable-log-sums"],
    rows_whose_number_is_stated: ["loop", "scan-to-loop,clean-slices,trim-steps"],
}


@pytest.mark.parametrize(
    ("program", "pipeline"),
    [
        pytest.param(program, pipeline, id=f"{program.__name__}-{pipeline}")
        for program, pipelines in PROGRAMS.items()
        for pipeline in pipelines
    ],
)
def test_values_stay(program: Callable[[], Program], pipeline: str) -> None:
    inputs, output, values = program()
    work = so.optimize((inputs, [output]), pipeline).graph
    functions = [
        pytensor.function(list(i), list(o), mode=PLAIN, on_unused_input="ignore")
        for i, o in ((inputs, [output]), (work.inputs, work.outputs))
    ]
    (wanted,), (found,) = (function(*values) for function in functions)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("pipeline", ["push-out-sums", "stable-log-sums"])
def test_products_of_products_take_no_time(pipeline: str) -> None:
    def step(x: Any, total: Any) -> list[Any]:
        matrix, terms = x[:, None] * x[None, :], pt.exp(x)
        for _ in range(40):
            matrix, terms = matrix * (-matrix), terms * total.sum()
        return [total + matrix, pt.log(terms.sum())]

    found = scan(step, sequences=[M], outputs_info=[pt.zeros((2, 2)), None])
    so.optimize(([M], list(found)), pipeline)


def test_blocks_of_a_hessian_that_depends_on_nothing() -> None:
    v = pt.tensor("v", shape=(2,), dtype="float64")
    for strategy in ("reverse", "forward-over-reverse"):
        found = so.grad(([v], [abs(v).sum()]), order=2, wrt=[v], full=True, strategy=strategy)
        (value,) = pytensor.function(
            list(found.graph.inputs),
            list(found.graph.outputs),
            mode=PLAIN,
            on_unused_input="ignore",
        )([1.0, -2.0])
        np.testing.assert_array_equal(value, np.zeros((2, 2)))


def test_a_matrix_of_one_entry_that_is_0_has_no_inverse() -> None:
    one = pt.tensor("one", shape=(1, 1), dtype="float64")
    index, state = pt.lscalar(), one.type()
    body = Body(index=index, states=[state], next_states=[pt.linalg.inv(state)])
    last = TracedLoop.over(N, body, [one], {})[0]
    work = so.optimize(([one, N], [last]), "unroll-small{always=true}").graph
    function = pytensor.function(list(work.inputs), list(work.outputs), mode=PLAIN)
    with pytest.raises(np.linalg.LinAlgError):
        function([[0.0]], 1)


def test_a_loop_of_no_steps_is_not_split() -> None:
    index, state = pt.lscalar(), pt.dscalar()
    body = Body(index=index, states=[state], next_states=[state * 2])
    x = pt.dscalar("x")
    last = TracedLoop.over(pt.constant(0), body, [x], {})[0]
    result = so.optimize(([x], [last]), "checkpoint")
    assert not result.changed
    assert not [remark for run in result.passes for remark in run.remarks]
