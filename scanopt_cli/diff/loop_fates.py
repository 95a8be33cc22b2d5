"""What became of each loop: new, gone, merged into another, replaced or changed.

Loops that are not matched are told apart by who reads them. Where a place of both graphs was
computed from a loop that is gone, and is now computed from another, that other one computes what
the first did. It may be new or may have been there: if it does so for several loops, they were
merged into it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from pytensor.graph.basic import Apply, Variable

from scanopt_cli.analysis.provenance.nearest_scans import NearestScans
from scanopt_cli.analysis.statistics import buffer_bytes, has_buffer
from scanopt_cli.diff.body_diffs import BodyDiffs, Inside, nodes_inside
from scanopt_cli.diff.changes import COUNTS, Change, ChangeKind, LoopChange, LoopFate
from scanopt_cli.diff.grouping import Located
from scanopt_cli.diff.labels import op_text
from scanopt_cli.diff.matching.alignment import align
from scanopt_cli.diff.matching.correspondence import Matching, NodePair
from scanopt_cli.diff.matching.indexed_graph import IndexedGraph
from scanopt_cli.ir.inner_graphs import core_op, op_name
from scanopt_cli.ir.scan_view import is_loop

type Loops = frozenset[Apply]
_COUNTED = {ChangeKind.ADDED: "added", ChangeKind.REMOVED: "removed"}


def loop_fates(
    matching: Matching,
    found: Sequence[Located],
    bodies: BodyDiffs,
    inside: Mapping[Apply, Inside],
) -> tuple[LoopChange | Inside, ...]:
    """Return what became of the loops of two matched graphs, and ``inside`` after its nodes.

    ``found`` are the changes of the graphs themselves.
    """
    before, after = matching.graphs
    by_loop = _by_loop(found)
    successors = heirs(matching)
    merged: dict[Apply, list[Apply]] = defaultdict(list)
    for part, whole in successors.items():
        merged[whole].append(part)
    loops: list[LoopChange | Inside] = []
    for node in before.titles:
        if is_loop(node):
            pair, heir = matching.pairs.get(node), successors.get(node)
            if pair is not None:
                loops += _kept(matching, pair, by_loop, bodies)
            else:
                loops.append(_lost(matching, node, heir, merged[heir] if heir else ()))
        if node in inside:
            loops.append(inside[node])
    for other in after.titles:
        parts = merged.get(other, [])
        is_new = is_loop(other) and other not in matching.pairs
        if is_new and (not parts or _are_merged(matching, parts, other)):
            of = tuple(before.titles[part] for part in parts)
            added = after.copies[other]
            loops.append(_told(LoopFate.NEW, matching, None, other, of=of, added=added))
    return tuple(loops)


def changes_apart(found: Iterable[Located], loops: Iterable[LoopChange | Inside]) -> Counter[str]:
    """Count the changes that are of none of ``loops``, as `Found.apart` has them."""
    counts: Counter[str] = Counter()
    for item in found:
        counts[_counted_as(item.change)] += item.change.count
    for loop in loops:
        if isinstance(loop, Inside):
            counts.update({name: n * loop.times for name, n in loop.found.apart.items()})
        else:
            counts.subtract({name: getattr(loop, name) for name in COUNTS})
    return counts


def _counted_as(change: Change) -> str:
    return _COUNTED.get(change.kind, "changed")


def _by_loop(found: Iterable[Located]) -> Mapping[str, Counter[str]]:
    """Count the changes of each loop or slot of one, by the text of the loop."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for item in found:
        change = item.change
        counts[item.subject.op][_counted_as(change)] += change.count
    return counts


def _told(
    fate: LoopFate, matching: Matching, node: Apply | None, other: Apply | None, **more: Any
) -> LoopChange:
    """Return what became of a loop that is ``node`` before and ``other`` after, if it is there."""
    copies, nodes, buffers, written = _facts(matching.before, node)
    copies_after, nodes_after, buffers_after, written_after = _facts(matching.after, other)
    graph, loop = (matching.before, node) if node else (matching.after, other)
    assert loop is not None
    return LoopChange(
        fate=fate,
        name=graph.titles[loop],
        design=_design(loop),
        place=written or written_after,
        copies=(copies, copies_after),
        nodes=nodes,
        nodes_after=nodes_after,
        buffers=buffers,
        buffers_after=buffers_after,
        **more,
    )


def _facts(graph: IndexedGraph, node: Apply | None) -> tuple[int, int, str, str | None]:
    """Return how often a loop is there, its nodes, its buffers, and where it was written."""
    if node is None:
        return 0, 0, "0", None

    def is_read(variable: Variable) -> bool:
        return bool(graph.readers.get(variable) or graph.output_positions.get(variable))

    view = graph.view(node)
    buffers = buffer_bytes(view, (slot for slot in view.slots if has_buffer(slot, is_read)))
    return graph.copies[node], nodes_inside(node.op), str(buffers), graph.written.get(node)


def _design(node: Apply) -> str:
    return type(core_op(node.op)).__name__


def _kept(
    matching: Matching, pair: NodePair, by_loop: Mapping[str, Counter[str]], bodies: BodyDiffs
) -> Iterator[LoopChange]:
    """Yield a matched loop, if it changed."""
    node, other = pair.node, pair.other
    counts: Counter[str] = Counter()
    for text in {op_text(matching.before, node), op_text(matching.after, other)}:
        counts.update(by_loop.get(text, Counter()))
    body = bodies.of(node)
    if body is not None:
        counts.update(body.apart)
    if counts.total() or matching.before.copies[node] != matching.after.copies[other]:
        is_renamed = op_name(node.op) != op_name(other.op)
        into = op_name(other.op) if is_renamed else None
        yield _told(LoopFate.CHANGED, matching, node, other, into=into, **counts)


def _lost(
    matching: Matching, node: Apply, heir: Apply | None, parts: Sequence[Apply]
) -> LoopChange:
    """Return what became of a loop of the graph before that has no partner."""
    removed = matching.before.copies[node]
    if heir is None:
        return _told(LoopFate.GONE, matching, node, None, removed=removed)
    into = {"into": matching.after.titles[heir], "into_design": _design(heir)}
    if heir in matching.pairs or _are_merged(matching, parts, heir):
        return _told(LoopFate.MERGED, matching, node, None, removed=removed, **into)
    added = matching.after.copies[heir]
    return _told(LoopFate.REPLACED, matching, node, heir, removed=removed, added=added, **into)


def _are_merged(matching: Matching, parts: Sequence[Apply], heir: Apply) -> bool:
    """Whether more loops are gone than the new one stands for, which computes what they did."""
    return sum(matching.before.copies[part] for part in parts) > matching.after.copies[heir]


def heirs(matching: Matching) -> dict[Apply, Apply]:
    """Map loops before that are gone to the loops that compute what they did."""
    gone = [n for n in matching.before.titles if is_loop(n) and n not in matching.pairs]
    if not gone:
        return {}
    votes: dict[Apply, Counter[Apply]] = {node: Counter() for node in gone}
    near, near_after = (NearestScans(graph.inputs, graph.nodes) for graph in matching.graphs)

    def vote(before: Loops, after: Loops) -> None:
        """Let loops that a place is computed from now stand for those that it was, if gone."""
        kept = {matching.pairs[node].other for node in before if node in matching.pairs}
        for node in before & votes.keys():
            votes[node].update(after - kept or _grown(matching, node, after))

    read = (pair.inputs_read() for pair in matching.node_pairs())
    for variable, other in chain(*read, matching.output_variables()):
        vote(near.scans_before(variable), near_after.scans_before(other))
    found = {}
    for node in reversed(gone):
        heir = _heir(matching, node, votes[node])
        if heir is not None:
            found[node] = heir
            # What both read corresponds, if not each by each.
            vote(frozenset(near.scans_feeding(node)), frozenset(near_after.scans_feeding(heir)))
    return found


def _grown(matching: Matching, node: Apply, kept: Loops) -> Iterator[Apply]:
    """Yield the loops among ``kept`` that compute what ``node`` did, too, or may.

    They are equal to it, or have new outputs.
    """
    for other in kept & matching.pairs.keys():
        if len(other.outputs) > len(matching.pairs[other].outputs) or _are_equal(
            matching, node, other
        ):
            yield other


def _are_equal(matching: Matching, node: Apply, other: Apply) -> bool:
    """Whether two loops have equal bodies and read the same, up to the order of their slots."""
    if not matching.same_op(node, other) or len(node.inputs) != len(other.inputs):
        return False
    pair = align(matching, node, other)
    return len(pair.inputs) == len(node.inputs) and all(
        matching.key(matching.before, variable) == matching.key(matching.after, read)
        for variable, read in pair.inputs_read()
    )


def _heir(matching: Matching, node: Apply, votes: Counter[Apply]) -> Apply | None:
    """Return the loop of those voted for that is most like ``node``, unless several are."""
    before, after = matching.graphs
    written = before.written.get(node)

    def likeness(other: Apply) -> tuple[int | bool, ...]:
        return (
            matching.same_op(node, other),
            op_name(other.op) == op_name(node.op),
            written is not None and after.written.get(other) == written,
            votes[other],
            after.titles[other] == before.titles[node],
        )

    best = max(map(likeness, votes), default=None)
    fitting = [other for other in votes if likeness(other) == best]
    return fitting[0] if len(fitting) == 1 else None
