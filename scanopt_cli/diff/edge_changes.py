"""Rewired edges and unmatched nodes as changes that a person reads.

An edge is rewired if a matched node reads another variable there than before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from pytensor.graph.basic import Apply, Constant, Variable

from scanopt_cli.diff.body_diffs import nodes_inside
from scanopt_cli.diff.changes import ONLY_IN, Change, ChangeKind, Note, Subject, SubjectKind
from scanopt_cli.diff.grouping import Located, unnumbered
from scanopt_cli.diff.labels import (
    constants_text,
    node_subject,
    reader_subject,
    two_texts,
    variable_text,
)
from scanopt_cli.diff.matching.correspondence import Matching
from scanopt_cli.diff.regions import Edge, Regions
from scanopt_cli.facts import Fact

# How many readers of one variable are listed.
_READERS = 2
_PRINTED_ALIKE = Fact(Note.PRINTED_ALIKE)


@dataclass(frozen=True, slots=True)
class _Rewiring:
    """One input of a matched node, or one output, that reads another variable than before.

    ``position`` is that of the reader, as in `Located`.
    """

    reader: Subject
    position: float
    variable: Variable
    other: Variable


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
    replaced = {node for pair in found.replaced for node in pair}
    for side, readers_of in enumerate((found.bypassed, found.inserted)):
        for node in groups[side].heads:
            readers = readers_of.get(node, [])
            if node not in replaced and (readers or not _is_elsewhere(matching, side, node)):
                yield _alone(matching, side, node, readers, groups[side])
    for rewiring in found.moved:
        text, retext = two_texts(matching.before, rewiring.variable, matching.after, rewiring.other)
        change = Change(
            kind=ChangeKind.REWIRED,
            subject=rewiring.reader,
            before=text,
            after=retext,
            notes=() if text != retext else (_PRINTED_ALIKE,),
        )
        yield _located(rewiring, change, (rewiring.variable, rewiring.other))


def _rewirings(matching: Matching, reported: tuple[Container[Edge], Container[Edge]]) -> _Rewirings:
    """Return the rewired inputs and outputs, except edges that other changes have ``reported``."""
    found = _Rewirings()
    for rewiring in _mismatches(matching, reported):
        variable, other = rewiring.variable, rewiring.other
        if isinstance(variable, Constant) and isinstance(other, Constant):
            found.constants.append(rewiring)
            continue
        node, maker = variable.owner, other.owner
        is_gone = node is not None and node not in matching.pairs
        is_new = maker is not None and maker not in matching.pairs
        if is_gone and is_new:
            found.replaced.setdefault((node, maker), []).append(rewiring)
        elif is_gone:
            found.bypassed.setdefault(node, []).append(rewiring)
        elif is_new:
            found.inserted.setdefault(maker, []).append(rewiring)
        else:
            found.moved.append(rewiring)
    _keep_clear_replacements(found, matching)
    return found


def _mismatches(
    matching: Matching, reported: tuple[Container[Edge], Container[Edge]]
) -> Iterator[_Rewiring]:
    before, after = matching.before, matching.after
    for node in before.nodes:
        pair = matching.pairs.get(node)
        if pair is None:
            continue
        for place, other_place in pair.inputs:
            variable, other = node.inputs[place], pair.other.inputs[other_place]
            if matching.correspond(variable, other):
                continue
            if (node, place) in reported[0] or (pair.other, other_place) in reported[1]:
                continue
            reader = reader_subject(before, node, place)
            yield _Rewiring(reader, before.position(node), variable, other)
    for place, other_place in matching.outputs:
        variable, other = before.outputs[place], after.outputs[other_place]
        if not matching.correspond(variable, other):
            reader = Subject(kind=SubjectKind.OUTPUT, place=place)
            yield _Rewiring(reader, min(1, len(before.nodes)), variable, other)


def _keep_clear_replacements(found: _Rewirings, matching: Matching) -> None:
    """Keep a replacement if it is the only one of either node, and neither is used otherwise.

    Other pairs are reported as two nodes, one removed and one added. So are nodes that hold graphs.
    """
    gone = Counter(node for node, _ in found.replaced)
    new = Counter(maker for _, maker in found.replaced)
    for (node, maker), readers in list(found.replaced.items()):
        is_clear = gone[node] == new[maker] == 1
        is_used_otherwise = node in found.bypassed or maker in found.inserted
        holds = node in matching.before.titles or maker in matching.after.titles
        if not is_clear or is_used_otherwise or holds:
            del found.replaced[node, maker]
            found.bypassed.setdefault(node, []).extend(readers)
            found.inserted.setdefault(maker, []).extend(readers)


def _is_elsewhere(matching: Matching, side: int, node: Apply) -> bool:
    """Whether the other side computes the same too, so that ``node`` only repeats it."""
    graph, elsewhere = matching.graphs[side], matching.graphs[1 - side].digests
    return all(graph.digest(output) in elsewhere for output in node.outputs)


def _constants(matching: Matching, found: _Rewirings) -> Iterator[Located]:
    for rewiring in found.constants:
        variable, other = rewiring.variable, rewiring.other
        assert isinstance(variable, Constant)
        assert isinstance(other, Constant)
        text, retext, note = constants_text(variable, other)
        notes = (note,) if note else ()
        change = Change.of_property(rewiring.reader, "constant", text, retext, *notes)
        values = matching.before.digest(variable), matching.after.digest(other)
        yield _located(rewiring, change, values)


def _replaced(
    matching: Matching, groups: tuple[Regions, Regions], found: _Rewirings
) -> Iterator[Located]:
    before, after = matching.before, matching.after
    for (node, maker), readers in found.replaced.items():
        old, new = node_subject(before, node), node_subject(after, maker)
        behind = (*groups[0].note(node, Note.WITHOUT), *groups[1].note(maker, Note.WITH))
        same = (_PRINTED_ALIKE,) if old == new else ()
        notes = (*same, *_more(readers), *behind)
        change = Change.of_property(readers[0].reader, "", old.node, new.node, *notes)
        yield _located(readers[0], change, (old.op, new.op, _labels(readers), behind))


def _located(rewiring: _Rewiring, change: Change, merged_by: Hashable) -> Located:
    return Located(rewiring.position, change, merged_by, rewiring.reader.short())


def _alone(
    matching: Matching, side: int, node: Apply, readers: Sequence[_Rewiring], group: Regions
) -> Located:
    """Return the addition or removal of ``node``, with what its readers read on the other side."""
    graph, elsewhere = matching.graphs[side], matching.graphs[1 - side]
    inside = nodes_inside(node.op)
    body = (Fact(Note.NODES_INSIDE, {"nodes": inside}),) if inside else ()
    behind = group.note(node, Note.WITH)
    notes = []
    for reader in readers[:_READERS]:
        text = variable_text(elsewhere, reader.variable if side else reader.other)
        code = Note.READS_IT if side else Note.READS_INSTEAD
        notes.append(Fact(code, {"reader": reader.reader.short(), "variable": text}))
    if len(readers) > _READERS:
        notes.append(Fact(Note.MORE_READERS, {"count": len(readers) - _READERS}))
    # Only repetitions of loops count.
    count = graph.copies[node] if body else 1
    subject = node_subject(graph, node)
    change = Change(
        kind=ONLY_IN[side], subject=subject, notes=(*body, *notes, *behind), count=count
    )
    merged_by = unnumbered(subject.short()), graph.op_digest(node.op), _labels(readers), behind
    return Located(graph.position(node), change, merged_by, subject)


def _labels(readers: Sequence[_Rewiring]) -> frozenset[Subject]:
    """Return the readers without their inputs and without numbers."""
    return frozenset(replace(unnumbered(r.reader.short()), place=None) for r in readers)


def _more(readers: Sequence[_Rewiring]) -> tuple[Fact, ...]:
    others = tuple(rewiring.reader.short() for rewiring in readers[1 : _READERS + 1])
    more = len(readers) - 1 - len(others)
    return (Fact(Note.ALSO, {"subjects": others, "more": more}),) if others else ()
