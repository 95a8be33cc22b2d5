"""A loop overwrites what it owns, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.io import In

from scanopt_cli.loop import Body, Loop
from support.programs import PROGRAMS
from support.tiers import deep

NAMES = ("written", "swapped", "matrices")
MODES = ("FAST_COMPILE", *deep("CVM", "NUMBA"))


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *((name, "FAST_COMPILE") for name in NAMES),
        *deep(*((name, mode) for name in NAMES for mode in ("CVM", "NUMBA"))),
    ],
)
def test_arguments_stay_as_they_are(name: str, mode: str) -> None:
    """Also when they are called again, and whatever is done to earlier results."""
    program = PROGRAMS[name]
    inputs = program.inputs()
    function = pytensor.function(
        [In(v, borrow=True) for v in inputs],
        program.looped(inputs, 4)[:-1],
        mode=mode,
        on_unused_input="ignore",
    )
    arguments = program.arguments
    before = [v.copy() for v in arguments]
    expected = [np.array(v) for v in function(*arguments)]
    for _ in range(2):
        results = function(*arguments)
        for result, value in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, value)
        for result in results:
            result[...] = np.nan  # poison
        for one, other in zip(arguments, before, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("mode", MODES)
def test_one_array_in_two_roles(mode: str) -> None:
    """One variable is the initial value of two states, and a constant of the loop."""
    index, a, b, c = pt.lscalar("i"), pt.dvector("a"), pt.dvector("b"), pt.dvector("c")
    body = Body(
        index=index,
        states=[a, b],
        constants=[c],
        next_states=[pt.set_subtensor(a[index], 7.0) + b * 0, b + c],
    )
    x = pt.dvector("x")
    start = x * 1
    outputs = Loop.over(3, body, [start, start], {c: start})
    function = pytensor.function([x], [*outputs, start], mode=mode)
    one, two, unmoved = function(np.arange(4.0))
    np.testing.assert_array_equal(one, [7, 7, 7, 3])
    np.testing.assert_array_equal(two, [0, 4, 8, 12])
    np.testing.assert_array_equal(unmoved, np.arange(4.0))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n_steps", [0, 1, 2, 5])
def test_states_that_take_each_others_memory(n_steps: int, mode: str) -> None:
    index, a, b, c = pt.lscalar("i"), pt.dvector("a"), pt.dvector("b"), pt.dvector("c")
    body = Body(index=index, states=[a, b, c], next_states=[b, b, a[::-1] + c * 0])
    x = pt.dmatrix("x")
    outputs = Loop.over(n_steps, body, [x[0], x[1], x[2]], {})
    function = pytensor.function([x], outputs, mode=mode)
    values: Any = np.arange(9.0).reshape(3, 3)
    expected = list(values)
    for _ in range(n_steps):
        expected = [expected[1], expected[1], expected[0][::-1]]
    for result, value in zip(function(values), expected, strict=True):
        np.testing.assert_array_equal(result, value)
    np.testing.assert_array_equal(values, np.arange(9.0).reshape(3, 3))


def test_a_new_buffer_is_not_copied() -> None:
    program = PROGRAMS["map"]
    inputs, n = program.inputs(), pt.lscalar("n")
    trace = program.looped(inputs, n)[1]
    function = pytensor.function([*inputs, n], trace, mode="NUMBA", on_unused_input="ignore")
    (node,) = [v for v in function.maker.fgraph.apply_nodes if isinstance(v.op, Loop)]
    assert node.op.destroyed == (1,)
