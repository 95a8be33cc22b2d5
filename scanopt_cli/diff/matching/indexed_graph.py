"""One of two graphs that are compared, indexed for matching and for the report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op

from scanopt_cli.analysis.provenance.locating import places
from scanopt_cli.diff.deduplicated import count_loops, deduplicated, node_digest
from scanopt_cli.diff.matching.pairing import Pairs
from scanopt_cli.equivalence.definition import LoopForm
from scanopt_cli.equivalence.digests import Digests
from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.ir.naming import slot_names, titles
from scanopt_cli.ir.scan_view import is_loop, view_of
from scanopt_cli.ir.slots import Slot, SlotView


class IndexedGraph:
    """A graph with its nodes in topological order, the readers and digests of its variables.

    Parameters
    ----------
    graph
        The graph. It is modified: equal nodes are merged, since repetition is no difference.
    digests
        The digests of its variables.
    merges_loops
        Whether equal nodes that hold a graph are merged as well.

    Attributes
    ----------
    titles
        The name of each node that holds a graph.
    written
        Where each loop was written, of those of which that is known.
    copies
        How many nodes of the graph each node stands for.
    inputs, nodes, outputs
        What remains of the graph, nodes in topological order.
    rank, input_rank
        The position of each node, and of each input.
    readers
        Who reads each variable, and at which of its inputs.
    output_positions
        Which outputs of the graph each variable is.
    sameness
        What decides whether two things compute the same.
    """

    def __init__(
        self, graph: FunctionGraph, digests: Digests, *, merges_loops: bool = False
    ) -> None:
        self.inputs: list[Variable] = list(graph.inputs)
        self.sameness = digests.sameness
        self._digests = digests
        known, written = titles(graph.outputs), places(graph)
        merged = deduplicated(graph, digests, loops=merges_loops)
        self.nodes, self.outputs, self.copies = merged.nodes, merged.outputs, merged.copies
        self.titles: Mapping[Apply, str] = {n: known[n] for n in self.nodes if n in known}
        self.written = {node: found.place for node, found in written.items()}
        self.rank = {node: rank for rank, node in enumerate(self.nodes)}
        self.readers: dict[Variable, list[tuple[Apply, int]]] = defaultdict(list)
        for node in self.nodes:
            for position, variable in enumerate(node.inputs):
                self.readers[variable].append((node, position))
        self.output_positions: dict[Variable, list[int]] = defaultdict(list)
        for position, output in enumerate(self.outputs):
            self.output_positions[output].append(position)
        self.input_rank = {variable: position for position, variable in enumerate(self.inputs)}
        self._constants_read: dict[Apply, int] = {}
        self._views: dict[Apply, SlotView] = {}
        self._slot_places: dict[Apply, Mapping[Variable, int]] = {}
        self._slot_names: dict[Apply, Mapping[Slot, str]] = {}

    def digest(self, variable: Variable) -> bytes:
        """Return the digest of ``variable``, equal on both sides for equal computations."""
        return self._digests.of(variable)

    @cached_property
    def digests(self) -> frozenset[bytes]:
        """The digests of all variables that nodes compute."""
        return frozenset(self.digest(v) for node in self.nodes for v in node.outputs)

    def node_digest(self, node: Apply) -> tuple[bytes, ...]:
        """Return the digest of all that ``node`` computes, whatever the order of a loop's slots."""
        return node_digest(self._digests, node)

    def op_digest(self, op: Op) -> bytes:
        """Return the digest of what ``op`` computes, its body included."""
        return self.sameness.of_op(op)

    def constants_read(self, node: Apply) -> int:
        """Return a hash of the constants among the inputs of ``node``, equal on both sides."""
        if node not in self._constants_read:
            read = tuple(self.digest(v) for v in node.inputs if isinstance(v, Constant))
            self._constants_read[node] = hash(read)
        return self._constants_read[node]

    def position(self, node: Apply) -> float:
        """Return where ``node`` is: 0 at the inputs, nearly 1 at the outputs."""
        return self.rank[node] / len(self.nodes)

    def form(self, node: Apply) -> LoopForm:
        """Return the canonical form of the loop of a node."""
        return self.sameness.form(self.view(node).op)

    def view(self, node: Apply) -> SlotView:
        """Return the slots of a loop."""
        if node not in self._views:
            self._views[node] = view_of(node)
        return self._views[node]

    def slot_place(self, variable: Variable) -> int | None:
        """Return the place of the slot of a loop's output among the slots of the loop's view."""
        node = variable.owner
        if node not in self._slot_places:
            self._slot_places[node] = {
                output: place
                for place, slot in enumerate(self.view(node).slots)
                for output in slot.outer_outputs
            }
        return self._slot_places[node].get(variable)

    def of_sorted_slots(self, node: Apply, reads: Sequence[Hashable]) -> Sequence[Hashable]:
        """Return keys of the inputs of ``node``; of a loop, in an order that equal loops share."""
        if not is_loop(node):
            return reads
        slots = self.view(node).slots
        order = [position for position in self.form(node).order if slots[position].has_input]
        return [reads[0], *(reads[position + 1] for position in order)]

    def canonical_output_index(self, variable: Variable) -> Hashable:
        """Return the place of ``variable`` among its node's outputs.

        For a loop, a number for its slot and role, which does not depend on the order of the slots.
        """
        node = variable.owner
        if not is_loop(node):
            return variable.index
        slots, number = self.view(node).slots, self.slot_place(variable)
        if number is None:
            return -1
        rank = self.form(node).ranks[number]
        return rank if slots[number].outer_output is variable else rank + len(slots)

    def slot_names(self, node: Apply) -> Mapping[Slot, str]:
        """Return the names of the slots of a loop."""
        if node not in self._slot_names:
            view = self.view(node)
            names = slot_names(view, lambda variable: self.readers.get(variable, ()))
            self._slot_names[node] = dict(zip(view.slots, names, strict=True))
        return self._slot_names[node]

    def rename_slots(self, node: Apply, names: Mapping[Slot, str]) -> None:
        """Replace the names of the slots of a loop."""
        self._slot_names[node] = names


def two_sides(
    before: FunctionGraph,
    after: FunctionGraph,
    inputs: Pairs,
    around: tuple[IndexedGraph, IndexedGraph] | None = None,
) -> tuple[IndexedGraph, IndexedGraph]:
    """Index both graphs, with digests in which paired ``inputs`` count as the same.

    ``around`` are the sides whose nodes hold the graphs.
    """
    pairs = [(before.inputs[place], after.inputs[other_place]) for place, other_place in inputs]
    paired = {variable for pair in pairs for variable in pair}
    alone, others = ([v for v in g.inputs if v not in paired] for g in (before, after))
    # An unpaired input takes a position that no input of the other side has.
    gap = [variable.type() for variable in alone]
    sameness = (Sameness(), Sameness()) if around is None else [side.sameness for side in around]
    digests = (
        Digests([variable for variable, _ in pairs] + alone, sameness[0]),
        Digests([other for _, other in pairs] + gap + others, sameness[1]),
    )
    counts, distinct = zip(
        count_loops(before, digests[0]), count_loops(after, digests[1]), strict=True
    )
    # Equal loops are merged only if that brings the counts of the two sides closer: each of several
    # may have changed into a different loop.
    merges_loops = abs(distinct[0] - distinct[1]) < abs(counts[0] - counts[1])
    return (
        IndexedGraph(before, digests[0], merges_loops=merges_loops),
        IndexedGraph(after, digests[1], merges_loops=merges_loops),
    )
