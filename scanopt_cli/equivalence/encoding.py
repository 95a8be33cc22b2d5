"""Encoding of Ops, Types and constants as bytes that are the same in every process.

``hash`` of an Op differs from process to process and many Ops compare by identity. The encoder
therefore reads the parts of an Op: its class and its ``__props__``, or its whole state where it
declares none. Values without such an encoding (closures, classes of a local scope, open resources)
are *opaque*: they are compared by identity, so that a false "same" is impossible.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.type import Type
from pytensor.graph.utils import MetaObject, Scratchpad

from scanopt_cli.equivalence.definition import Definition
from scanopt_cli.equivalence.opaque import identity

# State of PyTensor's own Ops that describes how they were called or compiled, not what they
# compute. An Op of another package may compute by its name, so all its state counts.
_INCIDENTAL = frozenset(
    {
        "name",
        "_op_type",
        "tag",
        "_fn",
        "profile",
        "prepare_node_called",
        "_py_perform_fn",
        "__doc__",
    }
)


class Encoder:
    """Turns values into unambiguous bytes, collected in ``parts``.

    ``sameness`` has the keys of Ops, types, graphs and arrays.
    """

    def __init__(self, sameness: Definition) -> None:
        self.parts: list[bytes] = []
        self._sameness = sameness

    def encode(self, value: Any) -> None:
        """Append the encoding of any value."""
        # Nearly all values have one of these types, and a lookup is faster than matching.
        write = _COMMON.get(type(value))
        if write is not None:
            write(self, value)
            return
        match value:
            case Enum():
                # A combination of flags may have no name.
                self._class("enum", type(value))
                self.encode(value.name)
                self.encode(value.value)
            case np.generic():
                self._array(np.asarray(value))
            case int() | float() | complex() | str() | bytes() | tuple() | list():
                self._subclass(value)
            case slice():
                self._tag("slice")
                self._all((value.start, value.stop, value.step))
            case frozenset() | set():
                self._class("set", type(value))
                self._unordered(value)
            case Mapping():
                # The order counts, since iteration follows it.
                self._class("mapping", type(value))
                self._all([part for item in value.items() for part in item])
            case np.dtype():
                self._item("dtype", _dtype_text(value).encode())
            case type():
                self._class("class", value)
            case FunctionType() | BuiltinFunctionType() | np.ufunc():
                self._function(value)
            case AbstractFunctionGraph():
                self._item("graph", self._sameness.of_graph(value))
            case Op():
                self._item("op", self._sameness.of_op(value))
            case Constant():
                self._tag("constant")
                self.encode(value.type)
                self.encode(value.data)
            case np.random.Generator():
                self._tag("generator")
                self.encode(value.bit_generator.state)
            case Variable():
                self._as_opaque(value)
            case Type():
                self._item("type", self._sameness.of_type(value))
            case MetaObject():
                self._class("object", type(value))
                self._state(value)
            case _ if type(value).__module__.startswith("scipy.sparse"):
                self._sparse(value)
            case _ if dataclasses.is_dataclass(value):
                self._class("dataclass", type(value))
                self._state(value)
            case _:
                self._as_opaque(value)

    def _number(self, value: Any) -> None:
        # repr keeps the sign of zero and separates True from 1; the type name separates 1 from 1.0.
        self._item(type(value).__name__, repr(value).encode())

    def _text(self, value: str) -> None:
        self._item("str", value.encode("utf-8", "surrogatepass"))

    def _bytes(self, value: bytes) -> None:
        self._item("bytes", value)

    def _sequence(self, value: tuple[Any, ...] | list[Any]) -> None:
        self._tag(type(value).__name__)
        self._all(value)

    def _subclass(self, value: Any) -> None:
        """Write a value whose class derives from a built-in one, with its further attributes."""
        base = next(cls for cls in type(value).__mro__ if cls in _COMMON)
        self._class("subclass", type(value))
        self.encode(base.__repr__(value) if base in _NUMBERS else base(value))
        self._items([(name, getattr(value, name)) for name in sorted(_attributes(value))])

    def _sparse(self, value: Any) -> None:
        if getattr(value, "format", None) not in ("csr", "csc"):
            self._as_opaque(value)
            return
        self._class("sparse", type(value))
        self._all((value.format, value.shape, value.indptr, value.indices, value.data))

    def _state(self, value: Any) -> None:
        self._items(state(value))

    def _items(self, items: list[tuple[str, Any]]) -> None:
        self._tag(f"state {len(items)}")
        for name, item in items:
            self.encode(name)
            self.encode(item)

    def _all(self, values: tuple[Any, ...] | list[Any]) -> None:
        self._tag(f"items {len(values)}")
        for value in values:
            self.encode(value)

    def _unordered(self, values: Any) -> None:
        """Write values in the order of their encodings, not of insertion or hashing."""
        encoded = []
        for value in values:
            inner = Encoder(self._sameness)
            inner.encode(value)
            encoded.append(b"".join(inner.parts))
        self._tag(f"items {len(encoded)}")
        for part in sorted(encoded):
            self._item("item", part)

    def _array(self, array: np.ndarray) -> None:
        if array.dtype.hasobject:
            self._as_opaque(array)
            return
        # Little-endian on every machine.
        array = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
        self._item("array", f"{_dtype_text(array.dtype)}{array.shape}".encode())
        self._item("data", self._sameness.data(array))

    def _class(self, tag: str, cls: type) -> None:
        if _resolves(cls):
            self._item(tag, f"{cls.__module__}:{cls.__qualname__}".encode())
        else:
            self._as_opaque(cls)

    def _function(self, function: Any) -> None:
        if _resolves(function):
            self._item("function", f"{function.__module__}:{_qualname(function)}".encode())
        else:
            self._as_opaque(function)

    def _as_opaque(self, value: Any) -> None:
        name = getattr(value, "__qualname__", "")
        self._sameness.opaque.append(f"{type(value).__name__} {name}".strip())
        self._item("opaque", identity(value).encode())

    def _tag(self, tag: str) -> None:
        self._item(tag, b"")

    def _item(self, tag: str, content: bytes) -> None:
        self.parts.append(f"{tag}:{len(content)}:".encode())
        self.parts.append(content)


_NUMBERS = (bool, int, float, complex)
_COMMON: dict[type, Callable[[Encoder, Any], None]] = {
    **dict.fromkeys((type(None), *_NUMBERS), Encoder._number),
    **dict.fromkeys((tuple, list), Encoder._sequence),
    str: Encoder._text,
    bytes: Encoder._bytes,
    np.ndarray: Encoder._array,
}


def state(value: Any) -> list[tuple[str, Any]]:
    """Return the parts of ``value`` by name: its ``__props__``, else its fields and other state."""
    return [(name, getattr(value, name, None)) for name in _state_names(value)]


def _state_names(value: Any) -> tuple[str, ...]:
    props = getattr(value, "__props__", None)
    if isinstance(props, tuple):
        return props
    fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
    own = [field.name for field in fields]
    return (*own, *sorted(_own_state(value) - set(own)))


def _dtype_text(dtype: np.dtype) -> str:
    """Return a dtype with its field names; native byte order gives one text on every machine."""
    return str(dtype.newbyteorder("<").descr if dtype.isnative else ("swapped", dtype.descr))


def _own_state(value: Any) -> set[str]:
    names = {
        name
        for name in _attributes(value)
        if not (isinstance(item := getattr(value, name), Scratchpad) and not vars(item))
    }
    is_upstream = type(value).__module__.partition(".")[0] == "pytensor"
    return names - _INCIDENTAL if is_upstream else names


def _attributes(value: Any) -> set[str]:
    """Return the attributes that ``value`` itself holds, in its dictionary and in slots."""
    slots = {
        name
        for cls in type(value).__mro__
        for name in _as_names(cls.__dict__.get("__slots__", ()))
        if name not in ("__dict__", "__weakref__") and hasattr(value, name)
    }
    return slots | set(getattr(value, "__dict__", {}))


def _as_names(slots: str | Iterable[str]) -> Iterable[str]:
    return (slots,) if isinstance(slots, str) else slots


def _qualname(function: Any) -> str:
    return str(getattr(function, "__qualname__", function.__name__))


def _resolves(item: Any) -> bool:
    """Whether importing a class or function by its name gives that object; not in ``__main__``."""
    module = sys.modules.get(getattr(item, "__module__", None) or "")
    found: Any = module
    for part in _qualname(item).split("."):
        found = getattr(found, part, None)
    return module is not None and module.__name__ != "__main__" and found is item
