"""Loops that cost more than they have to, each with a twin that does not, for `test_rules`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.scan.utils import until

scan = partial(pytensor.scan, return_updates=False)
type Graph = tuple[list[Any], list[Any]]

X = pt.dvector("x")
V = pt.dscalar("v")
N = pt.lscalar("n")
A, B = pt.dmatrices("a", "b")
SMALL = pt.tensor("small", shape=(3,), dtype="float64")
FIVE = pt.tensor("five", shape=(5, 5), dtype="float64")
MORE_VALUES = {
    "small": np.array([0.5, -0.3, 0.2]),
    "five": np.eye(5) * 0.4 + 0.1,
}


def traced(*, steps: Any, last: bool = False) -> Graph:
    ys = scan(lambda s: pt.sin(s), outputs_info=[V], n_steps=steps)
    return [V, N], [ys[-1] if last else ys.sum()]


def until_small(*, last: bool) -> Graph:
    ys = scan(lambda s: (pt.sin(s), until(s < 0.5)), outputs_info=[V], n_steps=20)
    return [V], [ys[-1] if last else pt.grad(ys[-1], V)]


def of_matrix(step: Callable[[Any, Any], Any], length: int | None = None) -> Graph:
    a = A if length is None else pt.tensor("a", shape=(length, length), dtype="float64")
    ys = scan(step, outputs_info=[a], non_sequences=[B], n_steps=4)
    return [a, B], [ys[-1]]


def of_vector(step: Callable[[Any], Any]) -> Graph:
    return [SMALL], [scan(step, outputs_info=[SMALL], n_steps=4)[-1]]


def squared(*, length: int | None = 5) -> Graph:
    matrix = pt.tensor("five", shape=(length, length), dtype="float64")
    return [matrix], [scan(lambda s: pt.tanh(s @ s), outputs_info=[matrix], n_steps=4)[-1]]


SEEDED_LOOPS: dict[str, tuple[str, Callable[[], Graph], Callable[[], Graph]]] = {
    "unknown shapes": (
        "P009",
        partial(of_matrix, lambda s, b: pt.tanh(s @ b)),
        partial(of_matrix, lambda s, b: pt.tanh(s) * b.shape[0], length=2),
    ),
    "shapes that do not help": (
        "P009",
        partial(of_matrix, lambda s, b: pt.tanh(s @ b)),
        partial(of_matrix, lambda s, b: pt.sort(s @ b)),
    ),
    "a call of Python": (
        "P010",
        partial(of_vector, lambda s: pt.polygamma(2, s**2 + 1)),
        partial(of_vector, lambda s: pt.psi(s**2 + 1)),
    ),
    "a small array": (
        "P010",
        partial(of_vector, lambda s: pt.sort(s) * 0.5),
        partial(of_vector, lambda s: pt.stack([s.min(), s[1], s.max()]) * 0.5),
    ),
    "an array of 25 entries": ("P010", squared, partial(squared, length=7)),
    "an array of unknown shape": ("P010", squared, partial(squared, length=None)),
    "a matrix that is decomposed": (
        "P010",
        squared,
        lambda: ([FIVE], [scan(pt.linalg.expm, outputs_info=[FIVE], n_steps=4)[-1]]),
    ),
    "steps for JAX": ("J001", partial(traced, steps=N), partial(traced, steps=4)),
    "a trace for JAX": ("J001", partial(traced, steps=N), partial(traced, steps=N, last=True)),
    "a condition for JAX": (
        "J001",
        partial(until_small, last=False),
        partial(until_small, last=True),
    ),
}
WITHOUT_FIX = frozenset[str]()
"""Those of rules with a fix that it does not mend."""
