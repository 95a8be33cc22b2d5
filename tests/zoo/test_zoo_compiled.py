"""Every model of the zoo computes the same, compiled, whichever way it went through scanopt.

The reference is the raw graph, evaluated as it stands: `test_zoo_references` compares that with
NumPy. One way is in the quick tier; the others, and some models by Numba, in the deep one.
All models and orders by Numba take hours: ``pytest -m "numba_zoo or deep" tests/zoo``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from pytensor import function
from pytensor.compile.mode import Mode

from support.compiled_ways import EVERY_WAY, NUMBA, VM, WAYS, Function
from support.evaluating import PLAIN
from support.zoo.model import Model, as_arrays, outputs_of
from support.zoo.models import MODELS

CASES = [
    pytest.param(model, order, id=f"{model}-{order}")
    for model in MODELS
    for order in range(model.order + 1)
]
QUICK = ("optimize -p grad", "enabled('grad')")
# One model of each kind of loop.
CHOSEN = (
    "Kalman",
    "HMM, log space",
    "AR(2)",
    "RNN",
    "Metropolis",
    "Newton, until it stands",
    "rows of elements",
    "invariant state, read whole",
)


@cache
def wanted(model: Model, order: int) -> list[np.ndarray]:
    """What the raw graph computes as it stands."""
    inputs, outputs = outputs_of(model, order)
    plain = function(inputs, outputs, mode=PLAIN, on_unused_input="ignore")
    return as_arrays(plain(*model.fresh_arguments()))


def check(model: Model, order: int, way: str, mode: Mode, atol: float = 1e-9) -> None:
    compiled = EVERY_WAY[way](*outputs_of(model, order), mode)
    assert_as_wanted(compiled, model, order, atol)


def assert_as_wanted(compiled: Function, model: Model, order: int, atol: float = 1e-9) -> None:
    """Check what a function computes against the raw graph."""
    got = as_arrays(compiled(*model.fresh_arguments()))
    for expected, value in zip(wanted(model, order), got, strict=True):
        assert (value.shape, value.dtype) == (expected.shape, expected.dtype)
        size = float(np.max(np.abs(expected), initial=0.0))
        np.testing.assert_allclose(value, expected, rtol=1e-7, atol=atol * max(1.0, size))


def is_chosen(model: Model, order: int) -> bool:
    """Whether a derivative of a model is tested in more ways than others."""
    return model.name in CHOSEN and order == min(1, model.order)


def _by_the_virtual_machine() -> Iterator[object]:
    for case in CASES:
        model, order = case.values
        for way in WAYS:
            is_quick = is_chosen(model, order) and way == QUICK[0]
            marks = [] if is_quick else [pytest.mark.deep]
            yield pytest.param(model, order, way, marks=marks, id=f"{case.id}-{way}")


@pytest.mark.tiered(every=4)
@pytest.mark.parametrize(("model", "order", "way"), tuple(_by_the_virtual_machine()))
def test_in_the_virtual_machine(model: Model, order: int, way: str) -> None:
    check(model, order, way, VM)


def _by_numba() -> Iterator[object]:
    for case in CASES:
        model, order = case.values
        for way in WAYS:
            is_deep = is_chosen(model, order) and way in ("optimize -p default", *QUICK)
            marks = pytest.mark.deep if is_deep else pytest.mark.numba_zoo
            yield pytest.param(model, order, way, marks=marks, id=f"{case.id}-{way}")


@pytest.mark.parametrize(("model", "order", "way"), tuple(_by_numba()))
def test_in_numba(model: Model, order: int, way: str) -> None:
    # Numba's reciprocals of integers have single precision (tests/upstream/test_beside_loops.py),
    # and this is the one derivative that comes to zero but for that.
    is_inexact = (model.name, order) == ("covariance, online", 2)
    check(model, order, way, NUMBA, 1e-7 if is_inexact else 1e-9)
