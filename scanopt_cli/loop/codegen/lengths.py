"""Arithmetic of lengths and of conditions; what is known is computed while code is written."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from scanopt_cli.loop.codegen.values import Length

_LONG = ir.IntType(64)
_TRUTH = ir.IntType(1)
_COMPARED = {"<": operator.lt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne}


def is_same(one: Length, other: Length) -> bool:
    """Whether lengths are known to be equal."""
    return one is other or (isinstance(one, int) and isinstance(other, int) and one == other)


def _is_length(number: int) -> bool:
    return -(1 << 63) <= number < 1 << 63


class LengthWriter:
    """Writes arithmetic of lengths and of conditions.

    Attributes
    ----------
    builder
        Where the next instruction goes.
    """

    builder: Any

    def code(self, length: Length) -> Any:
        """Return a length as an instruction."""
        return _LONG(length) if isinstance(length, int) else length

    def add(self, one: Length, other: Length) -> Length:
        """Return a sum of lengths."""
        if isinstance(one, int) and isinstance(other, int):
            return one + other
        if one == 0 and isinstance(one, int):
            return other
        if other == 0 and isinstance(other, int):
            return one
        return self.builder.add(self.code(one), self.code(other), flags=("nsw",))

    def subtract(self, one: Length, other: Length) -> Length:
        """Return a difference of lengths."""
        if isinstance(one, int) and isinstance(other, int):
            return one - other
        if isinstance(other, int) and other == 0:
            return one
        return self.builder.sub(self.code(one), self.code(other), flags=("nsw",))

    def distance(self, start: Length, stop: Length) -> tuple[Length, Any]:
        """Return ``stop`` less ``start``, and whether that has more bits than a length."""
        if isinstance(start, int) and isinstance(stop, int) and _is_length(stop - start):
            return stop - start, _TRUTH(0)
        if isinstance(start, int) and start == 0:
            return stop, _TRUTH(0)
        found = self.builder.ssub_with_overflow(self.code(stop), self.code(start))
        return self.builder.extract_value(found, 0), self.builder.extract_value(found, 1)

    def multiply(self, one: Length, other: Length) -> Length:
        """Return a product of lengths."""
        if isinstance(one, int) and isinstance(other, int):
            return one * other
        for length, rest in ((one, other), (other, one)):
            if isinstance(length, int) and length in (0, 1):
                return rest if length else 0
        return self.builder.mul(self.code(one), self.code(other), flags=("nsw",))

    def product(self, lengths: Sequence[Length]) -> Length:
        """Return the product of lengths."""
        found: Length = 1
        for length in lengths:
            found = self.multiply(found, length)
        return found

    def is_less(self, one: Length, other: Length) -> Any:
        """Return whether a length is less than another one, as a truth value."""
        return self._compared("<", one, other)

    def differs(self, one: Length, other: Length) -> Any:
        """Return whether lengths differ, as a truth value."""
        return self._compared("!=", one, other)

    def is_at_least(self, one: Length, other: Length) -> Any:
        """Return whether a length is not less than another one."""
        return self._compared(">=", one, other)

    def is_zero(self, length: Length) -> Any:
        """Return whether a length is 0."""
        return self._compared("==", length, 0)

    def quotient(self, one: Length, other: Length) -> Length:
        """Return how often one length, which is not negative, contains another, rounded down."""
        if isinstance(one, int) and isinstance(other, int):
            return one // other
        if isinstance(other, int) and other == 1:
            return one
        return self.builder.sdiv(self.code(one), self.code(other))

    def _compared(self, how: str, one: Length, other: Length) -> Any:
        if isinstance(one, int) and isinstance(other, int):
            return _TRUTH(int(_COMPARED[how](one, other)))
        if one is other:
            return _TRUTH(int(how in (">=", "==")))
        return self.builder.icmp_signed(how, self.code(one), self.code(other))

    def chosen(self, condition: Any, one: Length, other: Length) -> Length:
        """Return ``one`` if a condition holds, else ``other``."""
        if isinstance(condition, ir.Constant):
            return one if condition.constant else other
        return self.builder.select(condition, self.code(one), self.code(other))

    def smaller(self, one: Length, other: Length) -> Length:
        """Return the smaller one of two lengths."""
        return self.chosen(self.is_less(one, other), one, other)

    def larger(self, one: Length, other: Length) -> Length:
        """Return the larger one of two lengths."""
        return self.chosen(self.is_less(one, other), other, one)

    def not_(self, condition: Any) -> Any:
        """Return whether a condition does not hold."""
        if isinstance(condition, ir.Constant):
            return _TRUTH(1 - int(condition.constant))
        return self.builder.not_(condition)

    def both(self, *conditions: Any) -> Any:
        """Return whether all conditions hold."""
        found = _TRUTH(1)
        for condition in conditions:
            if isinstance(condition, ir.Constant):
                if not condition.constant:
                    return condition
            elif isinstance(found, ir.Constant):
                found = condition
            else:
                found = self.builder.and_(found, condition)
        return found

    def either(self, *conditions: Any) -> Any:
        """Return whether one of some conditions holds."""
        return self.not_(self.both(*map(self.not_, conditions)))
