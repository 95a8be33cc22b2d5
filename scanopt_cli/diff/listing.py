"""Lists what was found in two graphs and their bodies, with the places of the bodies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from graphlib import TopologicalSorter
from typing import NamedTuple

from scanopt_cli.diff.body_diffs import Found, Inside
from scanopt_cli.diff.changes import Change, LoopChange

MOST_PLACES = 16
"""At how many places of a body what was found in it is listed; if there are more, at the first."""

type Path = tuple[str, ...]
"""The names of the loops and graphs around something, outermost first."""

_OUTER = -1  # the number of the outer graph, as `Inside.number` is that of a body


class Listed(NamedTuple):
    """What was found in two graphs and their bodies.

    Attributes
    ----------
    changes
        The changes, those of a graph before those inside of it.
    loops
        What became of the loops, each before those inside of it.
    is_short
        Whether there is a body at more than `MOST_PLACES`.
    """

    changes: tuple[Change, ...]
    loops: tuple[LoopChange, ...]
    is_short: bool


def listed(found: Found) -> Listed:
    """List what was found at each place of a body, with the names of the loops around it.

    What was found in a body at more than `MOST_PLACES` is listed at the first, with the count of
    all. So the lists are at most that many times as long as what was found, where bodies that apply
    each other twice have ``2**levels`` places.
    """
    listing = _Listing(found)
    changes, loops = tuple(listing.changes(found)), tuple(listing.loops(found))
    return Listed(changes, loops, max(listing.places.values()) > MOST_PLACES)


class _Listing:
    """What was found in two graphs, and how often each body is there.

    Attributes
    ----------
    places
        At how many places a body is, by its number.
    """

    def __init__(self, found: Found) -> None:
        bodies = _bodies(found)
        around: dict[int, set[int]] = {number: set() for number in bodies}
        for number, part in bodies.items():
            for inside in part.inside:
                around[inside.number].add(number)
        self.places = Counter({_OUTER: 1})
        self._times = Counter({_OUTER: 1})
        for number in TopologicalSorter(around).static_order():
            for inside in bodies[number].inside:
                self.places[inside.number] += self.places[number]
                self._times[inside.number] += self._times[number] * inside.times
        self._first: dict[int, Path] = {}

    def changes(self, found: Found, path: Path = (), times: int = 1) -> Iterator[Change]:
        """Yield the changes of ``times`` graphs, the first of which is at ``path``."""
        for change in found.changes:
            yield replace(change, where=path, count=change.count * times)
        for inside in found.inside:
            place = (*path, inside.holder)
            if count := self._count(inside, place, times):
                yield from self.changes(inside.found, place, count)

    def loops(self, found: Found, path: Path = (), times: int = 1) -> Iterator[LoopChange]:
        """Yield what became of the loops of ``times`` graphs, the first of which is at ``path``."""
        for loop in found.loops:
            if isinstance(loop, LoopChange):
                yield loop.times_inside(path, times)
            else:
                place = (*path, loop.holder)
                if count := self._count(loop, place, times):
                    yield from self.loops(loop.found, place, count)

    def _count(self, inside: Inside, place: Path, times: int) -> int:
        """Return for how many bodies that what was found in one is listed at ``place``, or 0."""
        number = inside.number
        if self.places[number] <= MOST_PLACES:
            return times * inside.times
        is_first = self._first.setdefault(number, place) == place
        return self._times[number] if is_first else 0


def _bodies(found: Found) -> dict[int, Found]:
    """Return what was found in each body, by its number, and in the graphs themselves."""
    bodies, rest = {_OUTER: found}, [found]
    while rest:
        for inside in rest.pop().inside:
            if inside.number not in bodies:
                bodies[inside.number] = inside.found
                rest.append(inside.found)
    return bodies
