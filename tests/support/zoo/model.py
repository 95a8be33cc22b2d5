"""What a model of the zoo is, and what to compute of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

type Built = tuple[list[Variable], Variable | list[Variable]]


@dataclass(frozen=True, eq=False)
class Model:
    """A loop as people write it, and what it must compute.

    ``build`` returns the inputs, and one scalar cost or, where there is nothing to differentiate,
    a list of outputs. ``reference`` computes the same with NumPy, from ``arguments``; ``wrt`` names
    the inputs to differentiate by, ``order`` says how often that can be done, and ``note`` why not
    more often, or what is special. ``kept_by_pytensor`` is False where PyTensor's own rewriting is
    known to change what is computed.
    """

    name: str
    build: Callable[[], Built]
    arguments: tuple[Any, ...]
    reference: Callable[..., Any]
    wrt: tuple[str, ...] = ()
    order: int = 2
    rtol: float = 1e-9
    kept_by_pytensor: bool = True
    note: str = ""

    def __str__(self) -> str:
        return self.name

    def fresh_arguments(self) -> list[Any]:
        """Return the arguments, copied: nobody draws from another one's generator."""
        return deepcopy(list(self.arguments))

    def positions(self) -> list[int]:
        """Return where the inputs to differentiate by are among all inputs."""
        names = [variable.name for variable in self.build()[0]]
        return [names.index(name) for name in self.wrt]


def outputs_of(model: Model, order: int = 0) -> tuple[list[Variable], list[Variable]]:
    """Build a model anew: its inputs, and what it computes at ``order``.

    Order 0 is the value, order 1 the value and the gradient, order 2 the gradient of the sum of
    all entries of the gradient.
    """
    assert order <= model.order, f"{model.name} has no derivatives of order {order}"
    inputs, output = model.build()
    outputs = list(output) if isinstance(output, list) else [output]
    return inputs, derivative_of(model, inputs, outputs, order)


def derivative_of(
    model: Model, inputs: list[Variable], outputs: list[Variable], order: int
) -> list[Variable]:
    """Return what a model computes at ``order``, given the graph of its value."""
    if order == 0:
        return outputs
    wrt = [next(v for v in inputs if v.name == name) for name in model.wrt]
    gradient = pt.grad(outputs[0], wrt)
    if order == 1:
        return [*outputs, *gradient]
    total = pt.add(*(g.sum() for g in gradient)) if len(gradient) > 1 else gradient[0].sum()
    found: list[Variable] = pt.grad(total, wrt, disconnected_inputs="ignore")
    return found


def as_array(value: Any) -> np.ndarray:
    """Return a value as an array to compare; of a random generator, the bits it gives next."""
    if isinstance(value, np.random.Generator):
        return deepcopy(value).bit_generator.random_raw(4)
    return np.asarray(value)


def as_arrays(values: Sequence[Any]) -> list[np.ndarray]:
    """Return what `as_array` makes of each value."""
    return [as_array(value) for value in values]


def numbers(*values: Any) -> tuple[Any, ...]:
    """Return arguments as arrays: floats as ``float64``, counts and classes as ``int64``."""
    return tuple(
        value if isinstance(value, np.random.Generator) else np.asarray(value) for value in values
    )


def drawn(seed: int, *shape: int, scale: float = 1.0) -> np.ndarray:
    """Draw normal numbers, the same ones each time."""
    return np.random.default_rng(seed).normal(size=shape) * scale
