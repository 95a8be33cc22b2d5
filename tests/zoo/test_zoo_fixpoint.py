"""What `optimize` wrote of a model of the zoo, optimized again by the same passes, stays as it is.

The quick tier has a model of each kind of loop, and those that did not stay once.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import scanopt_cli as so
from support.settling import assert_settled
from support.zoo.model import Model, outputs_of
from support.zoo.models import MODELS

PRESETS = ("default", "grad", "loop")
_QUICK = {
    ("AR(2)", 2, "default"),
    ("ARMA(2,1)", 1, "grad"),
    ("GARCH(1,1)", 2, "grad"),
    ("GRU", 2, "grad"),
    ("HMM, log space", 1, "grad"),
    ("Kalman, local level", 0, "loop"),
    ("Kalman, local level", 2, "default"),
    ("Metropolis", 0, "loop"),
    ("RNN, matrix state", 2, "grad"),
    ("products so far", 2, "grad"),
    ("rows of elements", 1, "loop"),
}


def _cases() -> Iterator[object]:
    for model in MODELS:
        for order in range(model.order + 1):
            for preset in PRESETS:
                is_quick = (model.name, order, preset) in _QUICK
                marks = [] if is_quick else [pytest.mark.deep]
                name = f"{model}-{order}-{preset}"
                yield pytest.param(model, order, preset, marks=marks, id=name)


def test_the_quick_cases_exist() -> None:
    names = {model.name: model.order for model in MODELS}
    assert not [case for case in _QUICK if names.get(case[0], -1) < case[1]]


@pytest.mark.tiered(every=4)
@pytest.mark.parametrize(("model", "order", "preset"), list(_cases()))
def test_what_is_optimized_stays(model: Model, order: int, preset: str) -> None:
    assert_settled(so.optimize(outputs_of(model, order), preset), preset)
