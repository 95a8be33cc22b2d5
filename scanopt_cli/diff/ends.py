"""Pairs the inputs and the outputs of two graphs."""

from __future__ import annotations

from collections.abc import Hashable

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.diff.matching.indexed_graph import IndexedGraph
from scanopt_cli.diff.matching.match import match
from scanopt_cli.diff.matching.pairing import Keys, Pairs, pair_up


def pair_inputs(*graphs: FunctionGraph) -> Pairs:
    """Pair graph inputs by name where it is unique, then by place; types of one class only.

    If one graph has more inputs, places have shifted: then readers decide before places do.
    """

    def readers(graph: FunctionGraph, variable: Variable) -> Hashable:
        read = {(str(node.op), place) for node, place in graph.clients.get(variable, ())}
        return str(variable.type), frozenset(read)

    lists = [graph.inputs for graph in graphs]
    names = [[(type(v.type), v.name) if v.name else None for v in inputs] for inputs in lists]
    places = [[(type(v.type), place) for place, v in enumerate(inputs)] for inputs in lists]
    if len(places[0]) == len(places[1]):
        return pair_up(names, places)
    return pair_up(names, [[readers(g, v) for v in g.inputs] for g in graphs], places)


def pair_outputs(
    before: IndexedGraph, after: IndexedGraph, inputs: Pairs, *, swapped: bool
) -> Pairs:
    """Pair outputs by place; if one side has more, by digest, then by weaker evidence.

    That is their names, then a matching of the graphs, then the Ops that make them, and last their
    types, in order.
    """

    def maker(graph: IndexedGraph, output: Variable) -> Hashable:
        return None if output.owner is None else graph.op_digest(output.owner.op)

    sides = before, after
    if len(before.outputs) == len(after.outputs):
        return [(place, place) for place in range(len(before.outputs))]
    known: list[Keys] = [
        [[graph.digest(v) for v in graph.outputs] for graph in sides],
        [[v.name or None for v in graph.outputs] for graph in sides],
    ]
    matching = match(before, after, inputs, pair_up(*known), swapped=swapped)
    return pair_up(
        *known,
        [[matching.key(graph, v) for v in graph.outputs] for graph in sides],
        [[maker(graph, v) for v in graph.outputs] for graph in sides],
        [[str(v.type) for v in graph.outputs] for graph in sides],
        repeats=True,
    )
