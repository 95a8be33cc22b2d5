"""A loop of three states over three sequences, in variants that differ in one thing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from scanopt_cli.ir.graph import Graph, from_io


def tensor(name: str, ndim: int = 1, dtype: str = "float64") -> Variable:
    return pt.tensor(name, dtype=dtype, shape=(None,) * ndim)


@dataclass(frozen=True)
class Recurrence:
    """What the loop is made of; every variant of `base` is one `replace` away.

    A step makes ``h = activation(factor * h + s)``, ``b = b * s`` and ``c = exp(c) - s``, where
    ``s`` is the sum of what the sequences hold at the step.
    """

    name: str = "rnn"
    sequences: tuple[str, ...] = ("x", "y", "z")
    states: tuple[str, ...] = ("h", "b", "c")
    taps: tuple[int, ...] = (-1,)
    factor: float = 0.5
    activation: Callable[[Variable], Variable] = pt.tanh
    steps: Callable[[Variable], Variable | int | None] = lambda n: None
    after: Callable[[Variable], Variable] = lambda total: total
    inputs: dict[str, Variable] = field(
        default_factory=lambda: (
            {name: tensor(name) for name in ("x", "y", "z")} | {"n": pt.lscalar("n")}
        )
    )

    def graph(self, *, gradient: bool = False) -> Graph:
        """Return the graph of the sum of the squares of the last states, and its gradient by x."""
        results = pytensor.scan(
            self._step,
            sequences=[self.inputs[name] for name in self.sequences],
            outputs_info=[
                {"initial": self._start(state), "taps": list(self._taps(state))}
                for state in self.states
            ],
            n_steps=self.steps(self.inputs["n"]),
            name=self.name,
            return_list=True,
            return_updates=False,
        )
        for result, state in zip(results, self.states, strict=True):
            result.name = state
        total = sum((result[-1] ** 2 for result in results[1:]), start=results[0][-1] ** 2)
        outputs = [self.after(total)]
        if gradient:
            outputs.append(pytensor.grad(outputs[0], self.inputs["x"]))
        return from_io(list(self.inputs.values()), outputs)

    def _taps(self, state: str) -> tuple[int, ...]:
        return self.taps if state == "h" else (-1,)

    def _start(self, state: str) -> Variable:
        start = {"h": 0.25, "b": 1.0, "c": 2.0}[state]
        width = len(self._taps(state))
        return pt.constant(np.full(width, start) if width > 1 else np.float64(start))

    def _step(self, *arguments: Variable) -> list[Variable]:
        given = list(arguments)
        seen = [given.pop(0) for _ in self.sequences]
        total = sum(seen[1:], start=seen[0])
        past = {state: [given.pop(0) for _ in self._taps(state)] for state in self.states}
        updates = {
            "h": lambda h: self.activation(self.factor * sum(h[1:], start=h[0]) + total),
            "b": lambda b: b[0] * total,
            "c": lambda c: pt.exp(c[0]) - total,
        }
        return [updates[state](past[state]) for state in self.states]


base = Recurrence()


def variant(**changes: object) -> Graph:
    """Return the graph of `base` with other parts, on inputs of its own."""
    fresh = {variable.name: variable.clone() for variable in base.inputs.values()}
    return replace(base, **{"inputs": fresh} | changes).graph()


def chain(operators: Sequence[Callable[[Variable], Variable]]) -> tuple[list, list]:
    """Return input and output of a graph that applies one operator after another."""
    x = tensor("x")
    result = x
    for operator in operators:
        result = operator(result)
    return [x], [result]
