"""Loops in JAX: needs the extra ``scanopt[jax]``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from test_values import with_derivatives

from scanopt_cli import loop
from support.programs import PROGRAMS

pytestmark = [
    pytest.mark.jax,
    pytest.mark.filterwarnings("ignore:.*requested in .* is not available"),
]


def in_jax(inputs: Any, outputs: Any, *arguments: Any) -> list[np.ndarray]:
    pytest.importorskip("jax")
    function = pytensor.function(inputs, outputs, mode="JAX", on_unused_input="ignore")
    return [np.asarray(value) for value in function(*arguments)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_derivatives(name: str) -> None:
    program = PROGRAMS[name]
    inputs = program.inputs()
    found = in_jax(
        inputs, with_derivatives(program, inputs, program.looped(inputs, 4)), *program.arguments
    )
    twin = with_derivatives(program, inputs, program.unrolled(inputs, 4))
    function = pytensor.function(inputs, twin, mode="FAST_COMPILE", on_unused_input="ignore")
    for one, other in zip(found, function(*program.arguments), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("n_steps", [0, 1, 7])
def test_a_count_that_is_known_when_it_runs(n_steps: int) -> None:
    n, x = pt.lscalar("n"), pt.dscalar("x")
    last, _ = loop.scan(lambda c, _: (c * 2, c), x, max_steps=n)
    assert in_jax([n, x], [last], n_steps, 1.5)[0] == 1.5 * 2**n_steps


def test_no_steps() -> None:
    x = pt.dvector("x")
    last, trace = loop.scan(lambda c, _: (c * 2, c), x, max_steps=0)
    found = in_jax([x], [last, trace], np.ones(3))
    assert found[0].tolist() == [1, 1, 1]
    assert found[1].shape == (0, 3)


@pytest.mark.parametrize(("start", "expected"), [(1.0, 16.0), (20.0, 20.0)])
def test_while_loops(start: float, expected: float) -> None:
    x = pt.dscalar("x")
    last = loop.while_loop(lambda c: c < 10, lambda c: c * 2, x)
    assert in_jax([x], [last], start)[0] == expected


def test_a_random_state() -> None:
    rng = pytensor.shared(np.random.default_rng(3))

    def step(rng: Any, mean: Any) -> Any:
        return pt.random.normal(mean, 1.0, rng=rng).owner.outputs

    _, draws = loop.scan(step, rng, np.zeros(1000))
    (found,) = in_jax([], [draws])
    assert abs(found.mean()) < 0.2
    assert abs(found.std() - 1) < 0.2


def test_traces_of_unknown_length_are_refused() -> None:
    n, x = pt.lscalar("n"), pt.dscalar("x")
    _, trace = loop.scan(lambda c, _: (c * 2, c), x, max_steps=n)
    with pytest.raises(NotImplementedError, match="number of steps must be a constant"):
        in_jax([n, x], [trace], 3, 1.0)
    last = loop.while_loop(lambda c: c < 10, lambda c: c * c, x, max_steps=9)
    with pytest.raises(NotImplementedError, match="a condition ends it"):
        in_jax([x], [pytensor.grad(last, x)], 1.0)


@pytest.mark.parametrize("length", [0, 4])
def test_a_series_that_may_be_empty(length: int) -> None:
    series, x, w = pt.dmatrix("series"), pt.dvector("x"), pt.dscalar("w")
    last, rows = loop.scan(lambda c, row, w: (c * w + row, row * c), x, series, w)
    outputs = [last, rows, pytensor.grad(last.sum() + rows.sum(), w)]
    arguments = (np.arange(3.0 * length).reshape(length, 3), np.ones(3), 0.5)
    found = in_jax([series, x, w], outputs, *arguments)
    function = pytensor.function([series, x, w], outputs, mode="FAST_COMPILE")
    for one, other in zip(found, function(*arguments), strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other)


def test_a_loop_without_traces_over_an_empty_series() -> None:
    series, x = pt.dvector("series"), pt.dscalar("x")
    last, _ = loop.scan(lambda c, row: (c + row, None), x, series)
    assert in_jax([series, x], [last], np.zeros(0), 1.5)[0] == 1.5
    until = loop.while_loop(lambda c, _: c < 9, lambda c, s: c + s[0], x, series, max_steps=0)
    assert in_jax([series, x], [until], np.zeros(0), 1.5)[0] == 1.5
