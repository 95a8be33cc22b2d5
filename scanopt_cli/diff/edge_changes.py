"""Turns rewired edges and unmatched nodes into changes that a person reads."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from pytensor.graph.basic import Apply, Constant

from scanopt_cli.diff.body_diffs import nodes_inside
from scanopt_cli.diff.changes import Change, ChangeKind, Note, Subject
from scanopt_cli.diff.edges import Rewiring, Rewirings
from scanopt_cli.diff.grouping import Located, unnumbered
from scanopt_cli.diff.labels import (
    constants_text,
    node_subject,
    two_texts,
    variable_text,
)
from scanopt_cli.diff.matching.correspondence import Matching
from scanopt_cli.diff.matching.indexed_graph import IndexedGraph
from scanopt_cli.diff.regions import Regions
from scanopt_cli.facts import Fact

# How many readers of one variable are listed.
_READERS = 2
_PRINTED_ALIKE = Fact(Note.PRINTED_ALIKE)


def entries(
    matching: Matching, groups: tuple[Regions, Regions], found: Rewirings
) -> Iterator[Located]:
    """Yield the nodes that were added, removed or replaced, and the rewired edges."""
    yield from _constants(matching, found)
    yield from _replaced(matching, groups, found)
    before, after = matching.first, matching.second
    replaced = {node for pair in found.replaced for node in pair}
    for kind, side, other, group, readers_of in (
        (ChangeKind.REMOVED, before, after, groups[0], found.bypassed),
        (ChangeKind.ADDED, after, before, groups[1], found.inserted),
    ):
        for node in group.heads:
            readers = readers_of.get(node, [])
            if node not in replaced and (readers or not _is_elsewhere(side, node, other)):
                yield _alone(kind, side, other, node, readers, group)
    for rewiring in found.moved:
        text, retext = two_texts(before, rewiring.variable, after, rewiring.counterpart)
        change = Change(
            kind=ChangeKind.REWIRED,
            subject=rewiring.reader,
            before=text,
            after=retext,
            notes=() if text != retext else (_PRINTED_ALIKE,),
        )
        yield _located(matching, rewiring, change, (rewiring.variable, rewiring.counterpart))


def _is_elsewhere(side: IndexedGraph, node: Apply, other: IndexedGraph) -> bool:
    """Whether the other side computes the same too, so that ``node`` only repeats it."""
    return all(side.digest(output) in other.digests for output in node.outputs)


def _constants(matching: Matching, found: Rewirings) -> Iterator[Located]:
    for rewiring in found.constants:
        variable, counterpart = rewiring.variable, rewiring.counterpart
        assert isinstance(variable, Constant)
        assert isinstance(counterpart, Constant)
        text, retext, note = constants_text(variable, counterpart)
        notes = (note,) if note else ()
        change = Change.of_property(rewiring.reader, "constant", text, retext, *notes)
        values = matching.first.digest(variable), matching.second.digest(counterpart)
        yield _located(matching, rewiring, change, values)


def _replaced(
    matching: Matching, groups: tuple[Regions, Regions], found: Rewirings
) -> Iterator[Located]:
    before, after = matching.first, matching.second
    for (node, maker), readers in found.replaced.items():
        old, new = node_subject(before, node), node_subject(after, maker)
        behind = (*groups[0].note(node, Note.WITHOUT), *groups[1].note(maker, Note.WITH))
        same = (_PRINTED_ALIKE,) if old == new else ()
        notes = (*same, *_more(readers), *behind)
        change = Change.of_property(readers[0].reader, "", old.node, new.node, *notes)
        yield _located(matching, readers[0], change, (old.op, new.op, _labels(readers), behind))


def _located(matching: Matching, rewiring: Rewiring, change: Change, kin: Hashable) -> Located:
    place = rewiring.rank / max(len(matching.first.nodes), 1)
    return Located(place, change, kin, rewiring.reader.short())


def _alone(
    kind: ChangeKind,
    side: IndexedGraph,
    other: IndexedGraph,
    node: Apply,
    readers: Sequence[Rewiring],
    group: Regions,
) -> Located:
    """Return the addition or removal of ``node`` of ``side``, with what its readers read there."""
    inside = nodes_inside(node.op)
    body = (Fact(Note.NODES_INSIDE, {"nodes": inside}),) if inside else ()
    behind = group.note(node, Note.WITH)
    is_gone = kind is ChangeKind.REMOVED
    notes = []
    for reader in readers[:_READERS]:
        text = variable_text(other, reader.counterpart if is_gone else reader.variable)
        code = Note.READS_INSTEAD if is_gone else Note.READS_IT
        notes.append(Fact(code, {"reader": reader.reader.short(), "variable": text}))
    if len(readers) > _READERS:
        notes.append(Fact(Note.MORE_READERS, {"count": len(readers) - _READERS}))
    # Only repetitions of loops count.
    count = side.copies[node] if body else 1
    subject = node_subject(side, node)
    change = Change(kind=kind, subject=subject, notes=(*body, *notes, *behind), count=count)
    kin = unnumbered(subject.short()), side.op_digest(node.op), _labels(readers), behind
    return Located(side.rank[node] / len(side.nodes), change, kin, subject)


def _labels(readers: Sequence[Rewiring]) -> frozenset[Subject]:
    """Return the readers without their inputs and without numbers."""
    return frozenset(replace(unnumbered(r.reader.short()), place=None) for r in readers)


def _more(readers: Sequence[Rewiring]) -> tuple[Fact, ...]:
    others = tuple(rewiring.reader.short() for rewiring in readers[1 : _READERS + 1])
    more = len(readers) - 1 - len(others)
    return (Fact(Note.ALSO, {"subjects": others, "more": more}),) if others else ()
