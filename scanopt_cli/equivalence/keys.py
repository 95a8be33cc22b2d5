"""Short keys for encoded content: hashes that agree in every process, or value numbers.

A digest must be the same in every process, so it is a hash; a collision is unlikely, but possible.
A rewrite must exclude it. For a rewrite, contents are interned (hash-consing): each distinct
content gets a number when it is first seen, so equal keys mean equal contents within one table.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

_SIZE = 16
# Arrays of fewer bytes are not hashed on their own.
_LARGE = 1024
# Part of every digest. It changes with the canonical form, so that all digests change then: if only
# some did, it would look as if those graphs had changed.
_VERSION = b"scanopt-digest-3"


class Hashed:
    """Keys that are 16 bytes of BLAKE2b: the same in every process, on every machine."""

    def key(self, content: bytes) -> bytes:
        """Return the hash of ``content``."""
        return blake2b(_VERSION + content, digest_size=_SIZE).digest()

    def data(self, array: np.ndarray) -> bytes:
        """Return the bytes of a small array, the hash of a large one."""
        return array.tobytes() if array.nbytes < _LARGE else _hash_of(array)


class Interned:
    """Keys that are numbers, equal only for equal contents; valid for one table only."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, bytes] = {}
        self._arrays: dict[bytes, list[np.ndarray]] = {}

    def key(self, content: bytes) -> bytes:
        """Return the number of ``content``."""
        return self._numbers.setdefault(content, len(self._numbers).to_bytes(8))

    def data(self, array: np.ndarray) -> bytes:
        """Return the bytes of a small array; for a large one, its hash and its place there."""
        if array.nbytes < _LARGE:
            return array.tobytes()
        hashed = _hash_of(array)
        known = self._arrays.setdefault(hashed, [])
        for place, other in enumerate(known):
            if memoryview(other).cast("B") == memoryview(array).cast("B"):
                return hashed + place.to_bytes(8)
        known.append(array)
        return hashed + (len(known) - 1).to_bytes(8)


def _hash_of(array: np.ndarray) -> bytes:
    return blake2b(memoryview(array).cast("B"), digest_size=_SIZE).digest()
