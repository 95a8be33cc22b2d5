"""What became of each loop: new, gone, merged into another, replaced or changed.

Loops that are not matched are told apart by who reads them. Where a place of both graphs was
computed from a loop that is gone, and is now computed from another, that other one computes what
the first did. It may be new or may have been there: if it does so for several loops, they were
merged into it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pytensor.graph.basic import Apply, Variable

from scanopt_cli.analysis.provenance.nearest_scans import NearestScans
from scanopt_cli.analysis.statistics import buffer_bytes, has_buffer
from scanopt_cli.diff.body_diffs import BodyDiffs, nodes_inside
from scanopt_cli.diff.changes import ChangeKind, LoopChange, LoopFate
from scanopt_cli.diff.grouping import Located
from scanopt_cli.diff.labels import op_text
from scanopt_cli.diff.matching.alignment import align
from scanopt_cli.diff.matching.correspondence import Matching
from scanopt_cli.diff.matching.indexed_graph import IndexedGraph
from scanopt_cli.ir.inner_graphs import core_op, op_name
from scanopt_cli.ir.scan_view import is_loop

type Loops = frozenset[Apply]
_COUNTED = {ChangeKind.ADDED: "added", ChangeKind.REMOVED: "removed"}


def loop_fates(
    matching: Matching, found: Sequence[Located], bodies: BodyDiffs
) -> tuple[LoopChange, ...]:
    """Return what became of the loops of two matched graphs and of their bodies.

    ``found`` are the changes of the graphs themselves.
    """
    first, second = matching.first, matching.second
    by_loop = _by_loop(found)
    inside: dict[Apply, list[LoopChange]] = defaultdict(list)
    for node, loop in bodies.loops(first):
        inside[node].append(loop)
    successors = _successors(matching)
    merged: dict[Apply, list[Apply]] = defaultdict(list)
    for part, whole in successors.items():
        merged[whole].append(part)
    loops: list[LoopChange] = []
    for node in first.titles:
        if is_loop(node):
            other, heir = matching.nodes.get(node), successors.get(node)
            if other is not None:
                loops += _kept(matching, node, other, by_loop, bodies)
            else:
                loops.append(_lost(matching, node, heir, merged[heir] if heir else ()))
        loops += inside[node]
    for other in second.titles:
        parts = merged.get(other, [])
        is_new = is_loop(other) and other not in matching.counterparts
        if is_new and (not parts or _are_merged(matching, parts, other)):
            loops.append(_new(matching, other, parts))
    return tuple(loops)


def _by_loop(found: Iterable[Located]) -> Mapping[str, Counter[str]]:
    """Count the changes of each loop or slot of one, by the text of the loop."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for item in found:
        change = item.change
        counts[item.subject.op][_COUNTED.get(change.kind, "changed")] += change.count
    return counts


@dataclass(frozen=True, slots=True)
class _Side:
    """What a loop is in one of the graphs."""

    side: IndexedGraph
    node: Apply

    @property
    def copies(self) -> int:
        return self.side.copies[self.node]

    @property
    def nodes(self) -> int:
        return nodes_inside(self.node.op)

    @property
    def design(self) -> str:
        return type(core_op(self.node.op)).__name__

    @property
    def name(self) -> str:
        return self.side.titles[self.node]

    @property
    def place(self) -> str | None:
        return self.side.places.get(self.node)

    @property
    def buffers(self) -> str:
        def is_read(variable: Variable) -> bool:
            return bool(self.side.readers.get(variable) or self.side.ends.get(variable))

        view = self.side.view(self.node)
        return str(buffer_bytes(view, (slot for slot in view.slots if has_buffer(slot, is_read))))


def _kept(
    matching: Matching,
    node: Apply,
    other: Apply,
    by_loop: Mapping[str, Counter[str]],
    bodies: BodyDiffs,
) -> Iterator[LoopChange]:
    """Yield a matched loop, if it changed."""
    one, two = _Side(matching.first, node), _Side(matching.second, other)
    counts: Counter[str] = Counter()
    for text in {op_text(matching.first, node), op_text(matching.second, other)}:
        counts.update(by_loop.get(text, Counter()))
    body = bodies.of(node)
    if body is not None:
        for change in body.changes:
            counts[_COUNTED.get(change.kind, "changed")] += change.count
        for loop in body.loops:
            for name in ("added", "removed", "changed"):
                counts[name] -= getattr(loop, name)
    copies = one.copies, two.copies
    if counts.total() or copies[0] != copies[1]:
        is_renamed = op_name(node.op) != op_name(other.op)
        yield LoopChange(
            fate=LoopFate.CHANGED,
            name=one.name,
            design=one.design,
            place=one.place or two.place,
            into=op_name(other.op) if is_renamed else None,
            copies=copies,
            nodes=one.nodes,
            nodes_after=two.nodes,
            buffers=one.buffers,
            buffers_after=two.buffers,
            added=counts["added"],
            removed=counts["removed"],
            changed=counts["changed"],
        )


def _lost(
    matching: Matching, node: Apply, heir: Apply | None, parts: Sequence[Apply]
) -> LoopChange:
    """Return what became of a loop of the first graph that has no counterpart."""
    one = _Side(matching.first, node)
    lost = LoopChange(
        fate=LoopFate.GONE,
        name=one.name,
        design=one.design,
        place=one.place,
        copies=(one.copies, 0),
        removed=one.copies,
        nodes=one.nodes,
        buffers=one.buffers,
    )
    if heir is None:
        return lost
    two = _Side(matching.second, heir)
    found = replace(lost, fate=LoopFate.MERGED, into=two.name, into_design=two.design)
    if heir in matching.counterparts or _are_merged(matching, parts, heir):
        return found
    return replace(
        found,
        fate=LoopFate.REPLACED,
        place=one.place or two.place,
        copies=(one.copies, two.copies),
        added=two.copies,
        nodes_after=two.nodes,
        buffers_after=two.buffers,
    )


def _are_merged(matching: Matching, parts: Sequence[Apply], heir: Apply) -> bool:
    """Whether more loops are gone than the new one stands for, which computes what they did."""
    return sum(matching.first.copies[part] for part in parts) > matching.second.copies[heir]


def _new(matching: Matching, other: Apply, parts: Sequence[Apply]) -> LoopChange:
    two = _Side(matching.second, other)
    return LoopChange(
        fate=LoopFate.NEW,
        name=two.name,
        design=two.design,
        place=two.place,
        of=tuple(matching.first.titles[part] for part in parts),
        copies=(0, two.copies),
        added=two.copies,
        nodes_after=two.nodes,
        buffers_after=two.buffers,
    )


def _successors(matching: Matching) -> dict[Apply, Apply]:
    """Map loops of the first graph that are gone to the loops that compute what they did."""
    first, second = matching.first, matching.second
    gone = [n for n in first.titles if is_loop(n) and n not in matching.nodes]
    if not gone:
        return {}
    votes: dict[Apply, Counter[Apply]] = {node: Counter() for node in gone}
    near = NearestScans(first.inputs, first.nodes)
    near_after = NearestScans(second.inputs, second.nodes)

    def vote(before: Loops, after: Loops) -> None:
        """Let loops that a place is computed from now stand for those that it was, if gone."""
        kept = {matching.nodes[node] for node in before if node in matching.nodes}
        for node in before & votes.keys():
            votes[node].update(after - kept or _grown(matching, node, after))

    for variable, other in _places(matching):
        vote(near.scans_before(variable), near_after.scans_before(other))
    found = {}
    for node in reversed(gone):
        heir = _heir(matching, node, votes[node])
        if heir is not None:
            found[node] = heir
            # What they read are the same places, if not each by each.
            vote(frozenset(near.scans_feeding(node)), frozenset(near_after.scans_feeding(heir)))
    return found


def _grown(matching: Matching, node: Apply, kept: Loops) -> Iterator[Apply]:
    """Yield the loops among ``kept`` that compute what ``node`` did, too, or may.

    They are equal to it, or have new outputs.
    """
    for other in kept & matching.counterparts.keys():
        pairs = matching.alignments[matching.counterparts[other]].outputs
        if len(other.outputs) > len(pairs) or _are_equal(matching, node, other):
            yield other


def _are_equal(matching: Matching, node: Apply, other: Apply) -> bool:
    """Whether two loops have equal bodies and read the same, up to the order of their slots."""
    if not matching.same_op(node, other) or len(node.inputs) != len(other.inputs):
        return False
    ours, theirs = matching.terms()
    pairs = align(ours, theirs, node, other).inputs
    return len(pairs) == len(node.inputs) and all(
        ours.token(node.inputs[place]) == theirs.token(other.inputs[later])
        for place, later in pairs
    )


def _heir(matching: Matching, node: Apply, votes: Counter[Apply]) -> Apply | None:
    """Return the loop of those voted for that is most like ``node``, unless several are."""
    first, second = matching.first, matching.second
    place = first.places.get(node)

    def likeness(other: Apply) -> tuple[int | bool, ...]:
        return (
            matching.same_op(node, other),
            op_name(other.op) == op_name(node.op),
            place is not None and second.places.get(other) == place,
            votes[other],
            second.titles[other] == first.titles[node],
        )

    best = max(map(likeness, votes), default=None)
    fitting = [other for other in votes if likeness(other) == best]
    return fitting[0] if len(fitting) == 1 else None


def _places(matching: Matching) -> Iterator[tuple[Variable, Variable]]:
    """Yield the variables at all places that both graphs have: inputs of nodes, and outputs."""
    for node, other in matching.nodes.items():
        for place, later in matching.alignments[node].inputs:
            yield node.inputs[place], other.inputs[later]
    for place, later in matching.outputs:
        yield matching.first.outputs[place], matching.second.outputs[later]
