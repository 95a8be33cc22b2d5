"""The samples, and the models of the zoo with their gradients, to compare with PyTensor alone."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from build import SAMPLES
from support.benchmarks.beside_cases import Built, Case
from support.zoo.model import outputs_of
from support.zoo.models import MODELS

_OF_SAMPLES: dict[str, Any] = {
    "X": np.linspace(0, 1, 500).reshape(50, 10),
    "W": np.eye(4) * 0.5,
    "a": 2.0,
    "tolerance": 1e-12,
    "max_steps": 50,
    "n_steps": 50,
    "mu0": [0.1, 0.2],
    "phi": [0.3, 0.4],
    "h0": 0.1,
    "x": 0.5,
    **dict.fromkeys(("y", "deliveries", "rain", "prices", "series"), np.linspace(0.1, 1, 200)),
}
_DRAWING = ("random_walk",)


def _samples() -> list[Case]:
    found = []
    for module in SAMPLES:
        if module in _DRAWING:  # a generator is another object at each call
            continue
        for name, built in import_module(module).build().items():
            found.append(_sample(name, built))
    return found


def _sample(name: str, built: Built) -> Case:
    def value(variable: Any) -> np.ndarray:
        given = np.asarray(_OF_SAMPLES.get(str(variable.name), 0.7), variable.type.dtype)
        missing = variable.type.ndim - given.ndim
        return np.resize(given, (4,) * variable.type.ndim) if missing > 0 else given

    return Case(f"sample {name}", lambda: built, lambda _scale: [value(v) for v in built[0]])


def _models() -> list[Case]:
    found = []
    for model in MODELS:
        for order in range(min(model.order, 1) + 1):
            found.append(
                Case(
                    f"zoo: {model.name}, {'value and gradient' if order else 'value'}",
                    lambda model=model, order=order: outputs_of(model, order),
                    lambda _scale, model=model: model.fresh_arguments(),
                )
            )
    return found


SAMPLE_CASES = _samples()
ZOO = _models()
