"""Interval analysis: bounds of the entries of an array, for all inputs of the graph.

Ranges are read off expressions: a sigmoid lies between 0 and 1, a sum of two such between 0 and 2.
They bound every entry that is not NaN, nor computed of one. What is not known lies between minus
and plus infinity, of integers between the smallest and the largest number of the dtype. Complex
numbers have no order, and so no range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from pytensor.compile.ops import DeepCopyOp
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar import basic as ps
from pytensor.scalar import math as psm
from pytensor.tensor.basic import Alloc, Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Max, Min, Sum
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.special import Softmax
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from scanopt_cli.ir.slots import SlotKind, SlotView

# Expressions are shallow. Past so many nested queries, nothing is known.
_DEPTH = 60
_SMALLEST = math.ulp(0.0)


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers from ``low`` to ``high``, both included."""

    low: float = -math.inf
    high: float = math.inf

    def __contains__(self, number: float) -> bool:
        """Whether a number lies in the range."""
        return self.low <= number <= self.high

    def is_within(self, other: Range) -> bool:
        """Whether all of its numbers are in the other range."""
        return other.low <= self.low and self.high <= other.high

    def __or__(self, other: Range) -> Range:
        """Return the smallest range that has both."""
        return Range(min(self.low, other.low), max(self.high, other.high))

    def __add__(self, other: Range) -> Range:
        """Return where the sums lie."""
        return Range(self.low + other.low, self.high + other.high)

    def __neg__(self) -> Range:
        """Return where the negated numbers lie."""
        return Range(-self.high, -self.low)

    def __mul__(self, other: Range) -> Range:
        """Return where the products lie."""
        pairs = product((self.low, self.high), (other.low, other.high))
        # An infinity stands for numbers that are as large as you like, and zero times each is zero.
        found = [0.0 if 0 in pair else pair[0] * pair[1] for pair in pairs]
        return Range(min(found), max(found))

    def of_monotone(self, function: Callable[[float], float]) -> Range:
        """Return where the values of a function lie that never falls."""
        return Range(function(self.low), function(self.high))


ANY = Range()
_UNIT = Range(0.0, 1.0)
_NOT_NEGATIVE = Range(0.0, math.inf)


def of_dtype(dtype: str) -> Range:
    """Return what a dtype can hold."""
    if dtype == "bool":
        return _UNIT
    if dtype.startswith(("int", "uint")):
        info = np.iinfo(dtype)
        return Range(int(info.min), int(info.max))
    return ANY


class ValueRanges:
    """Reads ranges off a graph, each expression once.

    Parameters
    ----------
    known
        Ranges of variables that are not read off.
    """

    def __init__(self, known: Mapping[Variable, Range] | None = None) -> None:
        self._known: dict[Variable, Range] = dict(known or {})
        self._nested = 0

    def of(self, variable: Variable) -> Range:
        """Return where the entries of a variable lie."""
        if variable not in self._known:
            dtype = str(getattr(variable.type, "dtype", ""))
            held = of_dtype(dtype)
            found = ANY
            if self._nested < _DEPTH:
                self._nested += 1
                found = self._read(variable)
                self._nested -= 1
            if dtype.startswith("complex") or math.isnan(found.low) or math.isnan(found.high):
                found = ANY
            # An integer that does not fit wraps, to any other.
            self._known[variable] = found if found.is_within(held) else held
        return self._known[variable]

    def _read(self, variable: Variable) -> Range:
        if isinstance(variable, Constant):
            return _of_data(variable.data)
        node = variable.owner
        if node is None:
            return ANY
        op = node.op
        match op:
            case Elemwise():
                return self._elementwise(op.scalar_op, [self.of(v) for v in node.inputs], node)
            case DimShuffle() | Subtensor() | AdvancedSubtensor() | Reshape() | SpecifyShape():
                return self.of(node.inputs[0])
            case JoinDims() | SplitDims() | CheckAndRaise() | DeepCopyOp() | Max() | Min():
                return self.of(node.inputs[0])
            case ScalarFromTensor() | TensorFromScalar() | Alloc():
                return self.of(node.inputs[0])
            case MakeVector() if node.inputs:
                return _hull([self.of(v) for v in node.inputs])
            case Join():
                return _hull([self.of(v) for v in node.inputs])
            case Shape() | Shape_i():
                return Range(0, of_dtype("int64").high)
            case Softmax():
                return _UNIT
            case Sum():
                return _of_sum(self.of(node.inputs[0]))
            case Dot():
                return _of_sum(self.of(node.inputs[0]) * self.of(node.inputs[1]))
        return ANY

    def _elementwise(self, op: ps.ScalarOp, parts: Sequence[Range], node: Apply) -> Range:
        first = parts[0] if parts else ANY
        match op:
            case ps.Add():
                return sum(parts[1:], first)
            case ps.Sub():
                return first + -parts[1]
            case ps.Neg():
                return -first
            case ps.Mul():
                if len(parts) == 2 and node.inputs[0] is node.inputs[1]:
                    return _square(first)
                return math.prod(parts[1:], start=first)
            case ps.Switch():
                return parts[1] | parts[2]
            case ps.Cast():
                return _of_cast(first, node.outputs[0].type.dtype)
            case ps.TrueDiv() if parts[1].low > 0:
                return first * Range(_reciprocal(parts[1].high), _reciprocal(parts[1].low))
            case ps.Reciprocal() if first.low > 0:
                return Range(_reciprocal(first.high), _reciprocal(first.low))
            case ps.Pow() if (power := _number(node.inputs[1])) is not None:
                return _power(first, power)
            case ps.Mod() if (divisor := _number(node.inputs[1])) is not None and divisor > 0:
                return Range(0, divisor)
            case ps.ScalarMaximum():
                return Range(max(p.low for p in parts), max(p.high for p in parts))
            case ps.ScalarMinimum():
                return Range(min(p.low for p in parts), min(p.high for p in parts))
            case ps.Clip():
                return _of_clip(first, parts[1], parts[2])
        return _of_function(op, first)


def step_ranges(view: SlotView) -> ValueRanges:
    """Return the ranges in a step: of its sequences and non-sequences, those outside the loop."""
    outside = ValueRanges()
    fed = view.of_kind(SlotKind.SEQ, SlotKind.NON_SEQ, SlotKind.CONSTANT)
    return ValueRanges({slot.inner_inputs[0]: outside.of(slot.outer_input) for slot in fed})


def _of_function(op: ps.ScalarOp, first: Range) -> Range:
    """Return where the values of a function of one argument lie."""
    match op:
        case ps.Exp() | ps.Exp2():
            base = math.e if isinstance(op, ps.Exp) else 2.0
            # It may underflow, but is no zero.
            return first.of_monotone(lambda x: max(_exp(x, base), _SMALLEST))
        case psm.Sigmoid():
            return first.of_monotone(lambda x: 1.0 / (1.0 + _exp(-x, math.e)))
        case psm.Softplus():
            return Range(_SMALLEST)
        case ps.Sqr():
            return _square(first)
        case ps.Abs():
            return Range(0.0 if 0 in first else min(abs(first.low), abs(first.high)), _most(first))
        case ps.Sqrt():
            return Range(math.sqrt(max(first.low, 0.0)), math.sqrt(max(first.high, 0.0)))
        case ps.Tanh():
            return first.of_monotone(math.tanh)
        case ps.Sin() | ps.Cos() | psm.Erf() | ps.Sign():
            return Range(-1.0, 1.0)
        case psm.Erfc():
            return Range(0.0, 2.0)
        case ps.Cosh():
            return Range(1.0)
    return ANY


def _of_cast(values: Range, dtype: str) -> Range:
    """Return where numbers lie once they are cast to a dtype."""
    if dtype == "bool":
        # Every number but 0 is true, 0.2 as well.
        return Range(int(0 not in values), int(values != Range(0, 0)))
    if dtype.startswith("float"):
        return values
    # A fraction loses what is behind the point. What does not fit wraps, to any other number.
    held = of_dtype(dtype)
    is_finite = math.isfinite(values.low) and math.isfinite(values.high)
    whole = values.of_monotone(math.trunc) if is_finite else ANY
    return whole if whole.is_within(held) else held


def _of_clip(values: Range, least: Range, most: Range) -> Range:
    """Return where numbers lie that are no less than ``least`` and no more than ``most``.

    Where ``least`` is more than ``most``, they are one or the other.
    """
    low, high = max(values.low, least.low), min(values.high, most.high)
    return Range(
        min(low, most.low) if values.high > most.low else low,
        max(high, least.high) if values.low < least.high else high,
    )


def _of_data(data: Any) -> Range:
    values = np.asarray(data)
    if values.dtype.kind not in "biuf" or not values.size:
        return ANY
    low, high = values.min().item(), values.max().item()
    return ANY if math.isnan(low) or math.isnan(high) else Range(low, high)


def _hull(ranges: Sequence[Range]) -> Range:
    return Range(min(r.low for r in ranges), max(r.high for r in ranges))


def _of_sum(terms: Range) -> Range:
    """Return where a sum of any number of terms lies, which may be none."""
    low = 0.0 if terms.low >= 0 else -math.inf
    return Range(low, 0.0 if terms.high <= 0 else math.inf)


def _most(values: Range) -> float:
    return max(abs(values.low), abs(values.high))


def _square(values: Range) -> Range:
    least = 0.0 if 0 in values else min(abs(values.low), abs(values.high))
    return Range(least * least, _most(values) * _most(values))


def _power(base: Range, power: float) -> Range:
    if power == 2:
        return _square(base)
    if power % 2 == 0 and power > 0:
        return _NOT_NEGATIVE
    if base.low >= 0 and power > 0:
        return base.of_monotone(lambda x: _bounded(lambda: x**power))
    return _NOT_NEGATIVE if base.low > 0 else ANY


def _exp(x: float, base: float) -> float:
    return _bounded(lambda: base**x)


def _bounded(compute: Callable[[], float]) -> float:
    try:
        return compute()
    except OverflowError:
        return math.inf


def _reciprocal(x: float) -> float:
    return _bounded(lambda: 1.0 / x)


def _number(variable: Variable) -> float | None:
    entry = entry_of_constant(variable)
    found: float | None = None if entry is None else entry.item()
    return found


def entry_of_constant(variable: Variable) -> Any:
    """Return the number that every entry of a constant is, in its dtype.

    ``None`` if the variable is no constant, or its entries differ.
    """
    while variable.owner is not None and isinstance(variable.owner.op, DimShuffle):
        variable = variable.owner.inputs[0]
    if not isinstance(variable, Constant):
        return None
    data = np.asarray(variable.data)
    is_one = data.dtype.kind in "biuf" and data.size and (data == data.flat[0]).all()
    return data.flat[0] if is_one else None
