"""What loops compute, in every mode, is what their steps compute one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor
import pytest
from pytensor.gradient import grad_clip, pushforward
from pytensor.graph.basic import Variable
from pytensor.tensor.type import dscalar

from scanopt_cli.loop import Body, Loop
from support import tiers
from support.programs import PROGRAMS, Program

STEPS = (0, 1, 4) if tiers.IS_DEEP else (0, 4)


def cost(program: Program, outputs: Sequence[Variable]) -> Variable:
    """Return a number that every output with derivatives decides, each in a way of its own."""
    n = len(program.states)
    smooth = [*outputs[: n - program.discrete], *outputs[n : 2 * n - program.discrete]]
    smooth += [v for v in outputs[2 * n : -1] if v.dtype == "float64"]
    total: Any = 0.0
    for weight, output in enumerate(smooth, start=1):
        total = total + (output**2 * weight).sum() + output.sum() / weight
    return total


def with_derivatives(program: Program, inputs: list[Any], outputs: list[Any]) -> list[Variable]:
    """Return the outputs, and first and second derivatives by all that has some."""
    wrt = [v for v in inputs if v.dtype == "float64"]
    first = pytensor.grad(cost(program, outputs), wrt, disconnected_inputs="ignore")
    total = sum((slope**2).sum() for slope in first)
    second = pytensor.grad(total, wrt, disconnected_inputs="ignore")
    return [*outputs, *first, *second]


def compiled(inputs: Any, outputs: Any, mode: str, arguments: Any) -> list[np.ndarray]:
    function = pytensor.function(inputs, outputs, mode=mode, on_unused_input="ignore")
    return [np.asarray(value) for value in function(*arguments)]


@pytest.mark.tiered(every=6)
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *((name, "FAST_COMPILE") for name in PROGRAMS),
        *tiers.deep(*((name, "NUMBA") for name in PROGRAMS)),
        *tiers.deep(*((name, "CVM") for name in PROGRAMS)),
    ],
)
def test_values_and_derivatives(name: str, mode: str) -> None:
    program = PROGRAMS[name]
    inputs, n = program.inputs(), pytensor.tensor.lscalar("n")
    looped = with_derivatives(program, inputs, program.looped(inputs, n))
    function = pytensor.function([*inputs, n], looped, mode=mode, on_unused_input="ignore")
    for n_steps in STEPS:
        if n_steps == 0:
            expected = program.arguments[: len(program.states)]
            found = function(*program.arguments, 0)[: len(expected)]
        else:
            twin = with_derivatives(program, inputs, program.unrolled(inputs, n_steps))
            expected = compiled(inputs, twin, "FAST_COMPILE", program.arguments)
            found = function(*program.arguments, n_steps)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-10)


@pytest.mark.tiered(every=6)
@pytest.mark.parametrize(
    "direct", [pytest.param(False, marks=pytest.mark.deep, id="by two pullbacks"), True]
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_pushforwards(name: str, direct: bool) -> None:
    program = PROGRAMS[name]
    inputs = program.inputs()
    wrt = [v for v in inputs if v.dtype == "float64"]
    tangents = [v.type() for v in wrt]
    moved = [np.random.default_rng(3).normal(size=v.shape) for v in program.arguments]
    of_wrt = [m for m, v in zip(moved, inputs, strict=True) if v.dtype == "float64"]
    arguments = [*program.arguments, *of_wrt]
    twin = program.unrolled(inputs, 4)
    first = pytensor.grad(cost(program, twin), wrt, disconnected_inputs="ignore")
    slope = sum((slope * tangent).sum() for slope, tangent in zip(first, tangents, strict=True))
    (expected,) = compiled([*inputs, *tangents], [slope], "FAST_COMPILE", arguments)
    looped = [v * 1 for v in program.looped(inputs, 4)[:-1]]
    pushed = pushforward(looped, wrt, tangents, "ignore", use_op_pushforward=direct)
    # A tangent of the cost, from those of the outputs.
    places = [v.type() for v in looped]
    slopes = pytensor.grad(cost(program, [*places, None]), places, disconnected_inputs="ignore")
    total = sum(
        (a * b).sum()
        for a, b, v in zip(slopes, pushed, looped, strict=True)
        if v.dtype == "float64"
    )
    values = compiled(inputs, looped, "FAST_COMPILE", program.arguments)
    for mode in ("FAST_COMPILE", "NUMBA") if tiers.IS_DEEP else ("FAST_COMPILE",):
        (found,) = compiled([*inputs, *tangents, *places], [total], mode, [*arguments, *values])
        np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_a_pullback_that_is_not_linear_has_no_pushforward() -> None:
    index, state, x = pytensor.tensor.lscalar("i"), pytensor.tensor.dscalar("s"), dscalar("x")
    body = Body(index=index, states=[state], next_states=[grad_clip(state * 2, -1, 1)])
    (last,) = Loop.over(3, body, [x], {})
    with pytest.raises(NotImplementedError, match="not linear"):
        pushforward([last], [x], [dscalar()], use_op_pushforward=True)
