"""Which parts of a graph correspond to which of an earlier one, by the matching of `diff`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytensor.graph.basic import Apply
from pytensor.graph.fg import AbstractFunctionGraph, FrozenFunctionGraph, FunctionGraph

from scanopt_cli.diff.body_graphs import inner_pairs
from scanopt_cli.diff.ends import pair_inputs, pair_outputs
from scanopt_cli.diff.matching.correspondence import NodePair
from scanopt_cli.diff.matching.indexed_graph import two_sides
from scanopt_cli.diff.matching.match import match
from scanopt_cli.diff.matching.pairing import Pairs
from scanopt_cli.ir.graph import copy_nodes
from scanopt_cli.ir.inner_graphs import body_of
from scanopt_cli.ir.scan_view import is_loop, view_of


@dataclass(frozen=True, slots=True)
class Correspondence:
    """Pairs of parts of two graphs.

    Attributes
    ----------
    inputs, outputs
        Places of inputs and of outputs, of the earlier graph and of the later one.
    nodes
        For nodes of the later graph, those of the earlier one.
    bodies
        For nodes of the later graph with a body, the pairs of inputs and outputs of the two bodies.
    """

    inputs: Pairs
    outputs: Pairs
    nodes: Mapping[Apply, Apply]
    bodies: Mapping[Apply, tuple[Pairs, Pairs]]


def correspondence(
    before: AbstractFunctionGraph,
    after: AbstractFunctionGraph,
    ends: tuple[Pairs, Pairs] | None = None,
) -> Correspondence:
    """Match two graphs, or two bodies whose ``ends`` are pairs of inputs and of outputs."""
    copy, origin = _copied(before)
    later_copy, later_origin = _copied(after)
    inputs = pair_inputs(copy, later_copy) if ends is None else ends[0]
    sides = two_sides(copy, later_copy, inputs)
    outputs = pair_outputs(*sides, inputs, swapped=False) if ends is None else ends[1]
    matching = match(*sides, inputs, outputs)
    nodes: dict[Apply, Apply] = {}
    bodies: dict[Apply, tuple[Pairs, Pairs]] = {}
    for pair in matching.node_pairs():
        node, other = origin[pair.node], later_origin[pair.other]
        nodes[other] = node
        if (found := _ends_of_bodies(pair)) is not None:
            bodies[other] = found
    return Correspondence(inputs, outputs, nodes, bodies)


def _ends_of_bodies(pair: NodePair) -> tuple[Pairs, Pairs] | None:
    node, other = pair.node, pair.other
    if pair.slots is not None:
        return inner_pairs(view_of(node), view_of(other), pair.slots)
    if is_loop(node) or is_loop(other) or None in map(body_of, (node.op, other.op)):
        return None
    return pair.inputs, pair.outputs


def _copied(graph: AbstractFunctionGraph) -> tuple[FunctionGraph, Mapping[Apply, Apply]]:
    """Return a copy of a graph, which a matching may change, and the node that each copy is of."""
    if isinstance(graph, FrozenFunctionGraph):
        copy = graph.unfreeze()
        for inner, outer in zip(copy.inputs, graph.inputs, strict=True):
            inner.name = outer.name
    else:
        assert isinstance(graph, FunctionGraph)
        copy = copy_nodes(graph)
    # Equal nodes of a frozen graph may be several objects: the copies are found by their place.
    origins: dict[Apply, Apply] = {}
    waiting = list(zip(copy.outputs, graph.outputs, strict=True))
    while waiting:
        new, old = (variable.owner for variable in waiting.pop())
        if new is not None and old is not None and new not in origins:
            origins[new] = old
            waiting += zip(new.inputs, old.inputs, strict=True)
    return copy, origins
