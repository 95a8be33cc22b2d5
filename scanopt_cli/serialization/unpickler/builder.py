"""Makes objects from the inert records of a pickle: plain values, containers, admitted classes.

What the calls in a pickle stand for is in `graph_builder`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op
from pytensor.graph.type import Type

from scanopt_cli.errors import LoadError, UnsafeFileError
from scanopt_cli.serialization.files import MAX_BYTES
from scanopt_cli.serialization.unpickler.allowlist import TRUST, Allowlist, Refusal
from scanopt_cli.serialization.unpickler.bounds import (
    KEY_PARTS,
    PART,
    KeyBounds,
    NestedSizes,
    UseCounts,
)
from scanopt_cli.serialization.unpickler.records import Call, Global, class_of_instance

_PLAIN = (type(None), bool, int, float, str, bytes)
CONTAINERS = (list, tuple, dict, set, frozenset)
# Copies of a file's contents may cost `_FREE_COPIES` plus `_MOST_COPIES` times its size: a byte
# costs 1, a part of a container `PART`.
_MOST_COPIES = 4
_FREE_COPIES = 16 << 20
_LONGEST_INTEGER = 4096
"""How many bits an integer may have; those of random generators have 128."""


class Builder(ABC):
    """Makes what the records of one file stand for, each once; calls are left to a subclass."""

    def __init__(self, where: str, allowlist: Allowlist, size: int) -> None:
        self.made: dict[int, Any] = {}
        self.traces: dict[int, list[Any]] = {}
        self._copies_left = _FREE_COPIES + min(_MOST_COPIES * size, 2 * MAX_BYTES)
        self.where = where
        self._allowlist = allowlist
        self.nests = NestedSizes()
        self.uses = UseCounts()
        self.keys = KeyBounds()
        self._open: set[int] = set()

    def resolve(self, mentioned: Global) -> Any:
        """Return the class or object that a global names, ``None`` if it stands for a form.

        Raises
        ------
        UnsafeFileError
            If the global is not admitted.
        """
        verdict = self._allowlist.resolve(mentioned.module, mentioned.name)
        if isinstance(verdict, Refusal):
            raise UnsafeFileError(
                f"refers to {mentioned}, which is not loaded: {verdict.reason}",
                where=self.where,
                hint=verdict.hint,
            )
        return verdict

    def copied(self, parts: Any) -> Any:
        """Return ``parts``, bytes, an array or a container, of which a copy is about to be made.

        Many records may share one argument, and each copies it.

        Raises
        ------
        ValueError
            If the copies become many times larger than the file.
        """
        if isinstance(parts, np.ndarray):
            self._copies_left -= parts.nbytes
        else:
            size = max(len(parts), self.nests.size_of(parts))
            self._copies_left -= size if isinstance(parts, bytes) else PART * size
        if self._copies_left < 0:
            raise ValueError("what it makes is many times larger than the file")
        return parts

    def value(self, record: Any) -> Any:
        """Return what ``record`` stands for."""
        kind = type(record)
        if kind is int and record.bit_length() > _LONGEST_INTEGER:
            raise ValueError(f"an integer of more than {_LONGEST_INTEGER:,} bits")
        if kind in _PLAIN:
            return record
        if kind in CONTAINERS and not record:
            return kind()
        key = id(record)
        if key not in self.made:
            if key in self._open:
                raise LoadError("holds something that contains itself", where=self.where)
            self._open.add(key)
            self.made[key] = self._make(record)
            self.nests.check(self.made[key])
            self._open.discard(key)
        return self.made[key]

    def expect(self, record: Any, kind: type[Any]) -> Any:
        """Return what ``record`` stands for, which must be a ``kind``."""
        made = self.value(record)
        if not isinstance(made, kind):
            raise ValueError(f"a {type(made).__name__} where a {kind.__name__} belongs")
        return made

    def expect_all(self, record: Any, kind: type[Any]) -> tuple[Any, ...]:
        """Return what the list or tuple ``record`` holds, each of which must be a ``kind``."""
        if type(record) not in (list, tuple):
            raise ValueError(f"something else where {kind.__name__}s belong")
        return tuple(self.expect(part, kind) for part in record)

    def state(self, record: Any) -> dict[str, Any]:
        """Return the records of the state that an instance is given."""
        if class_of_instance(record) is None:
            raise ValueError("a call where an instance belongs")
        state = record.state
        parts = state if type(state) is tuple and len(state) == 2 else (state,)
        merged: dict[str, Any] = {}
        for part in parts:
            if type(part) not in (dict, type(None)) or any(
                type(name) is not str for name in part or ()
            ):
                raise ValueError("an instance without a plain state")
            merged |= part or {}
        return merged

    def _make(self, record: Any) -> Any:
        kind = type(record)
        if kind is Call:
            return self.call(record)
        if kind is Global:
            made = self.resolve(record)
            if made is None or (isinstance(made, type) and issubclass(made, Op | Type | Variable)):
                raise self.refusal(f"refers to {record} where a graph holds a value")
            return made
        if kind is dict:
            pairs = record.items()
            return {self.key(self.value(name)): self.value(part) for name, part in pairs}
        if kind is bytearray:
            return self.copied(bytes(record))
        parts = map(self.value, record)
        return kind(map(self.key, parts) if kind in (set, frozenset) else parts)

    def key(self, made: Any) -> Any:
        """Return ``made``, a key of a dictionary or a member of a set, if hashing it is cheap."""
        if self.nests.size_of(made) > KEY_PARTS:
            raise ValueError("a dictionary key or a member of a set is too large")
        return self.keys.checked(made)

    @abstractmethod
    def call(self, record: Call) -> Any:
        """Return what a call, or an instance, stands for."""

    def refusal(self, what: str) -> UnsafeFileError:
        """Return the error that refuses something in the file."""
        return UnsafeFileError(what, where=self.where, hint=TRUST)
