"""Bugs of PyTensor 3.3.7, each a strict xfail: loops that it makes shorter, and their buffers.

`upstream_modes` says what this directory is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import get_mode
from pytensor.scan.rewriting.trace import (
    scan_reduce_nsteps,
    scan_reduce_trace_no_prealloc,
    scan_reduce_trace_prealloc,
)
from pytensor.scan.utils import until

from support.graph_building import scan
from support.tiers import deep
from support.upstream_modes import FAST, alone, buffer_of, bug, trimmed, value

x = pt.dscalar("x")
n = pt.lscalar("n")
k = pt.lscalar("k")
s = pt.dvector("s")

STEPS = alone(scan_reduce_nsteps)
TRACE = alone(scan_reduce_trace_prealloc)
_NUMBA = deep(get_mode("NUMBA"))
_RISING = np.arange(1.0, 7.0)


def doubled(steps: Any = None) -> Any:
    """A map of the states of a loop; the states are the sums so far, so row ``i`` is 2 * i."""
    _, maps = scan(
        lambda q, y: (y + q, 2 * y),
        sequences=[pt.ones_like(s)],
        outputs_info=[pt.zeros((), dtype="float64"), None],
        n_steps=steps,
    )
    return maps


@bug(
    "scan_reduce_nsteps runs fewer steps of a gradient than the row needs, and reads "
    "another row, since a mit_mot has rows besides its steps: the gradient is 0",
    ours="integration/compilation/sealing.py, passes/of_scans/compile_safe",
    raises=AssertionError,
)
@pytest.mark.parametrize("mode", [FAST, *_NUMBA], ids=["vm", "numba"])
def test_the_gradient_by_the_second_of_two_starts(mode: Any) -> None:
    p, q = pt.dscalars("p", "q")
    taps = {"initial": pt.stack([p, q]), "taps": [-2, -1]}
    last = scan(lambda y2, y1: y1 * y2, outputs_info=[taps], n_steps=n)[-1]
    found = value(pt.grad(last, q), {p: 2.0, q: 3.0, n: 4}, mode)
    np.testing.assert_allclose(found, 5 * 2.0**3 * 3.0**4)  # the last state is p**3 * q**5


@bug(
    "scan_reduce_nsteps keeps a start of a slice that is not a constant, and a negative "
    "one then counts from another end",
    ours="integration/compilation/sealing.py, passes/of_scans/compile_safe",
    raises=AssertionError,
)
@pytest.mark.parametrize("mode", [STEPS, FAST], ids=["alone", "fast_run"])
def test_a_slice_from_a_negative_start_without_the_last(mode: Any) -> None:
    out = value(doubled()[k:-1], {s: _RISING, k: -3}, mode)
    np.testing.assert_array_equal(out, [6.0, 8.0])


@bug(
    "scan_reduce_nsteps counts a row that does not exist from the end, and finds another one",
    ours="integration/compilation/sealing.py, passes/of_scans/compile_safe",
)
@pytest.mark.parametrize("mode", [STEPS, FAST], ids=["alone", "fast_run"])
@pytest.mark.parametrize("row", [7, k], ids=["7", "k"])
def test_a_row_behind_the_last_raises(row: Any, mode: Any) -> None:
    with pytest.raises(IndexError):
        value(doubled()[row], {s: _RISING[:5], k: 7}, mode)


@bug(
    "scan_reduce_nsteps asks for a negative number of steps where a slice leaves out more"
    " rows than there are",
    ours="integration/compilation/sealing.py, passes/of_scans/compile_safe",
    raises=IndexError,
)
@pytest.mark.parametrize("mode", [STEPS, FAST], ids=["alone", "fast_run"])
def test_a_slice_that_leaves_out_more_than_there_is_is_empty(mode: Any) -> None:
    assert value(doubled()[:-3], {s: _RISING[:2]}, mode).shape == (0,)


@bug(
    "scan_reduce_trace keeps the stop of a slice that it trims for, which then counts "
    "from another start",
    ours="integration/compilation/sealing.py, passes/of_scans/compile_safe",
    raises=AssertionError,
)
@pytest.mark.parametrize("mode", [TRACE, FAST], ids=["alone", "fast_run"])
def test_a_slice_from_the_third_last_to_a_row_by_its_number(mode: Any) -> None:
    out = value(doubled()[-3:k], {s: _RISING, k: 5}, mode)
    np.testing.assert_array_equal(out, [6.0, 8.0])


@bug(
    "scan_reduce_trace makes a buffer of three rows for a map of two steps, and returns "
    "one that nothing was written to",
    ours="integration/compilation/sealing.py, passes/of_scans/compile_safe",
    raises=AssertionError,
)
@pytest.mark.parametrize("mode", [TRACE, FAST, *_NUMBA], ids=["alone", "vm", "numba"])
def test_the_last_three_of_two_rows_are_two(mode: Any) -> None:
    out = value(doubled()[-3:], {s: _RISING[:2]}, mode)
    np.testing.assert_array_equal(out, [0.0, 2.0])


@bug(
    "scan_reduce_trace makes a buffer of three rows for a map of two steps, and the third"
    " last one can be read",
    ours="integration/compilation/sealing.py, passes/of_scans/compile_safe",
)
def test_the_third_last_of_two_rows_raises() -> None:
    with pytest.raises(IndexError):
        value(doubled()[-3], {s: _RISING[:2]}, TRACE)


@bug(
    "local_subtensor_merge_integer reads the last row of the whole buffer, which is the "
    "start if there was no step",
    ours="left alone, only an error is lost",
)
def test_a_loop_of_no_steps_has_no_last_one() -> None:
    last = scan(lambda y: y + 1, outputs_info=[x], n_steps=n)[-1]
    with pytest.raises(IndexError):
        value(last, {x: 0.5, n: 0}, FAST)


def powers_of_two() -> Any:
    """The states 2, 4, 8, 16, 32 of a while loop that may take up to twenty steps."""
    return scan(lambda y: (y * 2, until(y > 10)), outputs_info=[x], n_steps=20)


@bug(
    "scan_reduce_trace counts rows of a while loop from the last step that it may take",
    ours="integration/compilation/sealing.py, passes/of_scans/compile_safe",
    raises=(AssertionError, IndexError),
)
@pytest.mark.parametrize(
    "read",
    [lambda ys: ys[1], lambda ys: ys[2:4], lambda ys: ys[3:]],
    ids=["row", "between", "from"],
)
def test_a_while_loop_that_stops_early_is_read_from_its_start(read: Any) -> None:
    wanted = read(np.array([2.0, 4.0, 8.0, 16.0, 32.0]))
    np.testing.assert_array_equal(value(read(powers_of_two()), {x: 1.0}, FAST), wanted)


@bug(
    "Scan.perform cuts a buffer that scan_reduce_trace has made short by the steps that a"
    " while loop did not take",
    ours="integration/compilation/sealing.py, passes/of_scans/save_mem/save_mem.py",
    raises=AssertionError,
)
@pytest.mark.parametrize("mode", [TRACE, FAST], ids=["alone", "fast_run"])
def test_the_last_two_of_one_step_of_a_while_loop(mode: Any) -> None:
    steps = scan(lambda q, y: (y * 2, until(q > 0)), sequences=[s], outputs_info=[x])
    out = value(steps[-2:], {s: np.ones(4), x: 1.0}, mode)
    np.testing.assert_array_equal(out, [2.0])


@bug(
    "scan_reduce_nsteps takes a row of a trimmed buffer for the step of that number",
    ours="passes/of_scans/save_mem/trimmed_reads.py",
    raises=AssertionError,
)
def test_a_row_of_a_trimmed_buffer_is_not_a_step() -> None:
    steps = scan(lambda y: y * 2, outputs_info=[x], n_steps=5)
    (first,), rows = trimmed([x], buffer_of(steps)[-2:], scan_reduce_trace_no_prealloc)
    second = rows.owner.inputs[0][1]
    assert value(second, {first: 1.0}, FAST) == 32.0


@bug(
    "fusion makes a Composite of the minimum(1, n) that scan_reduce_trace sizes a buffer "
    "by; in Python that compares an int8 with a Python integer, which may be more than "
    "127",
    ours="verification/modes.py (no fusion in Python)",
    raises=OverflowError,
)
def test_two_hundred_steps() -> None:
    last = scan(lambda q, y: y + q, sequences=[s], outputs_info=[x], n_steps=n)[-1]
    assert value(last, {s: np.ones(200), x: 0.0, n: 200}, FAST) == 200.0


@bug(
    "Scan.perform writes a state's buffer of one row, as scan_reduce_trace_no_prealloc "
    "makes them, before it has copied two maps that return the state",
    ours="passes/of_scans/save_mem keeps a row more, unless told that nothing is written in place",
    raises=AssertionError,
)
def test_two_maps_of_a_state_that_keeps_one_row() -> None:
    _, first, second = scan(lambda y: (y + 1, y, y), outputs_info=[x, None, None], n_steps=n)
    both = pt.stack([first, second])
    found = value(both, {x: 1.0, n: 3}, alone(scan_reduce_trace_no_prealloc))
    np.testing.assert_array_equal(found, [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
