"""Finds the first position that has a property among some that leave it open, in few evaluations.

Positions have the property from one on, and those before have not: of both, some may be open, as
with ``git bisect skip``. These mostly follow each other, between a rewrite that leaves half of a
graph in a form that nothing compiles and the one that completes it; or stand alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

# How many open positions are stepped over one by one.
_NEAR = 3
# How many positions between two that are open are tried, since something was last seen.
_AMONG_OPEN = 4


@dataclass(frozen=True, slots=True)
class Found[T]:
    """Where a property begins.

    Attributes
    ----------
    first
        The first position that was seen to have it.
    last_without
        The last position before it that was seen not to have it; -1 if none was. Those between are
        open.
    seen
        What was seen at each position that was looked at.
    """

    first: int
    last_without: int
    seen: dict[int, T]

    @property
    def is_certain(self) -> bool:
        """Whether nothing is open."""
        return self.first - self.last_without == 1


def first_with[T](
    seen: dict[int, T],
    has_it: Callable[[T], bool | None],
    look: Callable[[int, int], T],
) -> Found[T]:
    """Find the first position that has a property.

    Parameters
    ----------
    seen
        What was seen at position 0, which is open or has the property not, and at the last one,
        which has it.
    has_it
        Whether what was seen has the property; ``None`` if that is open.
    look
        Called with a position to look at, and how many could be the first one; returns what is
        seen.
    """
    seen = dict(seen)
    start, high = min(seen), max(seen)
    is_open = has_it(seen[start]) is None
    low, between = start - is_open, [start] * is_open
    tries = 0
    while (position := _next(low, high, between, tries)) is not None:
        tries += len(between) > _NEAR and between[0] < position < between[-1]
        seen[position] = look(position, high - low)
        answer = has_it(seen[position])
        if answer is None:
            between = sorted([*between, position])
            continue
        low, high = (low, position) if answer else (position, high)
        between = [one for one in between if low < one < high]
        tries = 0
    return Found(high, low, seen)


def _next(low: int, high: int, between: list[int], tries: int) -> int | None:
    """Return which position between is to be looked at; those that are known are open."""
    middle = (low + high) // 2
    if len(between) <= _NEAR:
        rest = [k for k in range(middle - _NEAR, middle + _NEAR + 1) if low < k < high]
        rest = [k for k in rest if k not in between]
        if rest:
            return min(rest, key=lambda k: (abs(k - middle), k))
    if not between:
        return None
    # Where those that are open begin and end.
    edges = ((low, between[0]), (between[-1], high))
    inner = pairwise(between) if tries < _AMONG_OPEN else ()
    for gaps in (edges, tuple(inner)):
        start, end = max(gaps, key=lambda gap: gap[1] - gap[0], default=(0, 0))
        if end - start > 1:
            return (start + end) // 2
    return None
