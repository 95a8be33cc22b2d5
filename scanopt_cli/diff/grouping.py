"""Merges equal changes in several places into one change with a count."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace

from scanopt_cli.diff.changes import Change, Note, Subject
from scanopt_cli.facts import Fact

# How many of the other places are named.
_NAMED = 2
_NUMBERS = re.compile(r"(#\d+|\[\d+\])(?=`)")


@dataclass(frozen=True, slots=True)
class Located:
    """A change, and where it was found.

    Attributes
    ----------
    position
        Where in the graph: 0 at the inputs, 1 at the outputs.
    change
        The change.
    merged_by
        A key, equal for changes of one kind that are reported as one.
    subject
        What changed, in short: it is listed if an equal change is reported in full.
    """

    position: float
    change: Change
    merged_by: Hashable
    subject: Subject


def gathered(found: Iterable[Located]) -> list[Change]:
    """Return the changes in the order of the graph, equal ones merged into the first of them."""
    groups: dict[Hashable, list[Located]] = {}
    for item in sorted(found, key=lambda item: item.position):
        groups.setdefault((item.change.kind, item.merged_by), []).append(item)
    return [_as_one(group) for group in groups.values()]


def unnumbered(subject: Subject) -> Subject:
    """Return ``subject`` without the numbers that distinguish loops and slots of one name."""
    texts = (subject.op, subject.operands, subject.slot)
    op, operands, slot = (_NUMBERS.sub("", text) for text in texts)
    return replace(subject, op=op, operands=operands, slot=slot)


def _as_one(group: list[Located]) -> Change:
    first = group[0].change
    if len(group) == 1:
        return first
    subjects = [item.subject for item in group[1:]]
    named = [other for other in dict.fromkeys(subjects) if other != group[0].subject][:_NAMED]
    rest = len(subjects) - sum(other in named for other in subjects)
    count = sum(item.change.count for item in group)
    if not named:
        return replace(first, count=count)
    also = Fact(Note.ALSO, {"subjects": tuple(named), "more": rest})
    return replace(first, notes=(*first.notes, also), count=count)
