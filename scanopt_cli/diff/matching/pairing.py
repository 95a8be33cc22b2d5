"""Pairs the items of two short lists, by the strongest evidence first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

type Evidence[T] = Callable[[T], Hashable | None]
"""Returns a key for an item; ``None`` if this evidence says nothing of it."""


type Pairs = Sequence[tuple[int, int]]
"""Pairs of places in two lists whose items correspond."""


def flipped(pairs: Pairs) -> Pairs:
    """Return the pairs for the same lists in the other order."""
    return sorted((second, first) for first, second in pairs)


def pair_up[T](
    before: Sequence[T],
    after: Sequence[T],
    *evidence: tuple[Evidence[T], Evidence[T]],
    repeats: bool = False,
) -> list[tuple[int, int]]:
    """Return pairs of the places of items that correspond, sorted by the first.

    Each kind of evidence (one function for either list) pairs the items whose key is unique among
    those not yet paired. With ``repeats``, the last kind also pairs items of equal keys, in order.
    """
    left, right = dict(enumerate(before)), dict(enumerate(after))
    pairs: list[tuple[int, int]] = []
    for rank, (of_before, of_after) in enumerate(evidence):
        groups = _grouped(left, of_before)
        others = _grouped(right, of_after)
        in_order = repeats and rank == len(evidence) - 1
        for key, places in groups.items():
            matching = others.get(key, [])
            if in_order or len(places) == len(matching) == 1:
                pairs.extend(zip(places, matching, strict=False))
        for place, other in pairs:
            left.pop(place, None)
            right.pop(other, None)
    return sorted(pairs)


def _grouped[T](items: dict[int, T], evidence: Evidence[T]) -> dict[Hashable, list[int]]:
    groups: defaultdict[Hashable, list[int]] = defaultdict(list)
    for place, item in items.items():
        key = evidence(item)
        if key is not None:
            groups[key].append(place)
    return groups
