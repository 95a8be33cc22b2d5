"""Loops of many kinds, each beside the same computation without a loop.

A program takes symbolic inputs and the operator's step count, and returns outputs. Its twin repeats
the step in Python, so that PyTensor sees no loop at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from scanopt_cli.loop.body import Body
from scanopt_cli.loop.operators import TracedLoop

type Step = Callable[..., tuple[list[Variable], list[Variable]]]


@dataclass(frozen=True)
class Program:
    """A step, and arguments for the states and the constants."""

    step: Step
    """Called with the index, the states and the constants; next states, and values to trace."""
    states: Sequence[Any]
    constants: Sequence[Any] = ()
    n_steps: int = 4
    condition: Callable[..., Variable] | None = None
    """Called with the index and the next states."""
    discrete: int = 0
    """How many of the states, the last ones, have no derivatives."""

    @property
    def arguments(self) -> list[np.ndarray]:
        return [np.asarray(value) for value in (*self.states, *self.constants)]

    def inputs(self) -> list[Variable]:
        return [pt.tensor(shape=(None,) * v.ndim, dtype=v.dtype) for v in self.arguments]

    def looped(self, inputs: Sequence[Variable], n_steps: Any) -> list[Variable]:
        """The outputs of the operator: last states, their traces, other traces, step count."""
        n = len(self.states)
        index = pt.lscalar("index")
        states = [v.type() for v in inputs[:n]]
        constants = [v.type() for v in inputs[n:]]
        next_states, traced = self.step(index, states, constants)
        body = Body(
            index=index,
            states=states,
            constants=constants,
            next_states=next_states,
            traced=traced,
            condition=self.condition and self.condition(index, next_states),
        )
        outer = dict(zip(constants, inputs[n:], strict=True))
        return TracedLoop.over(n_steps, body, inputs[:n], outer)

    def unrolled(self, inputs: Sequence[Variable], n_steps: int) -> list[Variable]:
        """The same, from ``n_steps`` steps one after the other."""
        n = len(self.states)
        states, constants = list(inputs[:n]), inputs[n:]
        rows, traces = [states], []
        for i in range(n_steps):
            states, traced = self.step(pt.constant(i, dtype="int64"), states, constants)
            rows.append(states)
            traces.append(traced)
        return [
            *states,
            *(pt.stack(row) for row in zip(*rows, strict=True)),
            *(pt.stack(row) for row in zip(*traces, strict=True)),
            pt.constant(n_steps, dtype="int64"),
        ]


def _numbers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape) + 7).normal(size=shape)


def _map(i: Any, states: Any, constants: Any) -> Any:
    (x,), (r,) = states, constants
    return [r * x * (1 - x)], []


def _coupled(i: Any, states: Any, constants: Any) -> Any:
    (h, a), (weights, rows) = states, constants
    h, a = pt.tanh(h @ weights + rows[i] * a), a * 0.9 + h.sum() * 0.1
    return [h, a], [h * 2, a, (h**2).sum() * a]


def _matrices(i: Any, states: Any, constants: Any) -> Any:
    (m, p), (a, q) = states, constants
    p = a @ p @ a.T + q
    return [m + p @ m * 0.1, p], [pt.linalg.inv(p + pt.eye(2))]


def _shifted(i: Any, states: Any, constants: Any) -> Any:
    (old, new), (w,) = states, constants
    return [new, w[0] * new + w[1] * old + pt.sin(old)], []


def _swapped(i: Any, states: Any, constants: Any) -> Any:
    a, b = states
    return [b, a * 1.1], [a + b]


def _counted(i: Any, states: Any, constants: Any) -> Any:
    (x, count), (w,) = states, constants
    return [x * w + count.astype("float64") * 0.1, count + 2], [pt.cos(x) * i]


def _one_for_all(i: Any, states: Any, constants: Any) -> Any:
    (a, b), (c,) = states, constants
    value = pt.sin(a * b + c[i])
    return [value, value], [value, value]


def _unmoved(i: Any, states: Any, constants: Any) -> Any:
    (x, fixed), (c,) = states, constants
    return [x * fixed + c, fixed], [c]


def _written(i: Any, states: Any, constants: Any) -> Any:
    (buffer, x), (c,) = states, constants
    return [pt.set_subtensor(buffer[i], x * c), x + buffer[0]], [buffer.sum()]


PROGRAMS = {
    "map": Program(_map, [0.3], [3.1]),
    "coupled": Program(_coupled, [_numbers(3), 0.4], [_numbers(3, 3), _numbers(6, 3)]),
    "matrices": Program(
        _matrices, [_numbers(2), np.eye(2)], [_numbers(2, 2) * 0.5, np.eye(2) * 0.3]
    ),
    "shifted": Program(_shifted, [0.2, 0.7], [_numbers(2)]),
    "shifted vectors": Program(_shifted, [_numbers(3), _numbers(3) * 2], [_numbers(2)]),
    "swapped": Program(_swapped, [_numbers(3), _numbers(3) * 2]),
    "counted": Program(_counted, [0.5, 3], [0.8], discrete=1),
    "one for all": Program(_one_for_all, [0.1, 0.2], [_numbers(5)]),
    "unmoved": Program(_unmoved, [_numbers(2), _numbers(2) + 1], [_numbers(2)]),
    "written": Program(_written, [_numbers(5), 0.3], [1.3]),
}
