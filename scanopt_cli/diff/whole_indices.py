"""Indices of Subtensor and IncSubtensor nodes, each reported as a whole."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from pytensor.graph.basic import Apply
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from scanopt_cli.diff.labels import index_text, is_conversion
from scanopt_cli.diff.matching.alignment import n_operands
from scanopt_cli.diff.matching.correspondence import Matching, NodePair
from scanopt_cli.diff.matching.indexed_graph import IndexedGraph
from scanopt_cli.diff.regions import Edge


def is_indexing(node: Apply) -> bool:
    """Whether ``node`` reads or writes a part of an array by an index."""
    return isinstance(node.op, Subtensor | IncSubtensor)


def index_texts(matching: Matching, pair: NodePair) -> tuple[str, str]:
    """Return the index of a matched node before and after."""
    return index_text(matching.before, pair.node), index_text(matching.after, pair.other)


def has_another_index(
    matching: Matching, pair: NodePair, reported: tuple[Container[Edge], Container[Edge]]
) -> bool:
    """Whether the index of a matched node changed, but for ``reported`` edges."""
    node, other = pair.node, pair.other
    if not (is_indexing(node) and is_indexing(other)):
        return False
    text, retext = index_texts(matching, pair)
    if text == retext or not matching.same_op(node, other):
        return text != retext
    carriers = (*_carriers(node, reported[0]), *_carriers(other, reported[1]))
    pairs = [(matching.pairs[n], place) for n, place in carriers if n in matching.pairs]
    return not all(
        matching.correspond(read.node.inputs[place], read.other.inputs[place])
        for read, place in pairs
    )


def index_edges(
    graph: IndexedGraph, nodes: Sequence[Apply], reported: Container[Edge]
) -> dict[Edge, Apply]:
    """Map each edge that carries an index of ``nodes`` to the node that it indexes.

    The edge into a conversion is included if all edges that read the conversion are included or are
    ``reported`` by another change.
    """
    edges: dict[Edge, Apply] = {}
    for node in nodes:
        edges.update(dict.fromkeys(_own_edges(node), node))
    waiting = list(edges)
    while waiting:
        reader, place = waiting.pop()
        maker = reader.inputs[place].owner
        if maker is None or not is_conversion(maker) or (maker, 0) in edges:
            continue
        if all(edge in edges or edge in reported for edge in graph.readers[maker.outputs[0]]):
            edges[maker, 0] = edges[reader, place]
            waiting.append((maker, 0))
    return edges


def _carriers(node: Apply, reported: Container[Edge]) -> Iterator[Edge]:
    """Yield the edges that carry the index of a node, except those in or behind ``reported``."""
    waiting = _own_edges(node)
    while waiting:
        reader, place = waiting.pop()
        if (reader, place) in reported:
            continue
        yield reader, place
        maker = reader.inputs[place].owner
        if maker is not None and is_conversion(maker):
            waiting.append((maker, 0))


def _own_edges(node: Apply) -> list[Edge]:
    return [(node, place) for place in range(n_operands(node.op), len(node.inputs))]
