"""Bugs of PyTensor 3.3.7, each a strict xfail: derivatives of loops that are silently wrong.

`upstream_modes` says what this directory is.
"""

from __future__ import annotations

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import pushforward
from pytensor.scan.rewriting.trace import scan_reduce_trace_no_prealloc

from support.evaluating import PLAIN
from support.graph_building import scan
from support.upstream_modes import buffer_of, bug, trimmed, value

x = pt.dscalar("x")
w = pt.dscalar("w")
n = pt.lscalar("n")
s = pt.dvector("s")


@bug(
    "Scan.pullback reads every step from a buffer that scan_reduce_trace has trimmed",
    ours="autodiff/legality.py",
    raises=AssertionError,
)
def test_the_gradient_of_a_trimmed_loop() -> None:
    steps = scan(lambda y: y**2, outputs_info=[x], n_steps=3)
    (given,), last = trimmed([x], buffer_of(steps)[-1], scan_reduce_trace_no_prealloc)
    np.testing.assert_allclose(value(pt.grad(last, given), {given: 1.5}, PLAIN), 8 * 1.5**7)


@bug(
    "Scan.pullback gives the rows of an initial buffer that steps overwrite a derivative too",
    ours="passes/of_scans/initial_rows_alone.py",
    raises=AssertionError,
)
def test_the_gradient_by_a_filled_initial_buffer() -> None:
    steps = scan(lambda y: y * w, outputs_info=[x], n_steps=3)
    buffer = buffer_of(steps).owner
    filled = buffer.op(pt.constant(3), pt.alloc(x, 4), w)
    np.testing.assert_allclose(value(pt.grad(filled[-1], x), {x: 2.0, w: 3.0}, PLAIN), 27.0)


@bug(
    "Scan.pullback of a truncated gradient starts at the end that the truncation left zero",
    ours="autodiff/legality.py",
    raises=AssertionError,
)
def test_the_second_derivative_of_a_truncated_loop() -> None:
    last = scan(lambda q, y: y + q**2, sequences=[s], outputs_info=[x], truncate_gradient=2)[-1]
    second = pt.grad(pt.grad(last, s).sum(), s)
    found = value(second, {s: np.arange(1.0, 6.0), x: 0.0}, PLAIN)
    np.testing.assert_allclose(found, [0.0, 0.0, 0.0, 2.0, 2.0])


@bug(
    "Scan.connection_pattern takes the start of a state that no step computes from itself"
    " for unconnected with its buffer",
    ours="autodiff/legality.py",
    raises=AssertionError,
)
def test_the_second_derivative_by_a_start_that_one_step_reads() -> None:
    _, total = scan(
        lambda y, acc, f: (2 * f, acc + y**2),
        outputs_info=[x, pt.zeros((), dtype="float64")],
        non_sequences=[w],
        n_steps=n,
    )
    second = pt.grad(pt.grad(total[-1] + x**3, x), x)
    np.testing.assert_allclose(value(second, {x: 3.0, w: 1.0, n: 4}, PLAIN), 2 + 6 * 3.0)


@bug(
    "Scan.pushforward gives a tangent of zeros to what does not move; of a power by an "
    "exponent that is a non-sequence that makes NaN at a negative base",
    ours="autodiff/pushforward_rules.py",
    raises=AssertionError,
)
def test_the_pushforward_of_a_power_at_a_negative_base() -> None:
    last = scan(lambda y, e: y**e, outputs_info=[x], non_sequences=[w], n_steps=2)[-1]
    tangent = pushforward(last, x, pt.ones_like(x))
    np.testing.assert_allclose(value(tangent, {x: -2.0, w: 2.0}, PLAIN), -32.0)


@bug(
    "AdvancedIncSubtensor.pullback gives every write at a repeated index the whole "
    "gradient, also those that are overwritten",
    ours="left alone, no loop is concerned",
    raises=AssertionError,
)
def test_the_gradient_of_a_write_at_repeated_indices() -> None:
    zeros = pt.zeros(2, dtype="float64")
    written = pt.set_subtensor(zeros[np.array([0, 0])], s)
    found = value(pt.grad(written[0], s), {s: [1.0, 2.0]}, PLAIN)
    np.testing.assert_allclose(found, [0.0, 1.0])


@bug(
    "pushforward gives the tangents of only one term of a sum of two inputs, where an input is "
    "a term itself: its pullback is the cotangent, whose own cotangent hides that of the others",
    ours="loop/pushforward.py and autodiff/pushforward_rules.py",
    raises=AssertionError,
)
def test_the_pushforward_of_a_sum() -> None:
    a, b, da, db = pt.dscalars("a", "b", "da", "db")
    (moved,) = pushforward([a + pt.sin(b)], [a, b], [da, db])
    assert value(moved, {b: 0.0, da: 1.0, db: 1.0}, PLAIN) == 2


@bug(
    "pushforward gives no tangent to an output that another output is computed from",
    ours="loop/pushforward.py",
    raises=AssertionError,
)
def test_the_pushforward_of_a_value_and_of_its_double() -> None:
    a, da = pt.dscalars("a", "da")
    once = pt.sin(a)
    found = pushforward([once, once * 2], [a], [da])
    assert [value(v, {a: 0.0, da: 1.0}, PLAIN) for v in found] == [1, 2]
