"""Two graphs side by side, and the bodies of their loops: everything that changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from pytensor.graph.basic import Apply
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from scanopt_cli.diffing.edges import rewirings
from scanopt_cli.diffing.entries import Placed, entries
from scanopt_cli.diffing.inner import body_graph
from scanopt_cli.diffing.loops import LoopChange, Property, Told, loop_change
from scanopt_cli.diffing.matcher import match
from scanopt_cli.diffing.matching import Matching
from scanopt_cli.diffing.properties import UNTOLD, changed_properties
from scanopt_cli.diffing.regions import Edge, Regions, regions, summary
from scanopt_cli.diffing.result import Change, ChangeKind
from scanopt_cli.diffing.sides import Pairs, Side, op_name, two_sides
from scanopt_cli.diffing.sizes import size_edges
from scanopt_cli.diffing.slots import inner_inputs, inner_outputs, output_places
from scanopt_cli.diffing.wording import (
    face_text,
    index_text,
    is_conversion,
    node_text,
    op_text,
    variable_text,
)
from scanopt_cli.graphs.bodies import body_of
from scanopt_cli.scans.view import scan_op

type Behind = Mapping[int, Counter[str]]
"""Nodes, counted by Op, that only feed an output which only one side has: by its place."""


# What a side alone has was removed if it is the first, added if it is the second.
_LOST = (ChangeKind.REMOVED, ChangeKind.ADDED)
_SIZES = "sizes"


@dataclass(frozen=True, slots=True)
class Settings:
    """How to compare.

    ``names`` tells what was only renamed. ``swapped`` matches the second graph with the first: with
    it, a comparison the other way round finds the same pairs.
    """

    names: bool = False
    swapped: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """The changes of one graph and its bodies, and what is left behind for its holder to tell."""

    changes: tuple[Change, ...]
    behind: tuple[Behind, Behind]


def compare(
    first: Side,
    second: Side,
    inputs: Pairs,
    outputs: Pairs,
    settings: Settings,
    where: tuple[str, ...] = (),
) -> Found:
    """Compare two sides whose paired ``inputs`` and ``outputs`` are places in their lists.

    Inputs and outputs that are left over are for the caller to tell.
    """
    if settings.swapped:
        matching = match(second, first, _flipped(inputs), _flipped(outputs)).flipped()
    else:
        matching = match(first, second, inputs, outputs)
    return _Comparison(matching, settings, where).run()


@dataclass(frozen=True, slots=True)
class _Lost:
    """A slot, input or output of a matched node that only one side has.

    ``key`` is what regions know it by; ``inside`` counts nodes of the body that only it needs.
    """

    kind: ChangeKind
    node: Apply
    what: str
    key: Hashable
    inside: Counter[str]


class _Comparison:
    """The telling of one matching: Ops first, since they tell of some edges in their own words."""

    def __init__(self, matching: Matching, settings: Settings, where: tuple[str, ...]) -> None:
        self._matching = matching
        self._sides = matching.first, matching.second
        self._settings = settings
        self._where = where
        self._changes: list[Placed] = []
        self._lost: list[_Lost] = []
        self._told: tuple[Told, Told] = ({}, {})
        self._sizes: tuple[dict[Edge, int], dict[Edge, int]] = ({}, {})

    def run(self) -> Found:
        matching, told = self._matching, self._told
        pairs = [(n, matching.nodes[n]) for n in matching.first.nodes if n in matching.nodes]
        for node, other in pairs:
            if not matching.same_op(node, other):
                self._tell_op(node, other)
            elif scan_op(node) is not None and not matching.computes_same(node, other):
                self._tell_loop(node, other)
            if self._settings.names:
                self._tell_name(node, other)
        for known, edges in zip(told, size_edges(matching, self._sizes), strict=True):
            known.update(dict.fromkeys(edges, _SIZES))
        indexed = [pair for pair in pairs if self._has_another_index(*pair)]
        for node, other in indexed:
            told[0].update(dict.fromkeys(index_edges(matching.first, node), node))
            told[1].update(dict.fromkeys(index_edges(matching.second, other), other))
        groups = self._regions()
        for node, other in indexed:
            self._tell_index(node, other, groups)
        for lost in self._lost:
            self._tell_lost(lost, groups)
        self._changes += entries(matching, groups, rewirings(matching, told), self._where)
        self._changes.sort(key=lambda placed: placed[0])
        return Found(
            tuple(change for _, change in self._changes),
            (_behind_ends(groups[0]), _behind_ends(groups[1])),
        )

    def _regions(self) -> tuple[Regions, Regions]:
        matching = self._matching
        alone = [node for node in matching.first.nodes if node not in matching.nodes]
        others = [node for node in matching.second.nodes if node not in matching.counterparts]
        ends, later = ({pair[place] for pair in matching.outputs} for place in (0, 1))
        return (
            regions(matching.first, set(alone), self._told[0], ends),
            regions(matching.second, set(others), self._told[1], later),
        )

    def _add(self, node: Apply, change: Change) -> None:
        """Put a change where ``node`` of either side is."""
        side = self._sides[node not in self._sides[0].rank]
        self._changes.append((side.rank[node] / len(side.nodes), change))

    def _property(self, node: Apply, told: Property, details: tuple[str, ...] = ()) -> None:
        change = Change(
            kind=ChangeKind.CHANGED,
            where=self._where,
            what=told.what,
            aspect=told.aspect,
            before=told.before,
            after=told.after,
            details=details,
        )
        self._add(node, change)

    def _tell_op(self, node: Apply, other: Apply) -> None:
        """Tell how two Ops differ, in one change at least."""
        count = len(self._changes) + len(self._lost)
        alignment = self._matching.alignments[node]
        what = node_text(self._sides[0], node)
        if alignment.slots is not None:
            change = self._tell_loop(node, other)
            self._tell_loop_body(node, other, change, alignment.slots)
        elif _is_indexing(node) and _is_indexing(other):
            properties = changed_properties(node.op, other.op)
            for told in properties:
                if told[0] not in ("idx_list", "op"):
                    self._property(node, Property(what, *told))
            if self._index_texts(node, other)[0] != self._index_texts(node, other)[1]:
                return
        else:
            self._note_lost_inputs(node, other, alignment.inputs)
            if body_of(node.op) is None or body_of(other.op) is None:
                for told in changed_properties(node.op, other.op):
                    self._property(node, Property(what, *told))
            else:
                if type(node.op) is not type(other.op):
                    types = type(node.op).__name__, type(other.op).__name__
                    self._property(node, Property(what, "applied by", *types))
                self._tell_body(node, other, alignment.inputs, alignment.outputs)
        if len(self._changes) + len(self._lost) == count:
            self._property(node, Property(what, *UNTOLD))

    def _tell_loop(self, node: Apply, other: Apply) -> LoopChange:
        alignment = self._matching.alignments[node]
        change = loop_change(self._matching, node, other, alignment)
        for told in change.properties:
            self._property(node, told)
        for place in (0, 1):
            self._told[place].update(change.told[place])
            self._sizes[place].update(change.sizes[place])
        return change

    def _tell_loop_body(self, node: Apply, other: Apply, change: LoopChange, slots: Pairs) -> None:
        views = self._sides[0].view(node), self._sides[1].view(other)
        behind = self._tell_body(
            node, other, inner_inputs(*views, slots), inner_outputs(*views, slots)
        )
        for place, (holder, lost) in enumerate(((node, change.dropped), (other, change.added))):
            side = self._sides[place]
            ends = output_places(views[place])
            for slot in lost:
                inside = (behind[place].get(end, Counter()) for end in ends[slot].values())
                what = f"{face_text(side, holder, slot + 1)} of {op_text(side, holder)}"
                kind = _LOST[place]
                self._lost.append(_Lost(kind, holder, what, (holder, slot), sum(inside, Counter())))

    def _tell_body(
        self, node: Apply, other: Apply, inputs: Pairs, outputs: Pairs
    ) -> tuple[Behind, Behind]:
        first, second = self._sides
        label, relabel = first.loop_labels[node], second.loop_labels[other]
        where = label if label == relabel else f"{label} → {relabel}"
        bodies = body_graph(first, node), body_graph(second, other)
        sides = two_sides(*bodies, inputs)
        found = compare(*sides, inputs, outputs, self._settings, (*self._where, where))
        for change in found.changes:
            self._add(node, change)
        return found.behind

    def _note_lost_inputs(self, node: Apply, other: Apply, pairs: Pairs) -> None:
        for side, (holder, kept) in enumerate(
            ((node, {pair[0] for pair in pairs}), (other, {pair[1] for pair in pairs}))
        ):
            for place, variable in enumerate(holder.inputs):
                if place not in kept:
                    text = variable_text(self._sides[side], variable)
                    what = f"input {place} of {node_text(self._sides[side], holder)}: {text}"
                    key = (holder, place)
                    self._told[side][holder, place] = key
                    self._lost.append(_Lost(_LOST[side], holder, what, key, Counter()))

    def _tell_lost(self, lost: _Lost, groups: tuple[Regions, Regions]) -> None:
        side = _LOST.index(lost.kind)
        inside = (f"with {summary(lost.inside)} inside",) if lost.inside else ()
        change = Change(
            kind=lost.kind,
            where=self._where,
            what=lost.what,
            details=(*groups[side].text(lost.key, "with"), *inside),
        )
        self._add(lost.node, change)

    def _has_another_index(self, node: Apply, other: Apply) -> bool:
        """Whether two matched nodes take another index, told as a whole."""
        if not (_is_indexing(node) and _is_indexing(other)):
            return False
        text, retext = self._index_texts(node, other)
        if text == retext or not self._matching.same_op(node, other):
            return text != retext
        matching = self._matching
        edges = {*index_edges(self._sides[0], node)} - self._told[0].keys()
        later = {*index_edges(self._sides[1], other)} - self._told[1].keys()
        pairs = {(n, matching.nodes[n], place) for n, place in edges if n in matching.nodes}
        pairs |= {
            (matching.counterparts[n], n, place) for n, place in later if n in matching.counterparts
        }
        return any(not matching.correspond(n.inputs[p], o.inputs[p]) for n, o, p in pairs)

    def _index_texts(self, node: Apply, other: Apply) -> tuple[str, str]:
        return index_text(self._sides[0], node), index_text(self._sides[1], other)

    def _tell_index(self, node: Apply, other: Apply, groups: tuple[Regions, Regions]) -> None:
        what = node_text(self._sides[0], node)
        told = Property(what, "index", *self._index_texts(node, other))
        details = (*groups[0].text(node, "without"), *groups[1].text(other, "with"))
        self._property(node, told, details)

    def _tell_name(self, node: Apply, other: Apply) -> None:
        if node in self._sides[0].loop_labels and op_name(node.op) != op_name(other.op):
            change = Change(
                kind=ChangeKind.RENAMED,
                where=self._where,
                what=op_text(self._sides[0], node),
                before=op_name(node.op),
                after=op_name(other.op),
            )
            self._add(node, change)


def index_edges(side: Side, node: Apply) -> list[Edge]:
    """Return the edges that carry the index of a node, conversions of only this index included."""
    width = 2 if isinstance(node.op, IncSubtensor) else 1
    edges: list[Edge] = []
    waiting = [(node, place) for place in range(width, len(node.inputs))]
    while waiting:
        edges.append(waiting.pop())
        reader, place = edges[-1]
        maker = reader.inputs[place].owner
        if maker is not None and is_conversion(maker) and len(side.readers[maker.outputs[0]]) == 1:
            waiting.append((maker, 0))
    return edges


def _is_indexing(node: Apply) -> bool:
    return isinstance(node.op, Subtensor | IncSubtensor)


def _behind_ends(group: Regions) -> dict[int, Counter[str]]:
    return {
        key[1]: counts
        for key, counts in group.behind.items()
        if isinstance(key, tuple) and key[0] == "end"
    }


def _flipped(pairs: Pairs) -> Pairs:
    return sorted((second, first) for first, second in pairs)
