"""States that are overwritten by their next values, or exchange their memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

from scanopt_cli.loop import Body, TracedLoop
from support.compiled_ways import NUMBA
from support.tiers import deep

INDEX = pt.lscalar("index")
V, W = pt.dvectors("v", "w")
M = pt.dmatrix("m")


STEPS: dict[str, Callable[[Any, Any], list[Any]]] = {
    "both": lambda a, b: [a * 0.5 + b, b * 2 - a],
    "in turn": lambda a, b: [a * 0.5, b + a],
    "reversed": lambda a, b: [a * b[::-1], b * 0.5],
    "picked": lambda a, b: [a * a[np.array([2, 0, 1])], b + b[np.array([1, 2, 0])] * 0.1],
    "shifted": lambda a, b: [b * 0.5, a],
    "a sum": lambda a, b: [a - a.sum(), b * a[0]],
    "functions": lambda a, b: [pt.exp(-(a**2)), pt.tanh(b) + pt.exp(-a)],
}


@pytest.mark.parametrize("name", deep(*STEPS))
def test_values(name: str) -> None:
    """The initial values are as before, and a second call returns the same."""
    a, b = pt.dvectors("a", "b")
    body = Body(index=INDEX, states=[a, b], next_states=STEPS[name](a, b))
    last_a, last_b, trace, *_ = TracedLoop.over(5, body, [V, W], {})
    outputs = [last_a, last_b, trace]
    given = [np.array([0.1, 0.2, 0.4]), np.array([1.0, -0.5, 0.3])]
    before = [value.copy() for value in given]
    expected = pytensor.function([V, W], outputs, mode=Mode("vm", None))(*given)
    compiled = pytensor.function([V, W], outputs, mode=NUMBA)
    for _ in range(2):
        for new, old in zip(compiled(*given), expected, strict=True):
            np.testing.assert_allclose(new, old, rtol=1e-12)
    for value, old in zip(given, before, strict=True):
        np.testing.assert_array_equal(value, old)


@pytest.mark.deep
def test_the_rows_of_a_trace_are_of_before_the_step() -> None:
    """The loop writes them after the step, where the step does not read the trace."""
    x, kept = pt.dvector("x"), pt.dmatrix("kept")
    body = Body(
        index=INDEX,
        states=[V, kept],
        next_states=[V + 0.1 * (M @ V), pt.set_subtensor(kept[3 - INDEX], V)],
        constants=[M],
    )
    results = TracedLoop.over(4, body, [x, pt.zeros((4, 2))], {M: M})[:2]
    matrix, value = np.array([[0.3, -1.0], [2.0, 0.5]]), np.array([0.1, 0.4])
    function = pytensor.function([x, M], results, mode=NUMBA)
    found = function(value, matrix)
    rows = []
    for _ in range(4):
        rows.append(value)
        value = value + 0.1 * matrix @ value
    for got, expected in zip(found, (value, rows[::-1]), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)
