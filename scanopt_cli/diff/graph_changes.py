"""Compares two graphs and the bodies of their loops, and collects all changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

from pytensor.graph.basic import Apply

from scanopt_cli.diff.body_diffs import Behind, BodyDiffs, Found, Known, nodes_inside
from scanopt_cli.diff.body_graphs import body_graph, inner_names, inner_pairs, output_places
from scanopt_cli.diff.changes import ONLY_IN, Change, ChangeKind, Note, Subject, SubjectKind
from scanopt_cli.diff.edge_changes import entries
from scanopt_cli.diff.grouping import Located, gathered, unnumbered
from scanopt_cli.diff.labels import node_subject, op_text, slot_subject, variable_text
from scanopt_cli.diff.loop_changes import loop_changes
from scanopt_cli.diff.loop_fates import changes_apart, loop_fates
from scanopt_cli.diff.matching.correspondence import Matching, NodePair
from scanopt_cli.diff.matching.indexed_graph import IndexedGraph, two_sides
from scanopt_cli.diff.matching.match import match
from scanopt_cli.diff.matching.pairing import Pairs
from scanopt_cli.diff.properties import changed_properties, without_text
from scanopt_cli.diff.regions import Edge, Regions, counted, regions
from scanopt_cli.diff.shared_names import share_names
from scanopt_cli.diff.sizes import size_edges
from scanopt_cli.diff.whole_indices import has_another_index, index_edges, index_texts, is_indexing
from scanopt_cli.ir.inner_graphs import body_of, op_name
from scanopt_cli.ir.scan_view import is_loop

_SIZES = "sizes"


def compare(
    before: IndexedGraph,
    after: IndexedGraph,
    inputs: Pairs,
    outputs: Pairs,
    *,
    swapped: bool,
    known: Known | None = None,
) -> Found:
    """Compare two graphs whose paired ``inputs`` and ``outputs`` are places in their lists.

    The caller reports unpaired inputs and outputs. ``known`` is what was found in bodies before.
    """
    matching = match(before, after, inputs, outputs, swapped=swapped)
    share_names(matching)
    return _GraphComparison(matching, Known() if known is None else known, swapped=swapped).run()


@dataclass(frozen=True, slots=True)
class _Lost:
    """A slot or input of a matched node that only one ``side`` has, 0 before or 1 after.

    ``edge`` identifies it in `Regions`; ``inside`` counts nodes of the body that only it needs.
    """

    side: int
    edge: Edge
    subject: Subject
    inside: Counter[str]


class _GraphComparison:
    """Reports one matching: Ops first, since they report some edges in their own words."""

    def __init__(self, matching: Matching, known: Known, *, swapped: bool) -> None:
        self._matching = matching
        self._sides = matching.graphs
        self._swapped = swapped
        self._found: list[Located] = []
        self._lost: list[_Lost] = []
        self._known = known
        self._bodies = BodyDiffs(known)
        self._unchanged = 0
        # Edges that a change reports, each with a key for that change.
        self._reported: tuple[dict[Edge, Hashable], dict[Edge, Hashable]] = ({}, {})
        self._sizes: tuple[dict[Edge, int], dict[Edge, int]] = ({}, {})

    def run(self) -> Found:
        matching, reported = self._matching, self._reported
        pairs = [matching.pairs[node] for node in matching.before.nodes if node in matching.pairs]
        for pair in pairs:
            self._report_pair(pair)
        for known, edges in zip(reported, size_edges(matching, self._sizes, reported), strict=True):
            known.update(dict.fromkeys(edges, _SIZES))
        indexed = [pair for pair in pairs if has_another_index(matching, pair, reported)]
        nodes = [pair.node for pair in indexed], [pair.other for pair in indexed]
        for graph, known, those in zip(self._sides, reported, nodes, strict=True):
            known.update(index_edges(graph, those, known))
        groups = regions(matching, 0, reported[0]), regions(matching, 1, reported[1])
        for pair in indexed:
            self._report_index(pair, groups)
        for lost in self._lost:
            self._report_lost(lost, groups)
        self._found += entries(matching, groups, reported)
        inside = dict(self._bodies.inside(matching.before))
        loops = loop_fates(matching, self._found, self._bodies, inside)
        return Found(
            tuple(gathered(self._found)),
            tuple(inside[node] for node in sorted(inside, key=matching.before.position)),
            (_behind_ends(groups[0]), _behind_ends(groups[1])),
            self._unchanged,
            loops,
            changes_apart(self._found, loops),
        )

    def _report_pair(self, pair: NodePair) -> None:
        matching, node, other = self._matching, pair.node, pair.other
        if not matching.same_op(node, other):
            self._report_op(pair)
        else:
            if is_loop(node) and not matching.computes_same(node, other):
                self._report_loop(pair)
            self._unchanged += nodes_inside(node.op)
            self._unchanged += all(matching.correspond(*read) for read in pair.inputs_read())
        self._report_name(node, other)

    def _add(self, node: Apply, change: Change, merged_by: Hashable) -> None:
        """Record a change at ``node``, which is on either side."""
        side = self._sides[node not in self._sides[0].rank]
        self._found.append(Located(side.position(node), change, merged_by, change.subject))

    def _add_property(self, node: Apply, change: Change, merged_by: Hashable) -> None:
        what = (change.aspect, change.before, change.after, change.notes)
        self._add(node, change, (merged_by, *what))

    def _lose(
        self, side: int, edge: Edge, subject: Subject, inside: Counter[str] | None = None
    ) -> None:
        """Record that only one side has what ``edge`` feeds, which is reported once all is."""
        self._reported[side][edge] = edge
        self._lost.append(_Lost(side, edge, subject, inside or Counter()))

    def _report_op(self, pair: NodePair) -> None:
        """Report how two Ops differ, in at least one change."""
        node, other = pair.node, pair.other
        count = len(self._found) + len(self._lost)
        subject, op_class = node_subject(self._sides[0], node), type(node.op).__name__
        is_inside = False
        if pair.slots is not None:
            self._report_loop(pair)
            is_inside = not self._report_loop_body(node, other, pair.slots).is_empty
        elif is_indexing(node) and is_indexing(other):
            for change in changed_properties(subject, node.op, other.op):
                if change.aspect not in ("idx_list", "op"):
                    self._add_property(node, change, op_class)
            text, retext = index_texts(self._matching, pair)
            if text != retext:
                return
        else:
            self._report_lost_inputs(pair)
            if body_of(node.op) is None or body_of(other.op) is None:
                for change in changed_properties(subject, node.op, other.op):
                    self._add_property(node, change, op_class)
            else:
                if type(node.op) is not type(other.op):
                    types = type(node.op).__name__, type(other.op).__name__
                    applied = Change.of_property(subject, "applied by", *types)
                    self._add_property(node, applied, unnumbered(subject))
                found = self._report_body(node, other, pair.inputs, pair.outputs)
                is_inside = not found.is_empty
        if len(self._found) + len(self._lost) == count and not is_inside:
            self._add_property(node, without_text(subject), op_class)

    def _report_loop(self, pair: NodePair) -> None:
        for change in loop_changes(self._matching, pair, self._sizes):
            self._add_property(pair.node, change, unnumbered(change.subject))

    def _report_loop_body(self, node: Apply, other: Apply, slots: Pairs) -> Found:
        views = self._sides[0].view(node), self._sides[1].view(other)
        found = self._report_body(node, other, *inner_pairs(*views, slots))
        for side, view in enumerate(views):
            kept, behind = {pair[side] for pair in slots}, found.behind[side]
            for slot, ends in enumerate(output_places(view)):
                if slot not in kept:
                    inside = (behind.get(end, Counter()) for end in ends.values())
                    subject = slot_subject(self._sides[side], view.node, slot + 1)
                    self._lose(side, (view.node, slot + 1), subject, sum(inside, Counter()))
        return found

    def _report_lost_inputs(self, pair: NodePair) -> None:
        for side, holder in enumerate((pair.node, pair.other)):
            kept, graph = {places[side] for places in pair.inputs}, self._sides[side]
            for place, variable in enumerate(holder.inputs):
                if place not in kept:
                    subject = node_subject(graph, holder).of(
                        SubjectKind.NODE_INPUT,
                        place=place,
                        variable=variable_text(graph, variable),
                    )
                    self._lose(side, (holder, place), subject)

    def _report_body(self, node: Apply, other: Apply, inputs: Pairs, outputs: Pairs) -> Found:
        before, after = self._sides

        def compare_bodies() -> Found:
            bodies = body_graph(before, node), body_graph(after, other)
            sides = two_sides(*bodies, inputs, self._sides)
            return compare(*sides, inputs, outputs, swapped=self._swapped, known=self._known)

        # Graphs that compare equal may hold zeros of different signs; their digests differ.
        digests = before.op_digest(node.op), after.op_digest(other.op)
        key = (digests, body_of(node.op), body_of(other.op), tuple(inputs), tuple(outputs))
        names = (*inner_names(before, node),), (*inner_names(after, other),)
        found = self._bodies.compare(node, key, names, compare_bodies)
        self._unchanged += found.unchanged
        return found

    def _report_lost(self, lost: _Lost, groups: tuple[Regions, Regions]) -> None:
        inside = counted(Note.WITH_INSIDE, lost.inside)
        notes = (*groups[lost.side].note(lost.edge, Note.WITH), *inside)
        change = Change(kind=ONLY_IN[lost.side], subject=lost.subject, notes=notes)
        self._add(lost.edge[0], change, (unnumbered(lost.subject), notes))

    def _report_index(self, pair: NodePair, groups: tuple[Regions, Regions]) -> None:
        node, texts = pair.node, index_texts(self._matching, pair)
        notes = (*groups[0].note(node, Note.WITHOUT), *groups[1].note(pair.other, Note.WITH))
        change = Change.of_property(node_subject(self._sides[0], node), "index", *texts, *notes)
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
        self._add(node, change, (change.before, change.after))


def _behind_ends(group: Regions) -> Behind:
    return {
        key[1]: counts
        for key, counts in group.behind.items()
        if isinstance(key, tuple) and key[0] == "end"
    }
