"""Bounds on the keys of dictionaries and the members of sets, before anything hashes them."""

from __future__ import annotations

from typing import Any

KEY_PARTS = 4096
"""How many values a dictionary key or set member may consist of, tuples counted in full."""
_MOST_KEY_PARTS = 20_000_000
_MOST_COLLISIONS = 64
_HASHED_BY_VALUE = (int, float, complex, bytes, tuple, frozenset)


class KeyBounds:
    """The keys and members that a file has: none is a large nest, and few have one hash.

    Hashing a deep or wide nest of tuples crashes or hangs, and so does a dictionary of keys with
    equal hashes. (Hashes of text are random.)
    """

    def __init__(self) -> None:
        self._parts = 0
        self._by_hash: dict[int, list[Any]] = {}

    def checked(self, key: Any) -> Any:
        """Return ``key``; `ValueError` if it is too large, or has the hash of too many others."""
        if type(key) in (tuple, frozenset):
            self._check_size(key)
        if isinstance(key, _HASHED_BY_VALUE):
            alike = self._by_hash.setdefault(hash(key), [])
            if key not in alike:
                alike.append(key)
            if len(alike) > _MOST_COLLISIONS:
                raise ValueError("too many dictionary keys have one hash")
        return key

    def _check_size(self, key: Any) -> None:
        pending, left = [key], KEY_PARTS
        while pending:
            part = pending.pop()
            left -= 1
            is_nest = type(part) in (tuple, frozenset)
            if left < 0 or (is_nest and len(part) > left):
                raise ValueError("a dictionary key is too large")
            if is_nest:
                pending.extend(part)
        self._parts += KEY_PARTS - left
        if self._parts > _MOST_KEY_PARTS:
            raise ValueError("its dictionary keys are too large")
