"""What is matched so far: nodes of two graphs, and which variables correspond.

`scanopt_cli.diff.matching.match` computes it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from pytensor.graph.basic import Apply, Variable

from scanopt_cli.diff.matching.indexed_graph import IndexedGraph
from scanopt_cli.diff.matching.pairing import Pairs, flipped


@dataclass(frozen=True, slots=True)
class NodePair:
    """A node before and the ``other`` after, and the pairs of their inputs, outputs and slots.

    ``slots`` is ``None`` unless both are loops.
    """

    node: Apply
    other: Apply
    inputs: Pairs
    outputs: Pairs
    slots: Pairs | None = None

    def inputs_read(self) -> Iterator[tuple[Variable, Variable]]:
        """Yield what the two nodes read at each pair of inputs."""
        for place, other_place in self.inputs:
            yield self.node.inputs[place], self.other.inputs[other_place]

    def outputs_made(self) -> Iterator[tuple[Variable, Variable]]:
        """Yield the paired outputs."""
        for place, other_place in self.outputs:
            yield self.node.outputs[place], self.other.outputs[other_place]

    def flipped(self) -> NodePair:
        """Return the same pair with its sides swapped."""
        slots = None if self.slots is None else flipped(self.slots)
        return NodePair(self.other, self.node, flipped(self.inputs), flipped(self.outputs), slots)


@dataclass(slots=True)
class Matching:
    """Pairs of nodes and of variables of two graphs.

    Attributes
    ----------
    before, after
        The graphs.
    outputs
        Pairs of places in the graphs' lists of outputs.
    pairs
        The pair that a node of either graph is in, if it is matched.
    partners
        The partner of a variable of either graph, if it has one.
    """

    before: IndexedGraph
    after: IndexedGraph
    outputs: Pairs
    pairs: dict[Apply, NodePair] = field(default_factory=dict)
    partners: dict[Variable, Variable] = field(default_factory=dict)

    @property
    def graphs(self) -> tuple[IndexedGraph, IndexedGraph]:
        """Both graphs."""
        return self.before, self.after

    def node_pairs(self) -> list[NodePair]:
        """Return the pairs in the order in which they were found."""
        return [pair for node, pair in self.pairs.items() if node is pair.node]

    def output_variables(self) -> Iterator[tuple[Variable, Variable]]:
        """Yield the variables that are paired outputs of the graphs."""
        for place, other_place in self.outputs:
            yield self.before.outputs[place], self.after.outputs[other_place]

    def link(self, variable: Variable, other: Variable) -> None:
        """Record that two variables are partners."""
        self.partners[variable] = other
        self.partners[other] = variable

    def add(self, pair: NodePair) -> None:
        """Record a pair, or replace how its inputs and outputs are paired."""
        known = self.pairs.get(pair.node)
        for variables in () if known is None else known.outputs_made():
            for variable in variables:
                del self.partners[variable]
        self.pairs[pair.node] = self.pairs[pair.other] = pair
        for variable, other in pair.outputs_made():
            self.link(variable, other)

    def key(self, graph: IndexedGraph, variable: Variable) -> Hashable:
        """Return a key of a variable of ``graph``, equal for variables that correspond so far.

        That is its digest. If it has a partner of another digest, the key of both is the variable
        in the graph after.
        """
        partner = self.partners.get(variable)
        if partner is None:
            return graph.digest(variable)
        pair = (variable, partner) if graph is self.before else (partner, variable)
        return graph.digest(variable) if self.is_equal(*pair) else pair[1]

    def unmatched(self, graph: IndexedGraph) -> list[Apply]:
        """Return the nodes of ``graph`` that are not matched, in their order."""
        return [node for node in graph.nodes if node not in self.pairs]

    def correspond(self, variable: Variable, other: Variable) -> bool:
        """Whether two variables are partners, or compute the same."""
        return self.partners.get(variable) is other or self.is_equal(variable, other)

    def is_equal(self, variable: Variable, other: Variable) -> bool:
        """Whether two variables compute the same from the graph's inputs."""
        return self.before.digest(variable) == self.after.digest(other)

    def is_free(self, node: Apply, other: Apply) -> bool:
        """Whether neither of two nodes is matched."""
        return node not in self.pairs and other not in self.pairs

    def same_op(self, node: Apply, other: Apply) -> bool:
        """Whether two nodes apply Ops that compute the same."""
        return self.before.op_digest(node.op) == self.after.op_digest(other.op)

    def computes_same(self, node: Apply, other: Apply) -> bool:
        """Whether two nodes compute the same from the graph's inputs."""
        return self.before.node_digest(node) == self.after.node_digest(other)

    def flipped(self) -> Matching:
        """Return the same matching with its sides swapped."""
        found = Matching(self.after, self.before, flipped(self.outputs), {}, self.partners)
        for pair in self.node_pairs():
            found.add(pair.flipped())
        return found
