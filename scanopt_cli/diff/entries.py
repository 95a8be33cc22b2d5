"""Turns rewired edges and unmatched nodes into changes that a person reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Sequence

from pytensor.graph.basic import Apply, Constant

from scanopt_cli.diff.body_diffs import nodes_inside
from scanopt_cli.diff.changes import Change, ChangeKind
from scanopt_cli.diff.edges import Rewiring, Rewirings
from scanopt_cli.diff.grouping import Told, unnumbered
from scanopt_cli.diff.labels import (
    constants_text,
    node_text,
    op_text,
    two_texts,
    variable_text,
)
from scanopt_cli.diff.matching.correspondence import Matching
from scanopt_cli.diff.matching.indexed_graph import IndexedGraph
from scanopt_cli.diff.regions import Regions

# How many readers of one variable are listed.
_READERS = 2
_SAME_TEXT = "different, though printed alike"
_INPUT = re.compile(r"^input \d+ of ")


def entries(
    matching: Matching, groups: tuple[Regions, Regions], found: Rewirings
) -> Iterator[Told]:
    """Yield the nodes that were added, removed or replaced, and the rewired edges."""
    yield from _constants(matching, found)
    yield from _replaced(matching, groups, found)
    before, after = matching.first, matching.second
    replaced = {node for pair in found.replaced for node in pair}
    for node in groups[0].heads:
        readers = found.bypassed.get(node, [])
        if node not in replaced and (readers or not _is_elsewhere(before, node, after)):
            yield _alone(
                ChangeKind.REMOVED,
                before,
                node,
                readers,
                lambda r: f"reads {variable_text(after, r.counterpart)} instead",
                groups[0],
            )
    for maker in groups[1].heads:
        readers = found.inserted.get(maker, [])
        if maker not in replaced and (readers or not _is_elsewhere(after, maker, before)):
            yield _alone(
                ChangeKind.ADDED,
                after,
                maker,
                readers,
                lambda r: f"reads it instead of {variable_text(before, r.variable)}",
                groups[1],
            )
    for rewiring in found.moved:
        text, retext = two_texts(before, rewiring.variable, after, rewiring.counterpart)
        change = Change(
            kind=ChangeKind.REWIRED,
            where=(),
            what=rewiring.reader,
            before=text,
            after=retext,
            details=() if text != retext else (_SAME_TEXT,),
        )
        yield _as_told(matching, rewiring, change, (rewiring.variable, rewiring.counterpart))


def _is_elsewhere(side: IndexedGraph, node: Apply, other: IndexedGraph) -> bool:
    """Whether the other side computes the same too, so that ``node`` only repeats it."""
    return all(side.digest(output) in other.digests for output in node.outputs)


def _constants(matching: Matching, found: Rewirings) -> Iterator[Told]:
    for rewiring in found.constants:
        variable, counterpart = rewiring.variable, rewiring.counterpart
        assert isinstance(variable, Constant)
        assert isinstance(counterpart, Constant)
        text, retext, detail = constants_text(variable, counterpart)
        change = Change(
            kind=ChangeKind.CHANGED,
            where=(),
            what=rewiring.reader,
            aspect="constant",
            before=text,
            after=retext,
            details=(detail,) if detail else (),
        )
        values = matching.first.digest(variable), matching.second.digest(counterpart)
        yield _as_told(matching, rewiring, change, values)


def _replaced(
    matching: Matching, groups: tuple[Regions, Regions], found: Rewirings
) -> Iterator[Told]:
    before, after = matching.first, matching.second
    for (node, maker), readers in found.replaced.items():
        text, retext = node_text(before, node), node_text(after, maker)
        behind = (*groups[0].text(node, "without"), *groups[1].text(maker, "with"))
        same = (_SAME_TEXT,) if text == retext else ()
        change = Change(
            kind=ChangeKind.CHANGED,
            where=(),
            what=readers[0].reader,
            before=text,
            after=retext,
            details=(*same, *_more(readers), *behind),
        )
        labels = op_text(before, node), op_text(after, maker)
        yield _as_told(matching, readers[0], change, (*labels, _labels(readers), behind))


def _as_told(matching: Matching, rewiring: Rewiring, change: Change, kin: Hashable) -> Told:
    place = rewiring.rank / max(len(matching.first.nodes), 1)
    return Told(place, change, kin, rewiring.short)


def _alone(
    kind: ChangeKind,
    side: IndexedGraph,
    node: Apply,
    readers: Sequence[Rewiring],
    verb_text: Callable[[Rewiring], str],
    group: Regions,
) -> Told:
    inside = nodes_inside(node.op)
    body = (f"{inside} node{'s' if inside != 1 else ''} inside",) if inside else ()
    behind = group.text(node, "with")
    lines = [f"{rewiring.short} {verb_text(rewiring)}" for rewiring in readers[:_READERS]]
    if len(readers) > _READERS:
        lines.append(f"and {len(readers) - _READERS} more")
    what, details = node_text(side, node), (*body, *lines, *behind)
    # Only repetitions of loops count.
    count = side.copies[node] if body else 1
    change = Change(kind=kind, where=(), what=what, details=details, count=count)
    kin = unnumbered(op_text(side, node)), side.op_digest(node.op), _labels(readers), behind
    return Told(side.rank[node] / len(side.nodes), change, kin, what)


def _labels(readers: Sequence[Rewiring]) -> frozenset[str]:
    """Return texts for the readers, without the input and without numbers."""
    return frozenset(unnumbered(_INPUT.sub("", rewiring.short)) for rewiring in readers)


def _more(readers: Sequence[Rewiring]) -> tuple[str, ...]:
    others = [rewiring.short for rewiring in readers[1 : _READERS + 1]]
    more = len(readers) - 1 - len(others)
    if more:
        others.append(f"{more} more")
    return (f"also {', '.join(others)}",) if others else ()
