"""Similar nodes, wherever they are: the last resort of matching."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence

from pytensor.graph.basic import Apply

from scanopt_cli.diff.matching.correspondence import Matching
from scanopt_cli.diff.matching.evidence import are_alike
from scanopt_cli.diff.matching.indexed_graph import IndexedGraph
from scanopt_cli.diff.matching.terms import Token
from scanopt_cli.ir.inner_graphs import op_name
from scanopt_cli.ir.scan_view import scan_op

# Evidence that so many nodes share says little, and looking at all of them would be quadratic.
_COMMON = 16


def similar_pairs(
    matching: Matching, nodes: Sequence[Apply], others: Sequence[Apply]
) -> Iterator[tuple[Apply, Apply]]:
    """Yield pairs of nodes that share at least half of their neighbours, the best first.

    Nodes need the same Op; Scans need to be alike.
    """
    ours = [(node, _traits(matching.first, node, matching.token, matching.nodes)) for node in nodes]
    # A node of the second side is known to the first by the node that it is matched with.
    theirs = [(node, _traits(matching.second, node, matching.other_token, None)) for node in others]
    index: dict[Hashable, list[int]] = defaultdict(list)
    for place, (_, traits) in enumerate(theirs):
        for trait in traits:
            index[trait].append(place)
    found = []
    for place, (node, traits) in enumerate(ours):
        shared = Counter(
            other
            for trait in traits
            if len(index.get(trait, ())) <= _COMMON
            for other in index.get(trait, ())
        )
        for other, count in shared.items():
            counterpart, other_traits = theirs[other]
            is_loop = scan_op(node) is not None
            if 2 * count >= max(len(traits), len(other_traits)) or (
                is_loop and are_alike(matching, node, counterpart)
            ):
                found.append((-count, place, other))
    for _, place, other in sorted(found):
        yield ours[place][0], theirs[other][0]


def _traits(
    side: IndexedGraph, node: Apply, token: Token, partners: Mapping[Apply, Apply] | None
) -> set[Hashable]:
    """What a node reads and is read by, each with the node's own Op, in terms of both sides."""
    loop = scan_op(node)
    own: Hashable = "Scan" if loop is not None else side.op_digest(node.op)
    traits: set[Hashable] = {
        (own, place if loop is None else None, token(variable))
        for place, variable in enumerate(node.inputs)
    }
    for output in node.outputs:
        for reader, place in side.readers.get(output, ())[:_COMMON]:
            known = reader if partners is None else partners.get(reader)
            if known is not None:
                traits.add((own, place, known))
    if loop is not None:
        traits.add((own, "name", op_name(node.op)))
        traits.add((own, "body", side.op_digest(node.op)))
    return traits
