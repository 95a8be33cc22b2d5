"""Copies of an array, which are told apart by a number.

PyTensor merges what is computed alike, and does not look through a ``DeepCopyOp``. So arrays stay
apart that are copied in other ways: as they are, or with an axis of length 1 before or after the
others, which is taken away again. One copy after another makes a number of base 3, so that many
arrays have few copies each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.compile.ops import DeepCopyOp, deep_copy_op
from pytensor.graph.basic import Variable
from pytensor.tensor.elemwise import DimShuffle

_WAYS = (None, 0, -1)
"""Where the axis of length 1 is while an array is copied."""


def numbered_copy(array: Any, number: int) -> Any:
    """Return the copy of this number of an array; 0 is the array itself."""
    if not number:
        return array
    rest, digit = divmod(number - 1, len(_WAYS))
    array, axis = numbered_copy(array, rest), _WAYS[digit]
    if axis is None:
        return _copy(array)
    return pt.squeeze(_copy(pt.expand_dims(array, axis)), axis=axis)


def number_of_copy(variable: Variable) -> tuple[int, Variable]:
    """Return which copy a variable is, and of what."""
    ndim = getattr(variable.type, "ndim", 0)
    digits: list[int] = []
    axis, found = None, (0, variable)
    while True:
        node = variable.owner
        if node is not None and isinstance(node.op, DeepCopyOp):
            digits.append(_WAYS.index(axis))
        elif node is not None and isinstance(node.op, DimShuffle):
            # Those between two copies may be one, as PyTensor merges them.
            ways = [way for way in _WAYS if _moves(node.op, ndim, way, axis)]
            if not ways:
                return found
            axis = ways[0]
        else:
            return found
        variable = node.inputs[0]
        if axis is None and digits:
            found = _number(digits), variable


def copied(variable: Variable) -> Variable | None:
    """Return what a variable is a copy of, ``None`` if it is none."""
    number, source = number_of_copy(variable)
    return source if number else None


def _copy(array: Variable) -> Variable:
    made: Variable = deep_copy_op.make_node(array).outputs[0]
    return made


def _number(digits: Sequence[int]) -> int:
    """Return the number of the digits, of which the last is the most significant."""
    number = 0
    for digit in reversed(digits):
        number = number * len(_WAYS) + digit + 1
    return number


def _moves(op: DimShuffle, ndim: int, before: int | None, after: int | None) -> bool:
    """Whether ``op`` moves, adds or takes away the axis of length 1 beside so many others."""
    if op.input_ndim != ndim + (before is not None):
        return False
    order: list[int | str] = [axis + (before == 0) for axis in range(ndim)]
    if after is not None:
        order.insert(0 if after == 0 else ndim, "x")
    return list(op.new_order) == order
