"""Disjoint sets: what is known to be equal, or to belong together (union-find)."""

from __future__ import annotations

from collections.abc import Hashable


class DisjointSets[Item: Hashable]:
    """Sets of items, each in a set of its own until that is united with another one."""

    def __init__(self) -> None:
        self._parents: dict[Item, Item] = {}

    def find(self, item: Item) -> Item:
        """Return the item that stands for the set of another."""
        while (parent := self._parents.setdefault(item, item)) != item:
            self._parents[item] = self._parents.setdefault(parent, parent)
            item = parent
        return item

    def unite(self, one: Item, other: Item) -> None:
        """Make one set of two."""
        self._parents[self.find(one)] = self.find(other)
