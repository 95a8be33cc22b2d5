"""FunctionGraphs of many inputs, made without a search through all of them.

While PyTensor makes a graph, it looks up each input that a node reads in the list of all inputs: a
graph of n inputs takes the square of n. Here the list knows what it holds, until the graph is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph


class _Inputs(list[Variable]):
    """A list that only grows, and knows what it holds. Variables are equal if they are the same."""

    def __init__(self, variables: Iterable[Variable]) -> None:
        super().__init__(variables)
        self._held = set(self)

    def append(self, variable: Variable) -> None:
        super().append(variable)
        self._held.add(variable)

    def __contains__(self, variable: object) -> bool:
        return variable in self._held


class _Making(FunctionGraph):
    """A FunctionGraph while it is made."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, _Inputs(value) if name == "inputs" else value)


def graph_over(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> FunctionGraph:
    """Return what ``FunctionGraph(inputs, outputs, clone=False)`` is, in linear time."""
    made = _Making(inputs, outputs, clone=False)
    made.__class__ = FunctionGraph  # type: ignore[assignment]
    made.inputs = list(made.inputs)
    return made


def unfrozen(body: FrozenFunctionGraph) -> FunctionGraph:
    """Return what ``body.unfreeze()`` is, in linear time."""
    inputs = [variable.type() for variable in body.inputs]
    return graph_over(inputs, body.bind(dict(zip(body.inputs, inputs, strict=True))))
