"""Matches the nodes of two graphs, in the stages that the package names.

The walk matches two nodes with Ops of one digest that make corresponding inputs of matched nodes,
or read partners at the same input. Every stage is near linear in the size of the graphs.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Sequence

from pytensor.graph.basic import Apply, Variable

from scanopt_cli.diff.deduplicated import node_key
from scanopt_cli.diff.matching.alignment import align
from scanopt_cli.diff.matching.correspondence import Matching, NodePair
from scanopt_cli.diff.matching.evidence import (
    are_alike,
    fits_as_reader,
    grouped_readers,
    similar_pairs,
)
from scanopt_cli.diff.matching.indexed_graph import IndexedGraph
from scanopt_cli.diff.matching.pairing import Pairs, flipped, pair_up
from scanopt_cli.equivalence.operands import commutes
from scanopt_cli.ir.inner_graphs import op_name
from scanopt_cli.ir.scan_view import is_loop

# A round starts from the matches of the previous one; unrelated graphs end after the first.
_ROUNDS = 4


def match(
    before: IndexedGraph,
    after: IndexedGraph,
    inputs: Pairs,
    outputs: Pairs,
    *,
    swapped: bool = False,
) -> Matching:
    """Match two graphs whose paired ``inputs`` and ``outputs`` are positions in their lists.

    With ``swapped`` the graph after is matched with the one before, so that a comparison in the
    other direction finds the same pairs.
    """
    if swapped:
        return match(after, before, flipped(inputs), flipped(outputs)).flipped()
    matching = Matching(before, after, outputs)
    linked = [(before.inputs[place], after.inputs[other_place]) for place, other_place in inputs]
    for variable, other in linked:
        matching.link(variable, other)
    _Matcher(matching, linked).run()
    return matching


class _Matcher:
    """Extends a matching until a round finds nothing more, for at most ``_ROUNDS`` rounds."""

    def __init__(self, matching: Matching, inputs: Sequence[tuple[Variable, Variable]]) -> None:
        self.matching = matching
        self._inputs = inputs
        # Pairs whose neighbours are still to be visited.
        self._waiting: deque[NodePair] = deque()
        # Pairs that the walk came to and did not match.
        self._changed: deque[tuple[Apply, Apply]] = deque()
        # Those of `_changed` that have one Op but are not alike; they are matched last.
        self._doubtful: list[tuple[Apply, Apply]] = []
        # Nodes matched with one of several equal nodes: the walk does not go down from them.
        self._interchangeable: set[Apply] = set()

    def run(self) -> None:
        matching = self.matching
        self._match_equal()
        self._walk_from_ends(up=False)
        self._match_holders()
        for _ in range(_ROUNDS):
            count = len(matching.pairs)
            self._waiting.extend(matching.node_pairs())
            self._walk_from_ends()
            self._match_values()
            self._match_changed()
            self._match_values()
            self._match_all(similar_pairs(matching))
            self._match_all(self._doubtful)
            self._doubtful.clear()
            is_complete = not matching.unmatched(matching.before)
            if is_complete or len(matching.pairs) == count:
                break
        for pair in matching.node_pairs():
            if commutes(pair.node) or is_loop(pair.node):
                # More nodes are matched now than when these two were aligned.
                matching.add(align(matching, pair.node, pair.other))

    def _match(self, node: Apply, other: Apply) -> None:
        pair = align(self.matching, node, other)
        self.matching.add(pair)
        self._waiting.append(pair)

    def _match_all(self, pairs: Iterable[tuple[Apply, Apply]]) -> None:
        for node, other in pairs:
            if self.matching.is_free(node, other):
                self._match(node, other)
        self._walk()

    def _match_equal(self) -> None:
        """Match nodes that compute the same and are the only such nodes on their side."""
        before, after = self.matching.graphs
        digests = [[graph.node_digest(node) for node in graph.nodes] for graph in (before, after)]
        for position, other_position in pair_up(digests):
            self._match(before.nodes[position], after.nodes[other_position])

    def _match_values(self) -> None:
        """Match nodes that compute the same if matched nodes are taken to be equal."""
        numbers, other_numbers = _value_numbers(self.matching)
        groups: dict[int, deque[Apply]] = defaultdict(deque)
        for other, number in other_numbers.items():
            groups[number].append(other)
        repeated = {number for number, others in groups.items() if len(others) > 1}
        for node, number in numbers.items():
            if groups.get(number):
                if number in repeated:
                    self._interchangeable.add(node)
                self._match(node, groups[number].popleft())
        self._walk()

    def _match_holders(self) -> None:
        """Match nodes that hold a graph, by name: there are few, and other matches follow."""
        graphs = self.matching.graphs
        holders = [[n for n in g.titles if n not in self.matching.pairs] for g in graphs]
        names = [[op_name(node.op) for node in nodes] for nodes in holders]
        same = [
            [(graph.op_digest(node.op), op_name(node.op)) for node in nodes]
            for graph, nodes in zip(graphs, holders, strict=True)
        ]
        for position, other_position in pair_up(same, names):
            node, other = holders[0][position], holders[1][other_position]
            if are_alike(self.matching, node, other):
                self._match(node, other)
                # The readers of this loop feed the next one, and distinguish its slots.
                self._walk(up=False)

    def _match_changed(self) -> None:
        """Match nodes that the walk came to and whose Op changed."""
        while self._changed:
            node, other = self._changed.popleft()
            if not self.matching.is_free(node, other):
                continue
            if are_alike(self.matching, node, other):
                self._match(node, other)
                self._walk()
            elif self.matching.same_op(node, other):
                self._doubtful.append((node, other))

    def _walk_from_ends(self, *, up: bool = True) -> None:
        """Walk from the paired inputs and outputs of the graphs, and from all waiting pairs."""
        for variable, other in self._inputs:
            self._look_down(variable, other)
        for variable, other in self.matching.output_variables() if up else ():
            self._look_up(variable, other)
        self._walk(up=up)

    def _walk(self, *, up: bool = True) -> None:
        """Match the neighbours of every waiting pair, and their neighbours, if their Ops are equal.

        Without ``up``, only readers.
        """
        while self._waiting:
            pair = self._waiting.popleft()
            for variable, other in pair.inputs_read() if up else ():
                self._look_up(variable, other)
            if pair.node not in self._interchangeable:
                for variable, other in pair.outputs_made():
                    self._look_down(variable, other)

    def _look_up(self, variable: Variable, other: Variable) -> None:
        """Match the makers of two variables that matched nodes read.

        If they are not alike, or their Ops differ, they wait for `_match_changed`.
        """
        maker, other_maker = variable.owner, other.owner
        if maker is None or other_maker is None or not self.matching.is_free(maker, other_maker):
            return
        are_loops = is_loop(maker) and is_loop(other_maker)
        if not are_loops and variable.index != other.index:
            return
        is_one_op = self.matching.same_op(maker, other_maker)
        if is_one_op and are_alike(self.matching, maker, other_maker):
            self._match(maker, other_maker)
        else:
            self._changed.append((maker, other_maker))

    def _look_down(self, variable: Variable, other: Variable) -> None:
        """Match readers of two variables that are the only such readers on both sides."""
        matching = self.matching
        for constants in (True, False):
            free = [
                [
                    reader
                    for reader in graph.readers.get(read, ())
                    if reader[0] not in matching.pairs
                ]
                for graph, read in zip(matching.graphs, (variable, other), strict=True)
            ]
            if not all(free):
                return
            groups, others = (
                grouped_readers(graph, readers, constants=constants)
                for graph, readers in zip(matching.graphs, free, strict=True)
            )
            for key, readers in groups.items():
                if len(readers) == len(others.get(key, ())) == 1:
                    (node, place), (reader, _) = readers[0], others[key][0]
                    if fits_as_reader(matching, node, reader, place):
                        self._match(node, reader)


def _value_numbers(matching: Matching) -> list[dict[Apply, int]]:
    """Number the unmatched nodes of both graphs, as if matched nodes were equal.

    Nodes have equal numbers if they apply equal Ops to equal inputs.
    """
    numbers: dict[Hashable, int] = {}
    shared = matching.before.digests & matching.after.digests

    def numbered(graph: IndexedGraph) -> dict[Apply, int]:
        own: dict[Apply, int] = {}

        def key(variable: Variable) -> Hashable:
            maker = variable.owner
            # What both graphs compute has the same key in both already.
            if maker in own and graph.digest(variable) not in shared:
                return own[maker], graph.canonical_output_index(variable)
            return matching.key(graph, variable)

        for node in matching.unmatched(graph):
            reads = graph.of_sorted_slots(node, list(map(key, node.inputs)))
            content = node_key(graph.op_digest(node.op), node, reads)
            own[node] = numbers.setdefault(content, len(numbers))
        return own

    return [numbered(graph) for graph in matching.graphs]
