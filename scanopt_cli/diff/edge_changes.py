"""Rewired edges and unmatched nodes as changes that a person reads.

An edge is rewired if a matched node reads another variable there than before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from pytensor.graph.basic import Apply, Constant, Variable

from scanopt_cli.diff.body_diffs import nodes_inside
from scanopt_cli.diff.changes import Change, ChangeKind, Note, Subject, SubjectKind
from scanopt_cli.diff.grouping import Located, unnumbered
from scanopt_cli.diff.labels import (
    constants_text,
    node_subject,
    reader_subject,
    two_texts,
    variable_text,
)
from scanopt_cli.diff.matching.correspondence import Matching
from scanopt_cli.diff.matching.indexed_graph import IndexedGraph
from scanopt_cli.diff.regions import Edge, Regions
from scanopt_cli.facts import Fact

# How many readers of one variable are listed.
_READERS = 2
_PRINTED_ALIKE = Fact(Note.PRINTED_ALIKE)


@dataclass(frozen=True, slots=True)
class _Rewiring:
    """One input of a matched node, or one output, that reads another variable than before.

    ``rank`` is the place of the reader among the nodes, which orders the report.
    """

    reader: Subject
    rank: int
    variable: Variable
    counterpart: Variable


@dataclass(slots=True)
class _Rewirings:
    """All rewired edges, by whether the old node was removed and the new node added.

    Attributes
    ----------
    constants
        From one constant to another.
    replaced
        From a removed node to an added one, keyed by both.
    bypassed
        From a removed node to a variable that was there before, keyed by the removed node.
    inserted
        From a variable that is still there to an added node, keyed by the added node.
    moved
        From a variable that is still there to one that was there before.
    """

    constants: list[_Rewiring] = field(default_factory=list)
    replaced: dict[tuple[Apply, Apply], list[_Rewiring]] = field(default_factory=dict)
    bypassed: dict[Apply, list[_Rewiring]] = field(default_factory=dict)
    inserted: dict[Apply, list[_Rewiring]] = field(default_factory=dict)
    moved: list[_Rewiring] = field(default_factory=list)


def entries(
    matching: Matching,
    groups: tuple[Regions, Regions],
    reported: tuple[Container[Edge], Container[Edge]],
) -> Iterator[Located]:
    """Yield the nodes that were added, removed or replaced, and the rewired edges.

    Edges that other changes have ``reported`` are left out.
    """
    found = _rewirings(matching, reported)
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


def _rewirings(matching: Matching, reported: tuple[Container[Edge], Container[Edge]]) -> _Rewirings:
    """Return the rewired inputs and outputs, except edges that other changes have ``reported``."""
    found = _Rewirings()
    for rewiring in _mismatches(matching, reported):
        _sort_in(found, matching, rewiring)
    _keep_clear_replacements(found, matching)
    return found


def _mismatches(
    matching: Matching, reported: tuple[Container[Edge], Container[Edge]]
) -> Iterator[_Rewiring]:
    before, after = matching.first, matching.second
    for node in before.nodes:
        other = matching.nodes.get(node)
        if other is None:
            continue
        for place, other_place in matching.alignments[node].inputs:
            variable, counterpart = node.inputs[place], other.inputs[other_place]
            if matching.correspond(variable, counterpart):
                continue
            if (node, place) in reported[0] or (other, other_place) in reported[1]:
                continue
            reader = reader_subject(before, node, place)
            yield _Rewiring(reader, before.rank[node], variable, counterpart)
    for place, other_place in matching.outputs:
        variable, counterpart = before.outputs[place], after.outputs[other_place]
        if not matching.correspond(variable, counterpart):
            reader = Subject(kind=SubjectKind.OUTPUT, place=place)
            yield _Rewiring(reader, len(before.nodes), variable, counterpart)


def _sort_in(found: _Rewirings, matching: Matching, rewiring: _Rewiring) -> None:
    variable, counterpart = rewiring.variable, rewiring.counterpart
    if isinstance(variable, Constant) and isinstance(counterpart, Constant):
        found.constants.append(rewiring)
        return
    node, maker = variable.owner, counterpart.owner
    is_gone = node is not None and node not in matching.nodes
    is_new = maker is not None and maker not in matching.counterparts
    if is_gone and is_new:
        found.replaced.setdefault((node, maker), []).append(rewiring)
    elif is_gone:
        found.bypassed.setdefault(node, []).append(rewiring)
    elif is_new:
        found.inserted.setdefault(maker, []).append(rewiring)
    else:
        found.moved.append(rewiring)


def _keep_clear_replacements(found: _Rewirings, matching: Matching) -> None:
    """Keep a replacement if it is the only one of either node, and neither is used otherwise.

    Other pairs are reported as two nodes, one removed and one added. So are nodes that hold graphs.
    """
    gone = Counter(node for node, _ in found.replaced)
    new = Counter(maker for _, maker in found.replaced)
    for (node, maker), readers in list(found.replaced.items()):
        is_clear = gone[node] == new[maker] == 1
        is_used_otherwise = node in found.bypassed or maker in found.inserted
        holds = node in matching.first.titles or maker in matching.second.titles
        if not is_clear or is_used_otherwise or holds:
            del found.replaced[node, maker]
            found.bypassed.setdefault(node, []).extend(readers)
            found.inserted.setdefault(maker, []).extend(readers)


def _is_elsewhere(side: IndexedGraph, node: Apply, other: IndexedGraph) -> bool:
    """Whether the other side computes the same too, so that ``node`` only repeats it."""
    return all(side.digest(output) in other.digests for output in node.outputs)


def _constants(matching: Matching, found: _Rewirings) -> Iterator[Located]:
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
    matching: Matching, groups: tuple[Regions, Regions], found: _Rewirings
) -> Iterator[Located]:
    before, after = matching.first, matching.second
    for (node, maker), readers in found.replaced.items():
        old, new = node_subject(before, node), node_subject(after, maker)
        behind = (*groups[0].note(node, Note.WITHOUT), *groups[1].note(maker, Note.WITH))
        same = (_PRINTED_ALIKE,) if old == new else ()
        notes = (*same, *_more(readers), *behind)
        change = Change.of_property(readers[0].reader, "", old.node, new.node, *notes)
        yield _located(matching, readers[0], change, (old.op, new.op, _labels(readers), behind))


def _located(matching: Matching, rewiring: _Rewiring, change: Change, kin: Hashable) -> Located:
    place = rewiring.rank / max(len(matching.first.nodes), 1)
    return Located(place, change, kin, rewiring.reader.short())


def _alone(
    kind: ChangeKind,
    side: IndexedGraph,
    other: IndexedGraph,
    node: Apply,
    readers: Sequence[_Rewiring],
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


def _labels(readers: Sequence[_Rewiring]) -> frozenset[Subject]:
    """Return the readers without their inputs and without numbers."""
    return frozenset(replace(unnumbered(r.reader.short()), place=None) for r in readers)


def _more(readers: Sequence[_Rewiring]) -> tuple[Fact, ...]:
    others = tuple(rewiring.reader.short() for rewiring in readers[1 : _READERS + 1])
    more = len(readers) - 1 - len(others)
    return (Fact(Note.ALSO, {"subjects": others, "more": more}),) if others else ()
