"""Arithmetic that writes LLVM's code: for one float64, or for several in one vector.

A function of `Value` that is written in Python runs once, when its code is made; what it does with
its argument becomes instructions. A choice is made by `where`, since code has no branches, but for
those of `mostly`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import cgutils

_DOUBLE, _SINGLE, _INTEGER = ir.DoubleType(), ir.FloatType(), ir.IntType(64)
_INDEX = ir.IntType(32)
_WIDTH = 8
"""How many numbers of an array are computed at a time; two vectors where they have four."""
# A product and a sum may be one instruction.
_FLAGS = ("contract",)


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A float64, an int64 or a truth value, or a vector of them, in code that is being made."""

    builder: Any
    code: Any

    def _operand(self, other: Any) -> Any:
        if isinstance(other, Value):
            return other.code
        kind = self.code.type
        if isinstance(kind, ir.VectorType):
            return ir.Constant(kind, [other] * kind.count)
        return ir.Constant(kind, other)

    @property
    def _is_integer(self) -> bool:
        kind = self.code.type
        return bool(getattr(kind, "element", kind) == _INTEGER)

    def _made(self, name: str, other: Any) -> Value:
        operands = self.code, self._operand(other)
        if self._is_integer:
            return Value(self.builder, getattr(self.builder, name)(*operands))
        return Value(self.builder, getattr(self.builder, f"f{name}")(*operands, flags=_FLAGS))

    def __add__(self, other: Any) -> Value:
        return self._made("add", other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Value:
        return self._made("sub", other)

    def __rsub__(self, other: Any) -> Value:
        return Value(self.builder, self._operand(other)) - self

    def __mul__(self, other: Any) -> Value:
        return self._made("mul", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Value:
        return self._made("div", other)

    def __rtruediv__(self, other: Any) -> Value:
        return Value(self.builder, self._operand(other)) / self

    def __neg__(self) -> Value:
        return Value(self.builder, self.builder.fneg(self.code))

    def __lshift__(self, count: int) -> Value:
        return Value(self.builder, self.builder.shl(self.code, self._operand(count)))

    def __rshift__(self, count: int) -> Value:
        return Value(self.builder, self.builder.ashr(self.code, self._operand(count)))

    def shifted_right(self, count: int) -> Value:
        """The bits of an int64 further right, with zeros in their place."""
        return Value(self.builder, self.builder.lshr(self.code, self._operand(count)))

    def __and__(self, other: Any) -> Value:
        return Value(self.builder, self.builder.and_(self.code, self._operand(other)))

    def __or__(self, other: Any) -> Value:
        return Value(self.builder, self.builder.or_(self.code, self._operand(other)))

    def __invert__(self) -> Value:
        return Value(self.builder, self.builder.not_(self.code))

    def __lt__(self, other: Any) -> Value:
        return self._compared("<", other)

    def __gt__(self, other: Any) -> Value:
        return self._compared(">", other)

    def is_equal(self, other: Any) -> Value:
        """Whether two numbers are equal, which NaN never is."""
        return self._compared("==", other)

    def _compared(self, operator: str, other: Any) -> Value:
        code = self.builder.fcmp_ordered(operator, self.code, self._operand(other))
        return Value(self.builder, code)

    def is_below(self, other: int) -> Value:
        """Whether integers are below another one; those that are negative are not."""
        code = self.builder.icmp_unsigned("<", self.code, self._operand(other))
        return Value(self.builder, code)

    def where(self, condition: Value, other: Any) -> Value:
        """Return ``other`` where a condition holds, and this value elsewhere."""
        choice = self.builder.select(condition.code, self._operand(other), self.code)
        return Value(self.builder, choice)

    def mostly(
        self, condition: Value, usual: Callable[[Value], Value], general: Callable[[Value], Value]
    ) -> Value:
        """Return ``usual`` of a vector if a condition holds for all its numbers, else ``general``.

        Of one number it is ``general``, since LLVM makes no vectors of code that has branches.
        """
        kind = condition.code.type
        if not isinstance(kind, ir.VectorType):
            return general(self)
        mask = ir.IntType(kind.count)
        word = self.builder.bitcast(condition.code, mask)
        holds = self.builder.icmp_unsigned("==", word, ir.Constant(mask, -1))
        with self.builder.if_else(holds, likely=True) as (then, otherwise):
            with then:
                one, first = usual(self), self.builder.block
            with otherwise:
                other, second = general(self), self.builder.block
        result = self.builder.phi(one.code.type)
        result.add_incoming(one.code, first)
        result.add_incoming(other.code, second)
        return Value(self.builder, result)

    @property
    def bits(self) -> Value:
        """The bits of a float64 as an int64."""
        return self._cast(_INTEGER)

    @property
    def number(self) -> Value:
        """The float64 that has the bits of an int64."""
        return self._cast(_DOUBLE)

    def _cast(self, kind: Any) -> Value:
        own = self.code.type
        target = ir.VectorType(kind, own.count) if isinstance(own, ir.VectorType) else kind
        return Value(self.builder, self.builder.bitcast(self.code, target))


def of_codes(builder: Any, function: Callable[[Value], Value], numbers: Sequence[Any]) -> list[Any]:
    """Return the instructions for ``function`` of each of some numbers, which are one vector.

    They are of float64, or of float32, of which it is computed in float64.
    """
    if len(numbers) == 1:
        return [_applied(builder, function, numbers[0])]
    kind = ir.VectorType(numbers[0].type, len(numbers))
    vector = ir.Constant(kind, ir.Undefined)
    for i, number in enumerate(numbers):
        vector = builder.insert_element(vector, number, _INDEX(i))
    result = _applied(builder, function, vector)
    return [builder.extract_element(result, _INDEX(i)) for i in range(len(numbers))]


def _applied(builder: Any, function: Callable[[Value], Value], code: Any) -> Any:
    """Return the instruction for ``function`` of a number or a vector."""
    kind = code.type
    if getattr(kind, "element", kind) == _DOUBLE:
        return function(Value(builder, code)).code
    wide = ir.VectorType(_DOUBLE, kind.count) if isinstance(kind, ir.VectorType) else _DOUBLE
    made = function(Value(builder, builder.fpext(code, wide))).code
    return builder.fptrunc(made, kind)


def replace_numbers(
    builder: Any, function: Callable[[Value], Value], data: Any, count: Any
) -> None:
    """Write what replaces each of ``count`` numbers, which follow each other, by its function.

    They are of float64 or float32, as for `of_codes`.
    """
    width, zero = count.type(_WIDTH), count.type(0)
    if isinstance(count, ir.Constant) and count.constant <= 2 * _WIDTH:
        # Two whole vectors are computed beside each other.
        most = 2 * _WIDTH if count.constant == 2 * _WIDTH else _WIDTH
        for first in range(0, count.constant, most):
            n = min(most, count.constant - first)
            _replace_few(builder, function, builder.gep(data, [count.type(first)]), n)
        return
    n_rest = builder.urem(count, width)
    n_whole = builder.sub(count, n_rest)
    with cgutils.for_range_slice(builder, zero, n_whole, width) as (i, _):
        _replace_vector(builder, function, builder.gep(data, [i]))
    # What is left of the array is computed in a vector of its own.
    kind = ir.VectorType(data.type.pointee, _WIDTH)
    rest = cgutils.alloca_once_value(builder, ir.Constant(kind, [1.0] * _WIDTH))
    numbers = builder.bitcast(rest, data.type)
    with builder.if_then(builder.icmp_unsigned("!=", n_rest, zero)):
        start = builder.gep(data, [n_whole])
        with cgutils.for_range(builder, n_rest) as loop:
            number = builder.load(builder.gep(start, [loop.index]))
            builder.store(number, builder.gep(numbers, [loop.index]))
        _replace_vector(builder, function, numbers)
        with cgutils.for_range(builder, n_rest) as loop:
            number = builder.load(builder.gep(numbers, [loop.index]))
            builder.store(number, builder.gep(start, [loop.index]))


def _replace_vector(
    builder: Any, function: Callable[[Value], Value], data: Any, n: int = _WIDTH
) -> None:
    """Write what replaces the ``n`` numbers of a vector, which begins at a pointer."""
    kind = data.type.pointee
    place = builder.bitcast(data, ir.VectorType(kind, n).as_pointer())
    align = 4 if kind == _SINGLE else 8
    old = builder.load(place, align=align)
    builder.store(_applied(builder, function, old), place, align=align)


def _replace_few(builder: Any, function: Callable[[Value], Value], data: Any, n: int) -> None:
    """Write what replaces ``n`` numbers, up to two vectors, in as short a one as there is."""
    if n % _WIDTH == 0:
        _replace_vector(builder, function, data, n)
        return
    places = [builder.gep(data, [_INDEX(i)]) for i in range(n)]
    more = (1 << (n - 1).bit_length()) - n
    numbers = [*map(builder.load, places), *[ir.Constant(data.type.pointee, 1.0)] * more]
    for place, number in zip(places, of_codes(builder, function, numbers), strict=False):
        builder.store(number, place)
