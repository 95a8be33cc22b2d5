"""FunctionGraphs that are made and rewritten in time that grows with what is new, not with them.

In PyTensor's, three things grow with the square of a graph that is made or rewritten as a whole:

- The set of all variables is copied for each output and each replacement, to stop at them.
- Each input that a new node reads is looked up in the list of all inputs.
- A reader that gets another input is looked up in the list of all readers of the former one.

Here only those variables are copied that new nodes read, the list of inputs knows what it holds
while a graph is made, and lists of readers look where the reader probably is (`client_lists`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph

from scanopt_cli.ir.client_lists import Clients


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


class _Fast(FunctionGraph):
    """A FunctionGraph that imports nodes without a copy of the set of all its variables."""

    def import_node(self, apply_node: Apply, *args: Any, **options: Any) -> None:
        known = self.variables
        # The import copies `variables`, to stop at them: those that the new nodes read are enough.
        self.variables = _read_by_new_nodes(apply_node, known)
        try:
            super().import_node(apply_node, *args, **options)
        finally:
            known |= self.variables
            self.variables = known


class _Making(_Fast):
    """A FunctionGraph while it is made."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, _Inputs(value) if name == "inputs" else value)


def _read_by_new_nodes(node: Apply, known: set[Variable]) -> set[Variable]:
    """Return those of the ``known`` variables that ``node`` reads, or a node behind it does."""
    found: set[Variable] = set()
    new, todo = {node}, [node]
    while todo:
        for variable in todo.pop().inputs:
            if variable in known:
                found.add(variable)
            elif (owner := variable.owner) is not None and owner not in new:
                new.add(owner)
                todo.append(owner)
    return found


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


def rewrite_fast(fgraph: FunctionGraph) -> None:
    """Make replacements fast in ``fgraph``, which nobody keeps."""
    if type(fgraph) is FunctionGraph:  # another class may import nodes in a way of its own
        fgraph.__class__ = _Fast
    fgraph.clients = Clients(fgraph.clients)


@contextmanager
def rewritten_fast(fgraph: FunctionGraph) -> Iterator[None]:
    """Make replacements fast in ``fgraph`` for as long as this lasts.

    Afterwards it is as any other, so that it can be pickled and read anywhere.
    """
    kind = type(fgraph)
    rewrite_fast(fgraph)
    try:
        yield
    finally:
        fgraph.__class__ = kind
        fgraph.clients = {v: list(readers) for v, readers in fgraph.clients.items()}
