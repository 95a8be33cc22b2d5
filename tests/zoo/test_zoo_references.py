"""What each model computes in PyTensor as it stands is what its reference says, derivatives too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from support.evaluating import evaluate, evaluator
from support.zoo.model import Model, as_arrays, outputs_of
from support.zoo.models import MODELS

_models = pytest.mark.parametrize("model", MODELS, ids=str)
_once = pytest.mark.parametrize("model", [m for m in MODELS if m.order >= 1], ids=str)
_twice = pytest.mark.parametrize("model", [m for m in MODELS if m.order >= 2], ids=str)


def test_names_differ() -> None:
    assert len({model.name for model in MODELS}) == len(MODELS)


@_models
def test_value(model: Model) -> None:
    expected = model.reference(*model.fresh_arguments())
    expected = expected if isinstance(expected, list) else [expected]
    got = evaluate(*outputs_of(model), model.fresh_arguments())
    _assert_close(got, expected, rtol=model.rtol)


@pytest.mark.tiered(every=3)
@_once
def test_gradient(model: Model) -> None:
    _assert_derivatives(model, _value_and_gradient(model)(model.arguments)[1:], model.reference)


@pytest.mark.deep
@_twice
def test_second_derivative(model: Model) -> None:
    gradient = _value_and_gradient(model)

    def total(*arguments: Any) -> float:
        return sum(np.sum(entry) for entry in gradient(arguments)[1:])

    _assert_derivatives(model, evaluate(*outputs_of(model, 2), model.arguments), total)


@cache
def _value_and_gradient(model: Model) -> Callable[[Sequence[Any]], list[Any]]:
    return evaluator(*outputs_of(model, 1))


def _assert_derivatives(model: Model, got: Sequence[Any], of: Callable[..., Any]) -> None:
    """Compare derivatives with what ``of`` gives at both sides of each entry."""
    expected = [_differences(of, model.arguments, position) for position in model.positions()]
    _assert_close(got, expected, rtol=1e-5, atol=1e-7)


def _differences(of: Callable[..., Any], arguments: Sequence[Any], position: int) -> np.ndarray:
    result = np.empty_like(arguments[position])
    for index in np.ndindex(result.shape):
        width = 6e-6 * max(1.0, abs(arguments[position][index]))
        sides = []
        for side in (width, -width):
            moved = [np.array(argument) for argument in arguments]
            moved[position][index] += side
            sides.append(of(*moved))
        result[index] = (sides[0] - sides[1]) / (2 * width)
    return result


def _assert_close(
    got: Sequence[Any], expected: Sequence[Any], *, rtol: float, atol: float = 1e-12
) -> None:
    for error in got:
        if isinstance(error, Exception):
            raise error
    for actual, wanted in zip(as_arrays(got), as_arrays(expected), strict=True):
        assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(actual, wanted, rtol=rtol, atol=atol)
