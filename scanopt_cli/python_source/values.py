"""Values as expressions: numbers, arrays, classes, Types, and Ops by their constructors."""

from __future__ import annotations

import dataclasses
import inspect
import math
import sys
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from enum import Enum
from typing import Any, cast

import numpy as np
import pytensor.scalar as ps
from pytensor.assumptions.specify import SpecifyAssumptions
from pytensor.graph.op import Op
from pytensor.graph.type import Type
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.random.type import random_generator_type
from pytensor.tensor.type import TensorType

from scanopt_cli.python_source.code import (
    Binding,
    Code,
    LongConstant,
    Reference,
    call,
    code,
    listed,
    paired,
    quoted,
    reference_to,
    text,
)
from scanopt_cli.serialization.unpickler.constructors import argument_sources

SHORT = 12
"""The most entries of an array that stands in the script itself."""
_LONGEST = 60
_SHAPES = ("scalar", "vector", "matrix", "tensor3", "tensor4", "tensor5", "tensor6", "tensor7")


class CannotBeWrittenError(Exception):
    """There is no expression for a value."""


def numpy_name(name: str) -> Code:
    """Return a name of NumPy's: ``np.inf``."""
    return code("{}", Reference("numpy", name))


def number(value: Any) -> Code:
    """Return a number as a literal; of a float32, the shortest that is read as it."""
    if isinstance(value, np.bool | bool):
        return text(str(bool(value)))
    if isinstance(value, np.integer | int):
        return _signed(str(int(value)))
    if isinstance(value, np.floating | float):
        if math.isnan(value):
            return numpy_name("nan")
        if math.isinf(value):
            infinite = numpy_name("inf")
            return infinite if value > 0 else code("-{}", infinite, binding=Binding.UNARY)
        shortest = str(value) if isinstance(value, np.floating) else repr(value)
        return _signed(repr(float(shortest)))
    if isinstance(value, np.complexfloating | complex):
        return code("complex({}, {})", number(value.real), number(value.imag))
    raise CannotBeWrittenError(f"a {type(value).__name__}")


def _signed(literal: str) -> Code:
    return Code((literal,), Binding.UNARY if literal.startswith("-") else Binding.ATOM)


def entries(array: np.ndarray[Any, Any]) -> Code:
    """Return the entries of an array, as numbers in lists."""
    if array.ndim == 0:
        return number(array[()])
    return listed([entries(row) for row in array])


def is_short(array: np.ndarray[Any, Any]) -> bool:
    """Whether an array may stand in the script itself."""
    # An array of no entries may have many rows.
    return array.dtype.kind in "biufc" and max(array.size, *array.shape, 0) <= SHORT


def array_code(array: np.ndarray[Any, Any], hint: str | None) -> Code:
    """Return an array as an expression; a long one is in the file beside the script."""
    if is_short(array):
        made = code("{}({}, dtype={})", _array, entries(array), quoted(str(array.dtype)))
        if _is_same(made, array):
            return made
    if array.dtype.kind not in "biufc":
        raise CannotBeWrittenError(f"an array of {array.dtype}")
    return code("{}", LongConstant(array, hint))


_array = Reference("numpy", "array")


def _is_same(made: Code, array: np.ndarray[Any, Any]) -> bool:
    found = made.evaluate(value_of_reference)
    same_kind = found.dtype == array.dtype and found.shape == array.shape
    return bool(same_kind and found.tobytes() == array.tobytes())


def value_of_reference(leaf: Any) -> Any:
    """Return what a leaf refers to that is no operand."""
    return leaf.value


class ValueCodes:
    """Expressions for values; ``op_code`` writes the Ops among them that hold graphs."""

    def __init__(self, op_code: Callable[[Op], Code | None]) -> None:
        self._op_code = op_code

    def of(self, value: Any) -> Code:
        """Return an expression for ``value``.

        Raises
        ------
        CannotBeWrittenError
            If there is none.
        """
        match value:
            case Enum() if str(value.name).isidentifier():
                return code(f"{{}}.{value.name}", self._named(type(value)))
            case str() if type(value) is str:
                return quoted(value)
            case None | bool() | bytes() if type(value) in (type(None), bool, bytes):
                return text(repr(value))
            case np.generic():
                return array_code(np.asarray(value), None)
            case int() | float() | complex():
                return number(value)
            case tuple() if type(value) is tuple:
                return paired([self.of(part) for part in value]) if value else text("()")
            case list():
                return listed([self.of(part) for part in value])
            case frozenset():
                parts = sorted((self.of(part) for part in value), key=lambda part: str(part.parts))
                return call(text("frozenset"), [listed(parts)])
            case Mapping():
                return self._mapping(value)
            case slice():
                return call(
                    text("slice"), [self.of(p) for p in (value.start, value.stop, value.step)]
                )
            case np.dtype():
                return call(Reference("numpy", "dtype"), [quoted(value.str)])
            case np.ndarray():
                return array_code(value, None)
            case type():
                return code("{}", self._named(value))
            case Type():
                return self.type_code(value)
            case Op():
                return self.op(value)
            case _ if dataclasses.is_dataclass(value):
                fields = {
                    f.name: self.of(getattr(value, f.name)) for f in dataclasses.fields(value)
                }
                return call(self._named(type(value)), (), fields)
            case _ if callable(value):
                return code("{}", self._named(value))
        return self._constant_of_a_module(value)

    def _constant_of_a_module(self, value: Any) -> Code:
        """Return an object that the module of its class has a name for."""
        module = type(value).__module__
        for name, item in vars(sys.modules[module]).items():
            if item is value and module != "__main__":
                return code("{}", Reference(module, name))
        raise CannotBeWrittenError(f"a value of type {type(value).__name__}")

    def _mapping(self, value: Mapping[Any, Any]) -> Code:
        items = [code("{}: {}", self.of(key), self.of(item)) for key, item in value.items()]
        joined = ", ".join(["{}"] * len(items))
        pieces = joined.split("{}")
        parts: list[Any] = ["{" + pieces[0]]
        for item, piece in zip(items, pieces[1:], strict=True):
            parts += [item, piece]
        return Code((*parts, "}"))

    def _named(self, item: Any) -> Reference:
        found = reference_to(item)
        if found is None:
            raise CannotBeWrittenError(
                f"{getattr(item, '__qualname__', item)}, which has no module"
            )
        return found

    def op(self, op: Op) -> Code:
        """Return an Op: by its public name, by a definition, or by its constructor."""
        known = self._op_code(op)
        return self.constructed(op) if known is None else known

    def constructed(self, item: Any) -> Code:
        """Return a call of the constructor of an Op or Type, by its properties."""
        cls = type(item)
        return call(self._named(cls), (), self.arguments(item))

    def arguments(self, item: Any, *, without: Collection[str] = ()) -> dict[str, Code]:
        """Return the arguments of a constructor that makes ``item``, but for its defaults."""
        cls = type(item)
        defaults = {
            name: parameter.default for name, parameter in inspect.signature(cls).parameters.items()
        }
        found = {}
        for argument, attribute in argument_sources(cast(Hashable, cls)):
            if argument in without or not hasattr(item, attribute):
                continue
            value = getattr(item, attribute)
            if isinstance(item, SpecifyAssumptions):
                value = dict(value)
            default = defaults.get(argument, inspect.Parameter.empty)
            is_none = default is None and isinstance(value, Mapping) and not value
            if not is_none and not (type(default) is type(value) and _are_equal(default, value)):
                found[argument] = self.of(value)
        return found

    def type_code(self, kind: Type) -> Code:
        """Return a Type as an expression."""
        return self.constructed(kind)

    def variable(self, kind: Type, name: str | None) -> Code:
        """Return a new variable of a Type, by the function of PyTensor that makes those."""
        named = [] if name is None else [quoted(str(name))]
        if type(kind) is TensorType:
            dtype = quoted(kind.dtype)
            if any(length is not None for length in kind.shape) or kind.ndim >= len(_SHAPES):
                shape = paired([self.of(length) for length in kind.shape])
                options = {"dtype": dtype, "shape": shape}
                return call(Reference("pytensor.tensor", "tensor"), named, options)
            function = Reference("pytensor.tensor", _SHAPES[kind.ndim])
            return call(function, named, {"dtype": dtype})
        if type(kind) is ScalarType and getattr(ps, kind.dtype, None) == kind:
            return call(Reference("pytensor.scalar", kind.dtype), named)
        if kind == random_generator_type:
            made = Reference("pytensor.tensor.random.type", "random_generator_type")
            return call(made, named)
        return call(self.type_code(kind), named)

    def variables(self, kinds: Sequence[Type]) -> Code:
        """Return a list of new variables, one of each Type."""
        if len(kinds) > 2 and all(kind == kinds[0] for kind in kinds):
            return code(f"[{{}} for _ in range({len(kinds)})]", self.variable(kinds[0], None))
        return listed([self.variable(kind, None) for kind in kinds])


def _are_equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:
        return False


def snake_case(name: str) -> Sequence[str]:
    """Return how functions for a class are called: ``solve_triangular`` for ``SolveTriangular``."""
    spaced = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return spaced.lstrip("_"), name.lower()


def shown(value: Any) -> str:
    """Return a value as text for an error."""
    return str(value)[:_LONGEST]
