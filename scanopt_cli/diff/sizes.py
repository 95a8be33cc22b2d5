"""Edges of a graph that only carry the trip counts and buffer lengths of loops.

A changed length is reported once, as a number. The nodes that compute it are not reported, as long
as nothing else reads them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pytensor.graph.basic import Apply
from pytensor.tensor.basic import Alloc, AllocEmpty, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from scanopt_cli.diff.matching.correspondence import Matching
from scanopt_cli.diff.matching.indexed_graph import IndexedGraph
from scanopt_cli.diff.regions import Edge
from scanopt_cli.ir.dtypes import is_count

type Sizes = Mapping[Edge, int]
"""Edges into loops whose lengths are reported, each with the axis of its length."""

_ROUNDS = 8


def size_edges(
    matching: Matching,
    sizes: tuple[Sizes, Sizes],
    reported: tuple[Collection[Edge], Collection[Edge]],
) -> tuple[set[Edge], set[Edge]]:
    """Return the edges of both sides that carry nothing but reported lengths.

    ``reported`` are the edges that other changes report; unmatched readers needed only for these do
    not count. Edges of matched nodes are returned in pairs, except where one side carries more.
    """
    left_out: tuple[set[Edge], set[Edge]] = (set(), set())
    for _ in range(_ROUNDS):
        found, others = (
            _found(matching, *side)
            for side in zip(matching.graphs, sizes, reported, left_out, strict=True)
        )
        uneven = [
            (edge, other)
            for edge, other in _paired(matching, found, others)
            if (edge in found) != (other in others)
            or not _differ_in_length_only(matching, edge, other)
        ]
        if not uneven:
            return found, others
        left_out[0].update(edge for edge, _ in uneven)
        left_out[1].update(other for _, other in uneven)
    return set(), set()


def _paired(
    matching: Matching, found: Collection[Edge], others: Collection[Edge]
) -> set[tuple[Edge, Edge]]:
    """Return the edges of matched nodes with an edge found on either side, in pairs."""
    nodes = {node for node, _ in (*found, *others)}
    pairs = [matching.pairs[node] for node in nodes if node in matching.pairs]
    return {
        ((pair.node, place), (pair.other, other_place))
        for pair in pairs
        for place, other_place in pair.inputs
    }


def _found(
    matching: Matching,
    graph: IndexedGraph,
    sizes: Sizes,
    reported: Collection[Edge],
    left_out: Collection[Edge],
) -> set[Edge]:
    found = {edge for edge in sizes if _is_length(edge)} - set(left_out)
    axes = dict(sizes)
    needless = set(reported)
    for node in reversed(graph.nodes):
        edges = [edge for output in node.outputs for edge in graph.readers.get(output, ())]
        if not edges or any(graph.output_positions.get(output) for output in node.outputs):
            continue
        needed = [edge for edge in edges if edge not in needless]
        if not needed and node not in matching.pairs:
            needless.update((node, place) for place in range(len(node.inputs)))
        carried: list[int] = []
        if all(edge in found for edge in needed) and _is_arithmetic(node):
            carried = list(range(len(node.inputs))) if needed else []
        elif len(along := {axes.get(edge) for edge in needed}) == 1 and None not in along:
            axis = along.pop()
            assert axis is not None
            carried = _length_places(node, axis)
            if isinstance(node.op, IncSubtensor):
                carried.append(0)
                axes[node, 0] = axis
        found.update(
            (node, place)
            for place in carried
            if _is_length((node, place)) and (node, place) not in left_out
        )
    return found


def _differ_in_length_only(matching: Matching, edge: Edge, other_edge: Edge) -> bool:
    """Whether two edges carry lengths, or buffers that are equal except for one input."""
    maker, other = (node.inputs[place].owner for node, place in (edge, other_edge))
    if not (_is_buffer(maker) and _is_buffer(other)):
        return not (_is_buffer(maker) or _is_buffer(other))
    differing = sum(
        not matching.correspond(*pair) for pair in zip(maker.inputs, other.inputs, strict=False)
    )
    return matching.same_op(maker, other) and differing <= 1


def _is_length(edge: Edge) -> bool:
    """Whether an edge carries an integer scalar, or a buffer as it is allocated."""
    variable = edge[0].inputs[edge[1]]
    return is_count(variable) or _is_buffer(variable.owner)


def _is_buffer(node: Apply | None) -> bool:
    return node is not None and isinstance(node.op, Alloc | AllocEmpty)


def _is_arithmetic(node: Apply) -> bool:
    return isinstance(node.op, Elemwise | ScalarFromTensor | TensorFromScalar)


def _length_places(node: Apply, axis: int) -> list[int]:
    """Return the inputs of ``node`` that give the length of its output along ``axis``."""
    op = node.op
    if isinstance(op, AllocEmpty):
        return [axis]
    if isinstance(op, Alloc):
        return [axis + 1]
    if isinstance(op, Subtensor):
        parts = [part for part in op.idx_list if isinstance(part, slice)]
        if axis < len(parts) == len(op.idx_list) and parts[axis].stop is not None:
            return [parts[axis].stop + 1]
    return []
