"""Merges equal changes in several places into one change with a count."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace

from scanopt_cli.diff.changes import Change

# How many of the other places are named.
_NAMED = 2
_OF_A_LOOP = re.compile(r"(.*) of (\w+ `.*`)")
_NUMBERS = re.compile(r"(#\d+|\[\d+\])(?=`)")


@dataclass(frozen=True, slots=True)
class Told:
    """A change, and where it was found.

    Attributes
    ----------
    place
        The position in the graph: 0 at the inputs, 1 at the outputs.
    change
        The change.
    kin
        A key, equal for changes of one kind that are reported once.
    short
        A short name of what changed, used if another change is reported in full.
    """

    place: float
    change: Change
    kin: Hashable
    short: str


def gathered(found: Iterable[Told]) -> list[Change]:
    """Return the changes in the order of the graph, equal ones merged into the first of them."""
    groups: dict[Hashable, list[Told]] = {}
    for item in sorted(found, key=lambda item: item.place):
        groups.setdefault((item.change.kind, item.kin), []).append(item)
    return [_as_one(group) for group in groups.values()]


def unnumbered(text: str) -> str:
    """Return ``text`` without the numbers that distinguish loops and slots of one name."""
    return _NUMBERS.sub("", text)


def _as_one(group: list[Told]) -> Change:
    first = group[0].change
    if len(group) == 1:
        return first
    places = [item.short for item in group[1:]]
    named = [place for place in dict.fromkeys(places) if place != group[0].short][:_NAMED]
    rest = len(places) - sum(place in named for place in places)
    count = sum(item.change.count for item in group)
    if not named:
        return replace(first, count=count)
    # The same slot of several loops is not named again for each of them.
    parts = [_OF_A_LOOP.fullmatch(place) for place in (group[0].short, *named)]
    if all(parts) and len({part[1] for part in parts if part}) == 1:
        named = [part[2] for part in parts[1:] if part]
        named[0] = f"of {named[0]}"
    also = ", ".join([*named, *([f"{rest} more"] if rest else [])])
    return replace(first, details=(*first.details, f"also {also}"), count=count)
