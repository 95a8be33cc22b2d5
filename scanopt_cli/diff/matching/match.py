"""Matches the nodes of two graphs.

Equal digests come first: nodes that compute the same match. The remaining nodes are matched by
their neighbours, upstream from the outputs and downstream from the inputs: a node matches one with
an Op of the same digest that makes the corresponding input of a matched node, or reads its output
at the same input. Then come nodes found in this way whose Op changed, and last similar nodes,
wherever they are. Every step is near linear in the size of the graphs.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable

from pytensor.graph.basic import Apply, Variable

from scanopt_cli.diff.matching.correspondence import Matching
from scanopt_cli.diff.matching.evidence import are_alike, by_place_of_reading, fits, similar_pairs
from scanopt_cli.diff.matching.indexed_graph import IndexedGraph
from scanopt_cli.diff.matching.numbering import numbered
from scanopt_cli.diff.matching.pairing import Pairs, flipped, pair_up
from scanopt_cli.equivalence.operands import commutes
from scanopt_cli.ir.inner_graphs import op_name
from scanopt_cli.ir.scan_view import is_loop

# A round starts from the matches of the previous one; unrelated graphs end after the first.
_ROUNDS = 4


def match(
    first: IndexedGraph,
    second: IndexedGraph,
    inputs: Pairs,
    outputs: Pairs,
    *,
    swapped: bool = False,
) -> Matching:
    """Match two graphs whose paired ``inputs`` and ``outputs`` are places in their lists.

    With ``swapped`` the second graph is matched with the first, so that a comparison in the other
    direction finds the same pairs.
    """
    if swapped:
        return match(second, first, flipped(inputs), flipped(outputs)).flipped()
    matcher = _Matcher(Matching(first, second, outputs))
    for place, other in inputs:
        matcher.matching.link(first.inputs[place], second.inputs[other])
    matcher.run(inputs)
    return matcher.matching


class _Matcher:
    """Extends a matching until a round finds nothing more, for at most ``_ROUNDS`` rounds."""

    def __init__(self, matching: Matching) -> None:
        self.matching = matching
        self._first, self._second = matching.first, matching.second
        self._matched: deque[tuple[Apply, Apply]] = deque()
        self._places: deque[tuple[Apply, Apply]] = deque()
        # Pairs at the same place with the same Op, but with no inputs that may correspond.
        self._doubtful: list[tuple[Apply, Apply]] = []
        # Nodes matched with one of several equal nodes: the choice says nothing of their readers.
        self._interchangeable: set[Apply] = set()
        self._shared = self._first.digests & self._second.digests

    def run(self, inputs: Pairs) -> None:
        self._match_equal()
        self._look_around_inputs(inputs)
        self._settle(up=False)
        self._match_loops()
        for _ in range(_ROUNDS):
            count = len(self.matching.nodes)
            self._matched.extend(self.matching.nodes.items())
            self._look_around_inputs(inputs)
            for place, other in self.matching.outputs:
                outputs = self._first.outputs, self._second.outputs
                self._look_up(outputs[0][place], outputs[1][other])
            self._settle()
            self._match_values()
            self._match_changed()
            self._match_values()
            self._match_all(similar_pairs(self.matching))
            self._match_all(self._doubtful)
            self._doubtful.clear()
            if len(self.matching.nodes) in (count, len(self._first.nodes)):
                break
        for node, partner in self.matching.nodes.items():
            if commutes(node) or is_loop(node):
                # More nodes are matched now than when these two were aligned.
                self.matching.align(node, partner)

    def _match(self, node: Apply, other: Apply) -> None:
        matching = self.matching
        matching.nodes[node] = other
        matching.counterparts[other] = node
        matching.align(node, other)
        self._matched.append((node, other))

    def _match_all(self, pairs: Iterable[tuple[Apply, Apply]]) -> None:
        for node, other in pairs:
            if self.matching.is_free(node, other):
                self._match(node, other)
        self._settle()

    def _match_equal(self) -> None:
        """Match nodes that compute the same and are the only such nodes on their side."""
        sides = self._first, self._second
        digests = [[side.node_digest(node) for node in side.nodes] for side in sides]
        for place, other in pair_up(digests):
            self._match(self._first.nodes[place], self._second.nodes[other])

    def _match_values(self) -> None:
        """Match nodes that compute the same if matched nodes are taken to be equal."""
        numbers: dict[Hashable, int] = {}
        ours, theirs = (numbered(keys, self._shared, numbers) for keys in self.matching.terms())
        groups: dict[int, deque[Apply]] = defaultdict(deque)
        for node, number in theirs:
            groups[number].append(node)
        repeated = {number for number, nodes in groups.items() if len(nodes) > 1}
        for node, number in list(ours):
            if groups.get(number):
                if number in repeated:
                    self._interchangeable.add(node)
                self._match(node, groups[number].popleft())
        self._settle()

    def _match_loops(self) -> None:
        """Match nodes that hold a graph, by name: there are few, and other matches follow."""
        ours, theirs = (
            [node for node in keys.side.titles if keys.partner(node) is None]
            for keys in self.matching.terms()
        )
        names = [[op_name(node.op) for node in nodes] for nodes in (ours, theirs)]
        digests = [
            [side.op_digest(node.op) for node in nodes]
            for side, nodes in ((self._first, ours), (self._second, theirs))
        ]
        same = [list(zip(*both, strict=True)) for both in zip(digests, names, strict=True)]
        for place, other in pair_up(same, names):
            if are_alike(self.matching, ours[place], theirs[other]):
                self._match(ours[place], theirs[other])
                # The readers of this loop feed the next one, and distinguish its slots.
                self._settle(up=False)

    def _match_changed(self) -> None:
        """Match nodes at the same place whose Op changed."""
        while self._places:
            node, other = self._places.popleft()
            if not self.matching.is_free(node, other):
                continue
            if are_alike(self.matching, node, other):
                self._match(node, other)
                self._settle()
            elif self.matching.same_op(node, other):
                self._doubtful.append((node, other))

    def _settle(self, *, up: bool = True) -> None:
        """Match the neighbours of every new pair that have an Op of the same digest.

        Without ``up``, only its readers.
        """
        while self._matched:
            node, other = self._matched.popleft()
            alignment = self.matching.alignments[node]
            vague = node in self._interchangeable
            for place, other_place in alignment.inputs if up else ():
                self._look_up(node.inputs[place], other.inputs[other_place])
            for place, other_place in () if vague else alignment.outputs:
                self._look_down(node.outputs[place], other.outputs[other_place])

    def _look_around_inputs(self, inputs: Pairs) -> None:
        ours, theirs = self._first.inputs, self._second.inputs
        for place, other in inputs:
            self._look_down(ours[place], theirs[other])

    def _look_up(self, variable: Variable, other: Variable) -> None:
        """Match the makers of two variables at the same place."""
        node, maker = variable.owner, other.owner
        if node is None or maker is None or not self.matching.is_free(node, maker):
            return
        is_slot = is_loop(node) and is_loop(maker)
        if not is_slot and variable.index != other.index:
            return
        if self.matching.same_op(node, maker) and are_alike(self.matching, node, maker):
            self._match(node, maker)
        else:
            self._places.append((node, maker))

    def _look_down(self, variable: Variable, other: Variable) -> None:
        """Match readers of two variables that are the only such readers on both sides."""
        ours, theirs = self._first.readers.get(variable, ()), self._second.readers.get(other, ())
        for constants in (True, False):
            free = [reader for reader in ours if reader[0] not in self.matching.nodes]
            if not free:
                return
            unmatched = [reader for reader in theirs if reader[0] not in self.matching.counterparts]
            groups = by_place_of_reading(self._second, unmatched, constants=constants)
            for key, readers in by_place_of_reading(self._first, free, constants=constants).items():
                others = groups.get(key, ())
                if len(readers) == len(others) == 1:
                    (node, place), (reader, _) = readers[0], others[0]
                    if fits(self.matching, node, reader, place):
                        self._match(node, reader)
