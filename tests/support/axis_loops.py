"""Loops whose rows are vectors and matrices: stopped, nested, of two lengths, derivatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.scan.utils import until

from support.graph_building import scan

WIDTH = 3


@dataclass(frozen=True)
class Inputs:
    """What loops are made of: rows ``s``, a vector, a matrix, two step counts and an index."""

    s: Any
    v: Any
    m: Any
    n: Any
    k: Any
    j: Any

    @classmethod
    def of_width(cls, width: int | None) -> Inputs:
        """Make the inputs, with types that state the number of columns or do not."""
        shapes = {"s": (None, width), "v": (width,), "m": (2, width)}
        arrays = {
            name: pt.tensor(name, shape=shape, dtype="float64") for name, shape in shapes.items()
        }
        return cls(**arrays, **{name: pt.lscalar(name) for name in ("n", "k", "j")})

    @property
    def all(self) -> list[Variable]:
        return [self.s, self.v, self.m, self.n, self.k, self.j]


def arguments(width: int, steps: int, others: int, index: int) -> list[Any]:
    """Return values of all inputs."""
    rng = np.random.default_rng(7)
    shapes = ((6, width), (width,), (2, width))
    arrays = [rng.uniform(0.2, 1, shape).round(2) for shape in shapes]
    return [*arrays, *map(np.asarray, (steps, others, index))]


COUNTS = (
    (3, 5, 5, 2),
    (3, 0, 0, 0),
    (3, 1, 1, -1),
    (2, 2, 2, 1),
    (1, 3, 3, -3),
    (3, 4, 4, 0),
    (2, 1, 1, 0),
    (3, 3, 2, 1),
    (1, 6, 6, 3),
)
"""The width of rows, the steps of the loops, and the index."""


def _states(i: Inputs) -> list[Any]:
    states, outer = scan(
        lambda h, v: (0.5 * h + v, h[:, None] * v[None, :]),
        outputs_info=[i.v, None],
        non_sequences=[i.v],
        n_steps=i.n,
    )
    return [states, outer, states.owner.inputs[0]]


def _matrices(i: Inputs) -> list[Any]:
    states = scan(lambda h, v: 0.5 * h + v, outputs_info=[i.m], non_sequences=[i.v], n_steps=i.n)
    return [states, states.owner.inputs[0]]


def _taps(i: Inputs) -> list[Any]:
    states, sums = scan(
        lambda g, h, total, v: (0.3 * g + 0.5 * h + v, total + g),
        outputs_info=[{"initial": i.m, "taps": [-2, -1]}, i.v],
        non_sequences=[i.v],
        n_steps=i.n,
    )
    return [states, states.owner.inputs[0], sums]


def _of_sequences(i: Inputs) -> list[Any]:
    states, outer = scan(
        lambda row, h: (0.5 * h + row, h[:, None] * row[None, :]),
        sequences=[i.s],
        outputs_info=[i.v, None],
        n_steps=i.n,
    )
    return [states, outer, states.owner.inputs[0]]


def _maps(i: Inputs) -> list[Any]:
    return scan(
        lambda row, v: (row * v, row.sum(), row[:, None] + v),
        sequences=[i.s[: i.n]],
        outputs_info=[None, None, None],
        non_sequences=[i.v],
    )


def _stopped(i: Inputs) -> list[Any]:
    return scan(
        lambda h, v: ((h + v, 2 * h), until(h[0] > 1.5)),
        outputs_info=[i.v, None],
        non_sequences=[i.v],
        n_steps=i.n,
    )


def _of_fixed_length(i: Inputs) -> list[Any]:
    return scan(
        lambda h, v: (0.5 * h + v, h * v), outputs_info=[i.v, None], non_sequences=[i.v], n_steps=4
    )


def _of_two_lengths(i: Inputs) -> list[Any]:
    one, two = (
        scan(
            lambda h, v, f=factor: f * h + v, outputs_info=[i.v], non_sequences=[i.v], n_steps=steps
        )
        for factor, steps in ((0.5, i.n), (0.3, i.k))
    )
    return [one, two, one.owner.inputs[0]]


def _one_behind_the_other(i: Inputs) -> list[Any]:
    one = scan(lambda h, v: 0.5 * h + v, outputs_info=[i.v], non_sequences=[i.v], n_steps=i.n + 1)
    two, products = scan(
        lambda row, next_row, h: (0.3 * h + row, h * next_row),
        sequences=[one[:-1], one[1:]],
        outputs_info=[i.v, None],
    )
    return [one, two, products]


def _nested(i: Inputs) -> list[Any]:
    def step(h: Any, v: Any) -> Any:
        inner = scan(lambda g, v: 0.5 * g + v, outputs_info=[h], non_sequences=[v], n_steps=i.k)
        return 0.5 * h + v, inner

    return scan(step, outputs_info=[i.v, None], non_sequences=[i.v], n_steps=i.n)


def _gradients(i: Inputs) -> list[Any]:
    states = scan(
        lambda row, h: pt.tanh(h) * row, sequences=[i.s[: i.n]], outputs_info=[i.v], n_steps=i.n
    )
    return [pt.grad((states[1:] ** 2).sum(), i.s), states, pt.grad(states.sum(), i.v)[None]]


def _constants(i: Inputs) -> list[Any]:
    return scan(
        lambda h, v: (v * 2, v[:, None] * v),
        outputs_info=[i.v, None],
        non_sequences=[i.v],
        n_steps=i.n,
    )


LOOPS: tuple[Callable[[Inputs], list[Any]], ...] = (
    _states,
    _matrices,
    _taps,
    _of_sequences,
    _maps,
    _stopped,
    _of_fixed_length,
    _of_two_lengths,
    _one_behind_the_other,
    _nested,
    _gradients,
    _constants,
)
