"""Similar nodes, wherever they are: the last resort of matching."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence

from pytensor.graph.basic import Apply

from scanopt_cli.diff.matching.correspondence import Matching
from scanopt_cli.diff.matching.evidence import are_alike
from scanopt_cli.diff.matching.indexed_graph import IndexedGraph, Token
from scanopt_cli.ir.inner_graphs import op_name
from scanopt_cli.ir.scan_view import is_loop, loop_op

# A trait that more nodes share says little, and visiting all of them would be quadratic.
_COMMON = 16


def similar_pairs(
    matching: Matching, nodes: Sequence[Apply], others: Sequence[Apply]
) -> Iterator[tuple[Apply, Apply]]:
    """Yield pairs of nodes of one Op that share at least half of their traits, the best first.

    Two Scans may have different bodies; if they are alike, one shared trait is enough.
    """
    ours = [(node, _traits(matching.first, node, matching.token, matching.nodes)) for node in nodes]
    # On both sides, a matched node is identified by the node of the second side.
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
            if 2 * count >= max(len(traits), len(other_traits)) or (
                is_loop(node) and are_alike(matching, node, counterpart)
            ):
                found.append((-count, place, other))
    for _, place, other in sorted(found):
        yield ours[place][0], theirs[other][0]


def _traits(
    side: IndexedGraph, node: Apply, token: Token, partners: Mapping[Apply, Apply] | None
) -> set[Hashable]:
    """Return what a node reads and what reads it, each with its own Op, comparable across sides."""
    loop = loop_op(node)
    own: Hashable = type(loop).__name__ if loop is not None else side.op_digest(node.op)
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
