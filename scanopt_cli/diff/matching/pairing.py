"""Pairs the items of two short lists, by the strongest evidence first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Hashable, Sequence

type Keys = Sequence[Sequence[Hashable]]
"""For each of two lists, a key for each item; ``None`` for no key."""

type Pairs = Sequence[tuple[int, int]]
"""Pairs of positions in two lists whose items correspond."""


def flipped(pairs: Pairs) -> Pairs:
    """Return the pairs for the same lists in the other order."""
    return sorted((second, first) for first, second in pairs)


def pair_up(*evidence: Keys, repeats: bool = False) -> list[tuple[int, int]]:
    """Return pairs of the positions of items that correspond, sorted by the first.

    Each kind of evidence pairs the items whose key is unique among those not yet paired. With
    ``repeats``, the last kind also pairs items of equal keys, in order.
    """
    pairs: dict[int, int] = {}
    for rank, (keys, other_keys) in enumerate(evidence):
        others = _grouped(other_keys, set(pairs.values()))
        in_order = repeats and rank == len(evidence) - 1
        for key, positions in _grouped(keys, pairs).items():
            same_key = others.get(key, [])
            if in_order or len(positions) == len(same_key) == 1:
                pairs.update(zip(positions, same_key, strict=False))
    return sorted(pairs.items())


def _grouped(keys: Sequence[Hashable], paired: Container[int]) -> dict[Hashable, list[int]]:
    groups: defaultdict[Hashable, list[int]] = defaultdict(list)
    for position, key in enumerate(keys):
        if key is not None and position not in paired:
            groups[key].append(position)
    return groups
