"""Disjoint sets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scanopt_cli.ir.disjoint_sets import DisjointSets

_ITEMS = range(8)
_PAIRS = st.lists(st.tuples(st.sampled_from(_ITEMS), st.sampled_from(_ITEMS)))


@given(_PAIRS)
def test_sets_are_those_of_a_slower_way(pairs: list[tuple[int, int]]) -> None:
    sets = DisjointSets[int]()
    labels = list(_ITEMS)
    for one, other in pairs:
        sets.unite(one, other)
        labels = [labels[other] if label == labels[one] else label for label in labels]
    for one in _ITEMS:
        for other in _ITEMS:
            assert (sets.find(one) == sets.find(other)) == (labels[one] == labels[other])
