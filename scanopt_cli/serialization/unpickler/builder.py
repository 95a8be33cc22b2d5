"""The safe loader: real graphs from the inert records of a pickle.

Everything is made by constructors of PyTensor's own classes (and of packages the user admits) from
parts that were checked before. No function that a file names is called, no state that a file gives
is set on anything, and what is not understood is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FrozenFunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.type import Type
from pytensor.scan.op import Scan

from scanopt_cli.errors import LoadError, UnsafeFileError, brief
from scanopt_cli.serialization.files import MAX_BYTES
from scanopt_cli.serialization.unpickler.allowlist import TRUST, Allowlist, Refusal
from scanopt_cli.serialization.unpickler.bounds import KEY_PARTS, PART, KeyBounds, Nests, Uses
from scanopt_cli.serialization.unpickler.constructors import StateError
from scanopt_cli.serialization.unpickler.dropping import CACHES, OPAQUE, left_out
from scanopt_cli.serialization.unpickler.nodes import make_nodes
from scanopt_cli.serialization.unpickler.op_state import rebuild
from scanopt_cli.serialization.unpickler.pickle_handlers import CALLS, FORMS, INSTANCES
from scanopt_cli.serialization.unpickler.records import (
    Call,
    Global,
    Recording,
    made_class,
    read_records,
)
from scanopt_cli.text import with_article

_PLAIN = (type(None), bool, int, float, str, bytes)
_CONTAINERS = (list, tuple, dict, set, frozenset)
# Copies of a file's contents may cost `_FREE_COPIES` plus `_MOST_COPIES` times its size: a byte
# costs 1, a part of a container `PART`.
_MOST_COPIES = 4
_FREE_COPIES = 16 << 20
_BODY_NODE = 32
"""How many parts a node of a body counts for, which an Op that has the body makes anew."""
_LONGEST_INTEGER = 4096
"""How many bits an integer may have; those of random generators have 128."""


def read_safely(data: bytes, where: str, packages: Iterable[str] = ()) -> Any:
    """Return the object that the pickle ``data`` holds, made of checked parts only.

    Raises
    ------
    LoadError
        If ``data`` is not a whole pickle of graphs.
    UnsafeFileError
        If it refers to something that is not admitted, or gives an op a state that its own
        constructor would not give it.
    """
    return build(read_records(data, where), where, Allowlist(FORMS, packages), len(data))


def build(recording: Recording, where: str, allowlist: Allowlist, size: int) -> Any:
    """Return what ``recording``, of ``size`` bytes, stands for; errors as in `read_safely`."""
    builder = Builder(where, allowlist, size)
    refused = [
        mentioned
        for mentioned in recording.globals
        if isinstance(allowlist.judge(mentioned.module, mentioned.name), Refusal)
    ]
    unread = left_out(recording.root) if refused else frozenset()
    for mentioned in refused:
        if id(mentioned) not in unread:
            builder.judge(mentioned)
    try:
        return builder.value(recording.root)
    except LoadError:
        raise
    except RecursionError:
        raise LoadError(
            "is nested too deeply",
            where=where,
            hint="save it with scanopt, which writes long chains flat; bodies nest a hundred deep",
        ) from None
    except Exception as error:
        raise LoadError(
            f"holds what no graph holds: {brief(error)}",
            where=where,
            hint="write the file again",
        ) from None


class Builder:
    """Makes what the records of one file stand for, each once."""

    def __init__(self, where: str, allowlist: Allowlist, size: int) -> None:
        self.made: dict[int, Any] = {}
        self.traces: dict[int, list[Any]] = {}
        self._copies_left = _FREE_COPIES + min(_MOST_COPIES * size, 2 * MAX_BYTES)
        self.where = where
        self._allowlist = allowlist
        self.nests = Nests()
        self.uses = Uses()
        self.keys = KeyBounds()
        self._open: set[int] = set()

    def judge(self, mentioned: Global) -> Any:
        """Return the class or object that a global names, ``None`` if it stands for a form.

        Raises
        ------
        UnsafeFileError
            If the global is not admitted.
        """
        verdict = self._allowlist.judge(mentioned.module, mentioned.name)
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
        if kind in _CONTAINERS and not record:
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
        if made_class(record) is None:
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
            return self._call(record)
        if kind is Global:
            made = self.judge(record)
            if made is None or (isinstance(made, type) and issubclass(made, Op | Type | Variable)):
                raise self._refusal(f"refers to {record} where a graph holds a value")
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

    def _call(self, record: Call) -> Any:
        cls = made_class(record)
        target = record.function if cls is None else cls
        if type(target) is not Global:
            raise self._refusal("calls something that it computes")
        thing = self.judge(target)
        form = (CALLS if cls is None else INSTANCES).get((target.module, target.name))
        takes_state = cls is not None or target.name in (
            "dtype",
            "_reconstruct",
            "__bit_generator_ctor",
        )
        extras = record.kwargs or record.items or record.pairs or self._setters(record)
        if extras or (record.has_state and not takes_state):
            raise self._refusal(f"uses {target} in a way that no graph needs")
        try:
            self.uses.count(record)
            if form is not None:
                return form(self, record)
            if cls is not None and isinstance(thing, type):
                if issubclass(thing, Variable | Apply):
                    make_nodes(self, record)
                    return self.made[id(record)]
                if issubclass(thing, Op | Type):
                    return self._property_holder(thing, record)
        except StateError as error:
            raise self._refusal(f"holds a {target} with a state of its own: {error}") from None
        except (LoadError, RecursionError):
            raise
        except Exception as error:
            raise LoadError(
                f"{with_article(target.name[:80])} is not well-formed: {brief(error)}",
                where=self.where,
                hint="write the file again",
            ) from None
        raise self._refusal(f"uses {target} in a way that no graph needs")

    def _setters(self, record: Call) -> list[Call]:
        """Return the calls that may change what ``record`` makes.

        A setter is a call with ``record`` as first argument, whose result the pickle drops. Pickle
        also writes such a call for an object that contains itself; that is a call of a function in
        `CALLS`, which changes nothing.
        """
        return [
            call
            for call in record.setters or ()
            if type(call.function) is not Global
            or (call.function.module, call.function.name) not in CALLS
        ]

    def _property_holder(self, cls: type[Any], record: Call) -> Any:
        """Return the op or type of class ``cls`` that has the state in ``record``."""
        state = {}
        for name, part in self.state(record).items():
            if name in CACHES:
                continue
            inner = made_class(part)
            opaque = inner is not None and (inner.module, inner.name) in OPAQUE
            held = state[name] = None if opaque else self.value(part)
            # Each Op and Type that has it goes through it, more than once.
            if isinstance(held, _CONTAINERS):
                self.copied(held)
            if isinstance(held, FrozenFunctionGraph):
                self.uses.count_as(held, _BODY_NODE * len(held.apply_nodes))
        if issubclass(cls, Scan):
            state["mode"] = None  # that of whoever compiled it; PyTensor would link by it
            # PyTensor takes a loop in place for equal to one that is not, in bodies as well.
            state |= {"destroy_map": {}} if "destroy_map" in state else {}
        if "destroyed" in state:  # so is a `Loop`, whose class is imported where a file has one
            state |= {"destroyed": (), "destroy_map": {}}
        return rebuild(cls, state)

    def _refusal(self, what: str) -> UnsafeFileError:
        return UnsafeFileError(what, where=self.where, hint=TRUST)
