"""From what is matched and what is not to changes that a person reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pytensor.graph.basic import Apply, Constant

from scanopt_cli.diffing.edges import Rewiring, Rewirings
from scanopt_cli.diffing.matching import Matching
from scanopt_cli.diffing.regions import Regions
from scanopt_cli.diffing.result import Change, ChangeKind
from scanopt_cli.diffing.sides import Side
from scanopt_cli.diffing.wording import (
    constants_text,
    node_text,
    two_texts,
    variable_text,
)
from scanopt_cli.graphs.bodies import inner_graphs

type Placed = tuple[float, Change]
"""A change, and where in the graph it is: 0 at the inputs, 1 at the outputs."""

# How many readers of one thing are told one by one.
_READERS = 2
_SAME_TEXT = "another one, told by the same text"


def entries(
    matching: Matching, groups: tuple[Regions, Regions], found: Rewirings, where: tuple[str, ...]
) -> Iterator[Placed]:
    """Yield what came, went, and reads something else."""
    before, after = matching.first, matching.second
    count = max(len(before.nodes), 1)
    yield from _constants(found, where, count)
    for (node, maker), readers in found.replaced.items():
        text, retext = node_text(before, node), node_text(after, maker)
        yield (
            readers[0].rank / count,
            Change(
                kind=ChangeKind.CHANGED,
                where=where,
                what=readers[0].reader,
                before=text,
                after=retext,
                details=(
                    *((_SAME_TEXT,) if text == retext else ()),
                    *_more(readers),
                    *groups[0].text(node, "without"),
                    *groups[1].text(maker, "with"),
                ),
            ),
        )
    gone = {node for node, _ in found.replaced}
    for node in groups[0].heads:
        if node not in gone:
            readers = found.bypassed.get(node, [])
            yield _alone(
                ChangeKind.REMOVED,
                before,
                node,
                where,
                _told(readers, lambda r: f"reads {variable_text(after, r.counterpart)} instead"),
                groups[0].text(node, "with"),
            )
    new = {maker for _, maker in found.replaced}
    for maker in groups[1].heads:
        if maker not in new:
            readers = found.inserted.get(maker, [])
            yield _alone(
                ChangeKind.ADDED,
                after,
                maker,
                where,
                _told(
                    readers, lambda r: f"reads it instead of {variable_text(before, r.variable)}"
                ),
                groups[1].text(maker, "with"),
            )
    for rewiring in found.moved:
        text, retext = two_texts(before, rewiring.variable, after, rewiring.counterpart)
        yield (
            rewiring.rank / count,
            Change(
                kind=ChangeKind.REWIRED,
                where=where,
                what=rewiring.reader,
                before=text,
                after=retext,
                details=() if text != retext else (_SAME_TEXT,),
            ),
        )


def _constants(found: Rewirings, where: tuple[str, ...], count: int) -> Iterator[Placed]:
    for readers in found.constants.values():
        first = readers[0]
        assert isinstance(first.variable, Constant)
        assert isinstance(first.counterpart, Constant)
        text, retext, detail = constants_text(first.variable, first.counterpart)
        yield (
            first.rank / count,
            Change(
                kind=ChangeKind.CHANGED,
                where=where,
                what=first.reader,
                aspect="constant",
                before=text,
                after=retext,
                details=(*((detail,) if detail else ()), *_more(readers)),
                count=len(readers),
            ),
        )


def _alone(
    kind: ChangeKind,
    side: Side,
    node: Apply,
    where: tuple[str, ...],
    readers: tuple[str, ...],
    behind: tuple[str, ...],
) -> Placed:
    inside = sum(len(inner.toposort()) for inner in inner_graphs(node.op))
    body = (f"{inside} node{'s' if inside != 1 else ''} inside",) if inside else ()
    change = Change(
        kind=kind,
        where=where,
        what=node_text(side, node),
        details=(*body, *readers, *behind),
    )
    return side.rank[node] / len(side.nodes), change


def _told(readers: Sequence[Rewiring], told: Callable[[Rewiring], str]) -> tuple[str, ...]:
    lines = [f"{rewiring.short} {told(rewiring)}" for rewiring in readers[:_READERS]]
    if len(readers) > _READERS:
        lines.append(f"and {len(readers) - _READERS} more")
    return tuple(lines)


def _more(readers: Sequence[Rewiring]) -> tuple[str, ...]:
    others = [rewiring.short for rewiring in readers[1 : _READERS + 1]]
    more = len(readers) - 1 - len(others)
    if more:
        others.append(f"{more} more")
    return (f"also {', '.join(others)}",) if others else ()
