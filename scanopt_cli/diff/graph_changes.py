"""Compares two graphs and the bodies of their loops, and collects all changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

from pytensor.graph.basic import Apply

from scanopt_cli.diff.body_diffs import Behind, BodyDiffs, Found, nodes_inside
from scanopt_cli.diff.body_graphs import body_graph, inner_inputs, inner_outputs, output_places
from scanopt_cli.diff.calling import call_alike
from scanopt_cli.diff.changes import Change, ChangeKind, Note, Subject, SubjectKind
from scanopt_cli.diff.edge_changes import entries
from scanopt_cli.diff.grouping import Located, gathered, unnumbered
from scanopt_cli.diff.labels import node_subject, op_text, slot_subject, variable_text
from scanopt_cli.diff.loop_changes import loop_changes
from scanopt_cli.diff.loop_fates import loop_fates
from scanopt_cli.diff.matching.correspondence import Matching
from scanopt_cli.diff.matching.indexed_graph import IndexedGraph, two_sides
from scanopt_cli.diff.matching.match import match
from scanopt_cli.diff.matching.pairing import Pairs
from scanopt_cli.diff.properties import changed_properties, without_text
from scanopt_cli.diff.regions import Edge, Regions, counted, regions
from scanopt_cli.diff.sizes import size_edges
from scanopt_cli.diff.whole_indices import has_another_index, index_edges, index_texts, is_indexing
from scanopt_cli.ir.inner_graphs import body_of, op_name
from scanopt_cli.ir.scan_view import is_loop

# What only the first side has was removed; what only the second side has was added.
_LOST = (ChangeKind.REMOVED, ChangeKind.ADDED)
_SIZES = "sizes"


def compare(
    first: IndexedGraph, second: IndexedGraph, inputs: Pairs, outputs: Pairs, *, swapped: bool
) -> Found:
    """Compare two sides whose paired ``inputs`` and ``outputs`` are places in their lists.

    The caller reports unpaired inputs and outputs.
    """
    matching = match(first, second, inputs, outputs, swapped=swapped)
    call_alike(matching)
    return _GraphComparison(matching, swapped=swapped).run()


@dataclass(frozen=True, slots=True)
class _Lost:
    """A slot or input of a matched node that only one ``side`` has, the first or second.

    ``edge`` identifies it in `Regions`; ``inside`` counts nodes of the body that only it needs.
    """

    side: int
    edge: Edge
    subject: Subject
    inside: Counter[str]


class _GraphComparison:
    """Reports one matching: Ops first, since they report some edges in their own words."""

    def __init__(self, matching: Matching, *, swapped: bool) -> None:
        self._matching = matching
        self._sides = matching.first, matching.second
        self._swapped = swapped
        self._found: list[Located] = []
        self._lost: list[_Lost] = []
        self._bodies = BodyDiffs()
        self._unchanged = 0
        # Edges that a change reports, each with a key for that change.
        self._reported: tuple[dict[Edge, Hashable], dict[Edge, Hashable]] = ({}, {})
        self._sizes: tuple[dict[Edge, int], dict[Edge, int]] = ({}, {})

    def run(self) -> Found:
        matching, reported = self._matching, self._reported
        pairs = [(n, matching.nodes[n]) for n in matching.first.nodes if n in matching.nodes]
        for node, other in pairs:
            self._report_pair(node, other)
        for known, edges in zip(reported, size_edges(matching, self._sizes, reported), strict=True):
            known.update(dict.fromkeys(edges, _SIZES))
        indexed = [node for node, _ in pairs if has_another_index(matching, node, reported)]
        others = [matching.nodes[node] for node in indexed]
        reported[0].update(index_edges(matching.first, indexed, reported[0]))
        reported[1].update(index_edges(matching.second, others, reported[1]))
        groups = self._regions()
        for node in indexed:
            self._report_index(node, groups)
        for lost in self._lost:
            self._report_lost(lost, groups)
        self._found += entries(matching, groups, reported)
        loops = loop_fates(matching, self._found, self._bodies)
        for node, change in self._bodies.changes(matching.first):
            self._add(node, change, (node, change), change.subject)
        return Found(
            tuple(gathered(self._found)),
            (_behind_ends(groups[0]), _behind_ends(groups[1])),
            self._unchanged,
            loops,
        )

    def _report_pair(self, node: Apply, other: Apply) -> None:
        matching = self._matching
        is_same = matching.same_op(node, other)
        if not is_same:
            self._report_op(node, other)
        elif is_loop(node) and not matching.computes_same(node, other):
            self._report_loop(node, other)
        self._report_name(node, other)
        if is_same:
            places = matching.alignments[node].inputs
            pairs = ((node.inputs[place], other.inputs[later]) for place, later in places)
            self._unchanged += nodes_inside(node.op)
            self._unchanged += all(matching.correspond(*pair) for pair in pairs)

    def _regions(self) -> tuple[Regions, Regions]:
        ours, theirs = self._matching.terms()
        ends, others = ({pair[side] for pair in self._matching.outputs} for side in (0, 1))
        return regions(ours, self._reported[0], ends), regions(theirs, self._reported[1], others)

    def _add(self, node: Apply, change: Change, kin: Hashable, subject: Subject) -> None:
        """Record a change at the place of ``node``, which is on either side."""
        side = self._sides[node not in self._sides[0].rank]
        self._found.append(Located(side.rank[node] / len(side.nodes), change, kin, subject))

    def _add_property(self, node: Apply, change: Change, kin: Hashable) -> None:
        what = (change.aspect, change.before, change.after, change.notes)
        self._add(node, change, (kin, *what), change.subject)

    def _lose(
        self, side: int, edge: Edge, subject: Subject, inside: Counter[str] | None = None
    ) -> None:
        """Record that only one side has what ``edge`` feeds, which is reported once all is."""
        self._reported[side][edge] = edge
        self._lost.append(_Lost(side, edge, subject, inside or Counter()))

    def _report_op(self, node: Apply, other: Apply) -> None:
        """Report how two Ops differ, in at least one change."""
        count = len(self._found) + len(self._lost)
        alignment = self._matching.alignments[node]
        subject, kin = node_subject(self._sides[0], node), type(node.op).__name__
        inside: tuple[Change, ...] = ()
        if alignment.slots is not None:
            self._report_loop(node, other)
            inside = self._report_loop_body(node, other, alignment.slots).changes
        elif is_indexing(node) and is_indexing(other):
            for change in changed_properties(subject, node.op, other.op):
                if change.aspect not in ("idx_list", "op"):
                    self._add_property(node, change, kin)
            text, retext = index_texts(self._matching, node)
            if text != retext:
                return
        else:
            self._report_lost_inputs(node, other, alignment.inputs)
            if body_of(node.op) is None or body_of(other.op) is None:
                for change in changed_properties(subject, node.op, other.op):
                    self._add_property(node, change, kin)
            else:
                if type(node.op) is not type(other.op):
                    types = type(node.op).__name__, type(other.op).__name__
                    applied = Change.of_property(subject, "applied by", *types)
                    self._add_property(node, applied, unnumbered(subject))
                inside = self._report_body(node, other, alignment.inputs, alignment.outputs).changes
        if len(self._found) + len(self._lost) == count and not inside:
            self._add_property(node, without_text(subject), kin)

    def _report_loop(self, node: Apply, other: Apply) -> None:
        for change in loop_changes(self._matching, node, other, self._sizes):
            self._add_property(node, change, unnumbered(change.subject))

    def _report_loop_body(self, node: Apply, other: Apply, slots: Pairs) -> Found:
        views = self._sides[0].view(node), self._sides[1].view(other)
        found = self._report_body(
            node, other, inner_inputs(*views, slots), inner_outputs(*views, slots)
        )
        for side, view in enumerate(views):
            kept, behind = {pair[side] for pair in slots}, found.behind[side]
            for slot, ends in enumerate(output_places(view)):
                if slot not in kept:
                    inside = (behind.get(end, Counter()) for end in ends.values())
                    subject = slot_subject(self._sides[side], view.node, slot + 1)
                    self._lose(side, (view.node, slot + 1), subject, sum(inside, Counter()))
        return found

    def _report_lost_inputs(self, node: Apply, other: Apply, pairs: Pairs) -> None:
        for side, holder in enumerate((node, other)):
            kept, graph = {pair[side] for pair in pairs}, self._sides[side]
            for place, variable in enumerate(holder.inputs):
                if place not in kept:
                    subject = node_subject(graph, holder).of(
                        SubjectKind.NODE_INPUT,
                        place=place,
                        variable=variable_text(graph, variable),
                    )
                    self._lose(side, (holder, place), subject)

    def _report_body(self, node: Apply, other: Apply, inputs: Pairs, outputs: Pairs) -> Found:
        first, second = self._sides

        def compare_bodies() -> Found:
            bodies = body_graph(first, node), body_graph(second, other)
            sides = two_sides(*bodies, inputs, self._sides)
            return compare(*sides, inputs, outputs, swapped=self._swapped)

        # Graphs that compare equal may hold zeros of different signs; their digests differ.
        digests = first.op_digest(node.op), second.op_digest(other.op)
        key = (digests, body_of(node.op), body_of(other.op), tuple(inputs), tuple(outputs))
        found = self._bodies.compare(node, key, compare_bodies)
        self._unchanged += found.unchanged
        return found

    def _report_lost(self, lost: _Lost, groups: tuple[Regions, Regions]) -> None:
        inside = counted(Note.WITH_INSIDE, lost.inside)
        notes = (*groups[lost.side].note(lost.edge, Note.WITH), *inside)
        change = Change(kind=_LOST[lost.side], subject=lost.subject, notes=notes)
        self._add(lost.edge[0], change, (unnumbered(lost.subject), notes), lost.subject)

    def _report_index(self, node: Apply, groups: tuple[Regions, Regions]) -> None:
        subject, texts = node_subject(self._sides[0], node), index_texts(self._matching, node)
        other = self._matching.nodes[node]
        notes = (*groups[0].note(node, Note.WITHOUT), *groups[1].note(other, Note.WITH))
        change = Change.of_property(subject, "index", *texts, *notes)
        self._add_property(node, change, type(node.op).__name__)

    def _report_name(self, node: Apply, other: Apply) -> None:
        if node not in self._sides[0].titles or op_name(node.op) == op_name(other.op):
            return
        change = Change(
            kind=ChangeKind.RENAMED,
            subject=Subject(op=op_text(self._sides[0], node)),
            before=op_name(node.op),
            after=op_name(other.op),
        )
        self._add(node, change, (change.before, change.after), change.subject)


def _behind_ends(group: Regions) -> Behind:
    return {
        key[1]: counts
        for key, counts in group.behind.items()
        if isinstance(key, tuple) and key[0] == "end"
    }
