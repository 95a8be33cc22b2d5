"""The matching of two graphs: which of their nodes and variables correspond.

`scanopt_cli.diff.matching.match` computes it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from pytensor.graph.basic import Apply, Variable

from scanopt_cli.diff.matching.alignment import Alignment, align
from scanopt_cli.diff.matching.indexed_graph import IndexedGraph, SharedKeys
from scanopt_cli.diff.matching.pairing import Pairs, flipped


@dataclass(slots=True)
class Matching:
    """Pairs of nodes and of variables of two sides.

    ``outputs`` are pairs of places in the graphs' lists of outputs.
    """

    first: IndexedGraph
    second: IndexedGraph
    outputs: Pairs
    nodes: dict[Apply, Apply] = field(default_factory=dict)
    counterparts: dict[Apply, Apply] = field(default_factory=dict)
    alignments: dict[Apply, Alignment] = field(default_factory=dict)
    links: dict[Variable, Variable] = field(default_factory=dict)
    backlinks: dict[Variable, Variable] = field(default_factory=dict)

    def link(self, variable: Variable, other: Variable) -> None:
        """Record that a variable of the second side is the counterpart of one of the first."""
        self.links[variable] = other
        self.backlinks[other] = variable

    def align(self, node: Apply, other: Apply) -> None:
        """Pair the inputs and outputs of two matched nodes, and link the outputs."""
        known = self.alignments.get(node)
        alignment = align(*self.terms(), node, other)
        if known == alignment:
            return
        for place, other_place in () if known is None else known.outputs:
            del self.links[node.outputs[place]], self.backlinks[other.outputs[other_place]]
        self.alignments[node] = alignment
        for place, other_place in alignment.outputs:
            self.link(node.outputs[place], other.outputs[other_place])

    def correspond(self, variable: Variable, other: Variable) -> bool:
        """Whether two variables are linked, or compute the same."""
        return self.links.get(variable) is other or self.is_equal(variable, other)

    def is_equal(self, variable: Variable, other: Variable) -> bool:
        """Whether two variables compute the same from the graph's inputs."""
        return self.first.digest(variable) == self.second.digest(other)

    def terms(self) -> tuple[SharedKeys, SharedKeys]:
        """Return both sides with keys that identify what is matched so far.

        Those of a linked variable and of a matched node are their partners on the second side.
        """

        def token(variable: Variable) -> Hashable:
            digest, linked = self.first.digest(variable), self.links.get(variable)
            return digest if linked is None or self.second.digest(linked) == digest else linked

        def other_token(variable: Variable) -> Hashable:
            digest, linked = self.second.digest(variable), self.backlinks.get(variable)
            return digest if linked is None or self.first.digest(linked) == digest else variable

        def itself(node: Apply) -> Apply | None:
            return node if node in self.counterparts else None

        return (
            SharedKeys(self.first, token, self.nodes.get),
            SharedKeys(self.second, other_token, itself),
        )

    def flipped(self) -> Matching:
        """Return the same matching with its sides swapped."""
        return Matching(
            first=self.second,
            second=self.first,
            outputs=flipped(self.outputs),
            nodes=self.counterparts,
            counterparts=self.nodes,
            alignments={
                self.nodes[node]: alignment.flipped() for node, alignment in self.alignments.items()
            },
            links=self.backlinks,
            backlinks=self.links,
        )

    def is_free(self, node: Apply, other: Apply) -> bool:
        """Whether neither of two nodes is matched."""
        return node not in self.nodes and other not in self.counterparts

    def same_op(self, node: Apply, other: Apply) -> bool:
        """Whether two nodes apply Ops that compute the same."""
        return self.first.op_digest(node.op) == self.second.op_digest(other.op)

    def computes_same(self, node: Apply, other: Apply) -> bool:
        """Whether two nodes compute the same from the graph's inputs."""
        return self.first.node_digest(node) == self.second.node_digest(other)
