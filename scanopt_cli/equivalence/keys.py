"""Short keys for what was encoded: hashes that every process agrees on, or exact numbers.

A digest must be the same everywhere and is a hash; two contents with one hash are unlikely, not
impossible. A rewrite needs certainty: there, each content gets a number when it is first seen, so
equal keys mean equal contents, for as long as the numbering is kept.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Protocol

import numpy as np

_SIZE = 16
# Arrays below it are part of what refers to them.
_LARGE = 1024
# Part of every digest: a change of the canonical form must not look like a change of the graph.
_VERSION = b"scanopt-digest-3"


class Keys(Protocol):
    """Gives contents their keys."""

    def key(self, content: bytes) -> bytes:
        """Return the key of ``content``."""

    def data(self, array: np.ndarray) -> bytes:
        """Return what stands for the bytes of a contiguous ``array``."""


class Hashed:
    """Keys that are 16 bytes of BLAKE2b: the same in every process, on every machine."""

    def key(self, content: bytes) -> bytes:
        """Return the hash of ``content``."""
        return blake2b(_VERSION + content, digest_size=_SIZE).digest()

    def data(self, array: np.ndarray) -> bytes:
        """Return the bytes of a small array, the hash of a large one."""
        return array.tobytes() if array.nbytes < _LARGE else _hash_of(array)


class Interned:
    """Keys that are numbers, equal only for equal contents; good for one table only."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, bytes] = {}
        self._arrays: dict[bytes, list[np.ndarray]] = {}

    def key(self, content: bytes) -> bytes:
        """Return the number of ``content``."""
        return self._numbers.setdefault(content, len(self._numbers).to_bytes(8))

    def data(self, array: np.ndarray) -> bytes:
        """Return the bytes of a small array; of a large one, its hash and its place under it."""
        if array.nbytes < _LARGE:
            return array.tobytes()
        told = _hash_of(array)
        known = self._arrays.setdefault(told, [])
        for place, other in enumerate(known):
            if memoryview(other).cast("B") == memoryview(array).cast("B"):
                return told + place.to_bytes(8)
        known.append(array)
        return told + (len(known) - 1).to_bytes(8)


def _hash_of(array: np.ndarray) -> bytes:
    return blake2b(memoryview(array).cast("B"), digest_size=_SIZE).digest()
