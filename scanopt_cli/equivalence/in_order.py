"""A graph as it stands: its nodes in their order, which no digest of `equivalence` looks at.

What a graph computes does not depend on it. What is made of a graph may: machine code, or the
result of rewrites.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph

from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.ir.inner_graphs import inner_graphs

type Told = Callable[[Apply], bytes]
"""Tells what a node's Op is, but for the graphs that it holds."""

_ASSUMED = ("lower_triangular", "psd", "symmetric", "upper_triangular")
"""What a user may say of a matrix in the tag of a variable. PyTensor's rewrites rely on it."""


def in_order(sameness: Sameness, graph: AbstractFunctionGraph, told: Told) -> Iterator[bytes]:
    """Yield what tells a graph from others: each node, what it reads, and its outputs.

    Parameters
    ----------
    sameness
        What counts as equal. Names of variables, and what their tags say, do if it says so.
    graph
        The graph. Those in its Ops are told with it.
    told
        What tells one Op from another.
    """
    places: dict[Variable, bytes] = {}

    def place(variable: Any) -> bytes:
        if variable not in places:
            said = _said(variable) if sameness.names else b""
            places[variable] = sameness.of_constant(variable) + said
        return places[variable]

    def declared(variables: Iterable[Variable]) -> Iterator[bytes]:
        for variable in variables:
            if not isinstance(variable, Constant):
                places[variable] = b"%d" % len(places)
            yield sameness.of_type(variable.type)
            if sameness.names:
                yield repr(variable.name).encode() + _said(variable)

    yield b"("
    yield from declared(graph.inputs)
    for node in graph.toposort():
        yield told(node)
        yield b",".join(map(place, node.inputs))
        for inner in inner_graphs(node.op):
            yield from in_order(sameness, inner, told)
        yield from declared(node.outputs)
    yield b"=" + b",".join(map(place, graph.outputs)) + b")"


def _said(variable: Variable) -> bytes:
    """Return what a variable's tag says of its values."""
    found = vars(variable.tag)
    return repr([(name, found[name]) for name in _ASSUMED if name in found]).encode()
