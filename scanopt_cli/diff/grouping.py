"""Equal changes in several places are told once, with a count."""

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
    """A change where it is found.

    Attributes
    ----------
    place
        Where in the graph it is: 0 at the inputs, 1 at the outputs.
    change
        The change.
    kin
        Equal for changes of one kind that are told once.
    short
        What to call the thing that is changed, where another one is told in full.
    """

    place: float
    change: Change
    kin: Hashable
    short: str


def gathered(found: Iterable[Told]) -> list[Change]:
    """Return the changes in the order of the graph, those that are equal as the first of them."""
    groups: dict[Hashable, list[Told]] = {}
    for told in sorted(found, key=lambda told: told.place):
        groups.setdefault((told.change.kind, told.kin), []).append(told)
    return [_as_one(group) for group in groups.values()]


def unnumbered(text: str) -> str:
    """Return ``text`` without the numbers that tell loops and slots of one name apart."""
    return _NUMBERS.sub("", text)


def _as_one(group: list[Told]) -> Change:
    first = group[0].change
    if len(group) == 1:
        return first
    places = [told.short for told in group[1:]]
    named = [place for place in dict.fromkeys(places) if place != group[0].short][:_NAMED]
    rest = len(places) - sum(place in named for place in places)
    count = sum(told.change.count for told in group)
    if not named:
        return replace(first, count=count)
    # The same slot of several loops is not named again for each of them.
    parts = [_OF_A_LOOP.fullmatch(place) for place in (group[0].short, *named)]
    if all(parts) and len({part[1] for part in parts if part}) == 1:
        named = [part[2] for part in parts[1:] if part]
        named[0] = f"of {named[0]}"
    also = ", ".join([*named, *([f"{rest} more"] if rest else [])])
    return replace(first, details=(*first.details, f"also {also}"), count=count)
