"""Computations in float64 that give the same bits in float32.

Rounding twice, first to 53 bits and then to 24, gives what rounding once to 24 bits gives, for one
sum, difference, product, quotient or square root of numbers of 24 bits: S. A. Figueroa, "When is
double rounding innocuous?", SIGNUM Newsletter 30(3), 1995, proves it where the wide format has at
least 2p+2 bits, and 53 >= 2*24+2. That is for numbers that are normal in float32. For the others:

- Sums and differences are multiples of the smallest subnormal number. Those too small to be normal
  are exact in float32. Products are exact in float64: 48 bits, and no exponent is too small for it.
- A quotient that is subnormal in float32 has k < 24 bits there. It is no nearer to the middle of
  two of these, unless it is that middle, than 2**-48 of its size, and float64 moves it by 2**-53 at
  most: so not to the middle, nor across. Square roots are never so small.
- What overflows is what would be 2**128 or more if exponents had no bound, and there the theorem
  holds. Infinities, signs of zeros and NaN come of the operands in the same way in both formats.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.scalar import basic as ps
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.type import TensorType

SINGLE, DOUBLE = "float32", "float64"
_HELD = frozenset({SINGLE, "float16", "bool", "int8", "uint8", "int16", "uint16"})
"""The dtypes of which float32 holds every number."""
_SUMS, _PRODUCTS = (ps.Add, ps.Sub), (ps.Mul, ps.TrueDiv)
_MOST_DEEP = 50


def is_cast(variable: Variable, to: str) -> bool:
    """Whether a variable is cast to a dtype."""
    return _is_elemwise(variable.owner, ps.Cast) and _dtype(variable) == to


def computed_in(update: Variable) -> str | None:
    """Return the precision in which a value is computed before it is cast to another one."""
    node = update.owner
    if node is None or not _is_elemwise(node, ps.Cast):
        return None
    (computed,) = node.inputs
    before, after = _dtype(computed), _dtype(update)
    is_float = before.startswith("float") and after.startswith("float")
    # A step that reads a float64 as it is, and returns it as a float32, does no arithmetic.
    return before if is_float and before != after and computed.owner is not None else None


class SingleEquivalents:
    """Finds variables of float32 that are equal to those of float64, and makes them.

    ``varying`` are the inputs of a step that are not the same in every step.
    """

    def __init__(self, varying: Collection[Variable] = ()) -> None:
        self._varying = varying
        self._same: dict[Variable, Variable | None] = {}
        self._rounded: dict[Variable, Variable | None] = {}

    def same(self, variable: Variable, deep: int = 0) -> Variable | None:
        """Return a variable of float32 that always has the value of ``variable``, if there is one.

        It is a constant that float32 holds, what was cast from a dtype that float32 holds, or the
        negative, absolute value, maximum, minimum or choice of such.
        """
        if variable not in self._same:
            self._same[variable] = self._find_same(variable, deep)
        return self._same[variable]

    def rounded(self, variable: Variable, deep: int = 0) -> Variable | None:
        """Return a variable of float32 that always has the value of ``variable`` cast to that.

        Between the cast and operands that float32 holds, there is one operation that rounds.
        """
        if variable not in self._rounded:
            same = self.same(variable, deep)
            found = self._find_rounded(variable, deep) if same is None else same
            self._rounded[variable] = found
        return self._rounded[variable]

    def _find_same(self, variable: Variable, deep: int) -> Variable | None:
        if not isinstance(variable.type, TensorType) or deep > _MOST_DEEP:
            return None
        if variable.type.dtype == SINGLE:
            return variable
        if isinstance(variable, Constant):
            return _constant_in_single(variable)
        node = variable.owner
        if variable.type.dtype in _HELD:
            held: Variable = pt.cast(variable, SINGLE)
            return held
        if node is None or variable.type.dtype != DOUBLE:
            return None
        if _is_elemwise(node, ps.Cast):
            (before,) = node.inputs
            return self.same(before, deep + 1) if _dtype(before) in _HELD else None
        if isinstance(node.op, DimShuffle) or _is_elemwise(
            node, ps.Neg, ps.Abs, ps.ScalarMaximum, ps.ScalarMinimum
        ):
            return _made(node, [self.same(v, deep + 1) for v in node.inputs])
        if _is_elemwise(node, ps.Switch):
            condition, *branches = node.inputs
            return _made(node, [condition, *(self.same(v, deep + 1) for v in branches)])
        return None

    def _find_rounded(self, variable: Variable, deep: int) -> Variable | None:
        node = variable.owner
        if node is None or _dtype(variable) != DOUBLE or deep > _MOST_DEEP:
            return None
        if _is_elemwise(node, ps.Sqrt) or (
            _is_elemwise(node, *_SUMS, *_PRODUCTS) and len(node.inputs) == 2
        ):
            operands = [self.same(v, deep + 1) for v in node.inputs]
            if _is_elemwise(node, ps.TrueDiv) and not self._may_divide(node.inputs[1]):
                return None
            if any(v is not None and _are_regrouped(node, _bare(v).owner) for v in operands):
                return None
            return _made(node, operands)
        # Rounding is symmetric, and does not change what is chosen.
        if isinstance(node.op, DimShuffle) or _is_elemwise(node, ps.Neg, ps.Abs):
            return _made(node, [self.rounded(v, deep + 1) for v in node.inputs])
        if _is_elemwise(node, ps.Switch):
            condition, *branches = node.inputs
            return _made(node, [condition, *(self.rounded(v, deep + 1) for v in branches)])
        return None

    def _may_divide(self, divisor: Variable) -> bool:
        """Whether a divisor is none by whose reciprocal PyTensor would multiply, rounding that."""
        bare = _bare(divisor)
        if isinstance(bare, Constant):
            mantissa, _ = np.frexp(np.asarray(bare.data))
            return bool(np.all(np.abs(mantissa) == 0.5))
        return not set(self._varying).isdisjoint(ancestors([divisor]))


def is_regrouped_by(made: Variable, reader: Apply | None) -> bool:
    """Whether PyTensor may make one sum, or one product, of a variable and one that reads it."""
    node = _bare(made).owner
    hands_on = reader is not None and _hands_on(reader)
    return node is not None and (_are_regrouped(node, reader) or hands_on)


def _are_regrouped(node: Apply, other: Apply | None) -> bool:
    families = (_SUMS, _PRODUCTS)
    return any(_is_elemwise(node, *kinds) and _is_elemwise(other, *kinds) for kinds in families)


def _bare(variable: Variable) -> Variable:
    """Return a variable before its signs and axes were changed."""
    while variable.owner is not None and _hands_on(variable.owner):
        variable = variable.owner.inputs[0]
    return variable


def _hands_on(node: Apply) -> bool:
    return isinstance(node.op, DimShuffle) or _is_elemwise(node, ps.Neg)


def _constant_in_single(constant: Constant) -> Variable | None:
    value: Any = np.asarray(constant.data)
    if value.dtype.kind not in "biuf":
        return None
    if value.dtype.kind in "iu" and np.any(np.abs(value.astype(DOUBLE)) > 2**24):
        return None
    with np.errstate(all="ignore"):
        single = value.astype(SINGLE)
    if not np.array_equal(single.astype(DOUBLE), value.astype(DOUBLE), equal_nan=True):
        return None
    made: Variable = pt.constant(single, name=constant.name)
    return made


def _made(node: Apply, operands: list[Variable | None]) -> Variable | None:
    """Return what the Op of ``node`` makes of operands in float32, if that is a float32."""
    if any(operand is None for operand in operands):
        return None
    made: Variable = node.op.make_node(*operands).outputs[0]
    return made if _dtype(made) == SINGLE else None


def _is_elemwise(node: Apply | None, *kinds: type[ps.ScalarOp]) -> bool:
    """Whether a node applies a scalar operation of these kinds, and not in place."""
    return (
        node is not None
        and isinstance(node.op, Elemwise)
        and not node.op.inplace_pattern
        and isinstance(node.op.scalar_op, kinds)
    )


def _dtype(variable: Variable) -> str:
    return str(getattr(variable.type, "dtype", ""))
