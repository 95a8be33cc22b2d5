"""Bugs of PyTensor 3.3.7, each a strict xfail: what its push-outs of loops get wrong.

`upstream_modes` says what this directory is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.scan.rewriting.push_out import (
    scan_push_out_add,
    scan_push_out_non_seq,
    scan_push_out_seq,
)
from pytensor.scan.rewriting.trace import scan_reduce_trace_no_prealloc
from pytensor.scan.utils import until

from support.graph_building import scan
from support.upstream_modes import FAST, alone, buffer_of, bug, trimmed, value

x = pt.dscalar("x")
w = pt.dscalar("w")
n = pt.lscalar("n")
s = pt.dvector("s")
A = pt.dtensor3("A")
B = pt.dtensor3("B")
start = pt.dmatrix("start")

ADD = alone(scan_push_out_add)
NON_SEQ = alone(scan_push_out_non_seq)
SEQ = alone(scan_push_out_seq)
_ONES = np.ones((4, 2, 2))
MATRICES = {A: _ONES, B: _ONES, start: np.zeros((2, 2))}


def last_sum(step: Any) -> Any:
    """The last row of a state's buffer, which starts with ``start``."""
    return buffer_of(scan(step, sequences=[A, B], outputs_info=[start]))[-1]


@bug(
    "scan_push_out_add takes every sum for one of two terms and drops the third",
    ours="integration/compilation/sealing.py, passes/of_scans/compile_safe",
    raises=AssertionError,
)
@pytest.mark.parametrize("mode", [ADD, FAST], ids=["alone", "fast_run"])
def test_a_sum_of_three_keeps_its_third_term(mode: Any) -> None:
    out = last_sum(lambda a, b, acc: pt.add(acc, pt.dot(a, b), a))
    np.testing.assert_allclose(value(out, MATRICES, mode), np.full((2, 2), 4 * (2 + 1.0)))


@bug(
    "scan_push_out_add fails an assertion where the state is the last of three terms, and"
    " PyTensor raises it even where errors of rewrites are ignored",
    ours="integration/compilation/sealing.py, passes/of_scans/compile_safe",
    raises=AssertionError,
)
def test_a_sum_of_three_with_the_state_last_compiles() -> None:
    out = last_sum(lambda a, b, acc: pt.add(a, pt.dot(a, b), acc))
    np.testing.assert_allclose(value(out, MATRICES, FAST), np.full((2, 2), 4 * (2 + 1.0)))


@bug(
    "scan_push_out_add sums all steps in the dtype of the factors, which overflows",
    ours="integration/compilation/sealing.py, passes/of_scans/compile_safe",
    raises=AssertionError,
)
@pytest.mark.parametrize("mode", [ADD, FAST], ids=["alone", "fast_run"])
def test_products_of_small_integers_are_summed_in_the_dtype_of_the_state(mode: Any) -> None:
    a, b = pt.tensor3("a", dtype="int8"), pt.tensor3("b", dtype="int8")
    total = pt.lmatrix("total")
    sums = scan(lambda p, q, acc: acc + pt.dot(p, q), sequences=[a, b], outputs_info=[total])
    fives = np.full((4, 2, 2), 5, dtype="int8")
    out = value(buffer_of(sums)[-1], {a: fives, b: fives, total: np.zeros((2, 2), int)}, mode)
    np.testing.assert_array_equal(out, np.full((2, 2), 4 * 2 * 25))


@bug(
    "scan_push_out_add adds a map of matrices, of which the loop of no steps knows no "
    "shape (the virtual machine returns (0, 0, 0)), and reshapes it",
    ours="integration/compilation/sealing.py, passes/of_scans/compile_safe",
    raises=ValueError,
)
def test_a_sum_of_products_over_no_steps_is_its_start() -> None:
    sums = scan(
        lambda a, b, acc: acc + pt.dot(acc, pt.dot(a, b)),
        sequences=[A, B],
        outputs_info=[start],
        n_steps=n,
    )
    out = value(buffer_of(sums)[-1], MATRICES | {n: 0}, ADD)
    np.testing.assert_array_equal(out, np.zeros((2, 2)))


@bug(
    "scan_push_out_non_seq replaces the buffer of a state by its steps, so the rows that "
    "it starts with are missing",
    ours="integration/compilation/sealing.py, passes/of_scans/compile_safe",
    raises=AssertionError,
)
@pytest.mark.parametrize("mode", [NON_SEQ, FAST], ids=["alone", "fast_run"])
def test_a_state_that_is_always_set_to_the_same_has_all_steps(mode: Any) -> None:
    steps = scan(lambda y, f: f + 1, outputs_info=[x], non_sequences=[w], n_steps=5)
    np.testing.assert_array_equal(value(steps, {x: 0.0, w: 1.0}, mode), np.full(5, 2.0))


@bug(
    "scan_push_out_non_seq loses the start of a state that is always set to the same, and"
    " a gradient by it is 0",
    ours="integration/compilation/sealing.py, passes/of_scans/compile_safe",
    raises=AssertionError,
)
def test_the_gradient_by_a_start_that_only_the_first_step_reads() -> None:
    before = pt.zeros((), dtype="float64")
    _, steps = scan(
        lambda a, b, f: (2 * f, a), outputs_info=[x, before], non_sequences=[w], n_steps=n
    )
    assert value(pt.grad(steps[0], x), {x: 1.0, w: 1.0, n: 3}, FAST) == 1.0


@bug(
    "scan_push_out_non_seq fills all n_steps rows although the while loop stops before",
    ours="integration/compilation/sealing.py, passes/of_scans/compile_safe",
    raises=AssertionError,
)
@pytest.mark.parametrize("mode", [NON_SEQ, FAST], ids=["alone", "fast_run"])
def test_a_while_loop_that_stops_at_once_has_one_step(mode: Any) -> None:
    stop = pt.bscalar("stop")
    steps = scan(lambda f, c: (f * 2, until(c)), non_sequences=[w, stop], n_steps=5)
    np.testing.assert_array_equal(value(steps, {w: 1.0, stop: 1}, mode), [2.0])


@bug(
    "scan_push_out_non_seq computes once what no step computes, and that may raise",
    ours="integration/compilation/sealing.py, passes/of_scans/compile_safe",
    raises=IndexError,
)
@pytest.mark.parametrize("mode", [NON_SEQ, FAST], ids=["alone", "fast_run"])
def test_what_no_step_computes_does_not_raise(mode: Any) -> None:
    steps = scan(lambda y, q: y + q[5], outputs_info=[x], non_sequences=[s], n_steps=n)
    assert value(steps, {x: 0.0, s: [1.0], n: 0}, mode).shape == (0,)


@bug(
    "scan_push_out_seq skips as many rows as the longest reach of all states, not that of"
    " the state itself",
    ours="integration/compilation/sealing.py, passes/of_scans/compile_safe",
    raises=ValueError,
)
@pytest.mark.parametrize("mode", [SEQ, FAST], ids=["alone", "fast_run"])
def test_states_of_different_reach_are_set_behind_their_own_starts(mode: Any) -> None:
    near, far = (pt.tensor(name, shape=(rows,)) for name, rows in (("near", 2), ("far", 3)))
    twice, thrice = scan(
        lambda q, a2, a1, b3, b1: (q * 2, q * 3),
        sequences=[s],
        outputs_info=[{"initial": near, "taps": [-2, -1]}, {"initial": far, "taps": [-3, -1]}],
    )
    arguments = {s: [1.0, 2.0], near: [0.0, 0.0], far: [0.0, 0.0, 0.0]}
    both = pt.stack([twice, thrice])
    np.testing.assert_array_equal(value(both, arguments, mode), [[2.0, 4.0], [3.0, 6.0]])


@bug(
    "scan_push_out_seq returns as many rows as the sequence has, where the loop raises "
    "that it has too few",
    ours="integration/compilation/sealing.py, passes/of_scans/compile_safe",
)
@pytest.mark.parametrize("mode", [SEQ, FAST], ids=["alone", "fast_run"])
def test_a_sequence_that_is_too_short_raises(mode: Any) -> None:
    steps = scan(lambda q: q * 2, sequences=[s], n_steps=5)
    with pytest.raises(ValueError, match="required number of steps"):
        value(steps, {s: [1.0, 2.0]}, mode)


@bug(
    "scan_push_out_seq writes all steps into a buffer that was trimmed to fewer rows",
    ours="passes/of_scans/save_mem/trimmed_reads.py",
    raises=ValueError,
)
@pytest.mark.parametrize("mode", [SEQ, FAST], ids=["alone", "fast_run"])
def test_a_trimmed_state_that_follows_a_sequence_compiles(mode: Any) -> None:
    steps = scan(lambda q, y: q * 2, sequences=[s], outputs_info=[x])
    last = buffer_of(steps)[-1]
    (first, second), out = trimmed([s, x], last, scan_reduce_trace_no_prealloc)
    assert value(out, {first: [1.0, 2.0, 3.0], second: 0.0}, mode) == 6.0


@bug(
    "scan_push_out_non_seq gives a trimmed buffer as many rows as there are steps",
    ours="passes/of_scans/save_mem/trimmed_reads.py",
    raises=AssertionError,
)
def test_a_trimmed_map_that_never_changes_keeps_its_rows() -> None:
    steps = scan(lambda f: f + 1, non_sequences=[w], n_steps=n)
    (first, second), out = trimmed([w, n], steps[-2:], scan_reduce_trace_no_prealloc)
    rows = out.owner.inputs[0]
    np.testing.assert_array_equal(value(rows, {first: 1.0, second: 5}, NON_SEQ), [2.0, 2.0])
