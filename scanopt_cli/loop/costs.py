"""Which elementwise arithmetic takes long, and how much memory an array takes."""

from __future__ import annotations

from math import prod

from pytensor.graph.op import Op
from pytensor.scalar import basic as scalars
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.type import TensorType

_CHEAP = (
    *(scalars.Add, scalars.Sub, scalars.Mul, scalars.Sqr, scalars.Neg, scalars.Abs),
    *(scalars.Identity, scalars.Cast, scalars.Second, scalars.Switch, scalars.Sign),
    *(scalars.Maximum, scalars.Minimum, scalars.ScalarMaximum, scalars.ScalarMinimum),
    *(scalars.LogicalComparison, scalars.IsNan, scalars.IsInf, scalars.TrueDiv),
    *(scalars.Reciprocal, scalars.AND, scalars.OR, scalars.XOR, scalars.Invert, scalars.Sqrt),
)
"""Functions of numbers that are computed as fast as a number is read."""


MEBIBYTE = 1 << 20


def array_bytes(kind: TensorType) -> int | None:
    """Return how many bytes an array of a type takes, ``None`` if not all lengths are known."""
    lengths = [length for length in kind.shape if length is not None]
    is_known = len(lengths) == kind.ndim
    return prod(lengths) * int(kind.numpy_dtype.itemsize) if is_known else None


def is_cheap(op: Op) -> bool:
    """Whether an Op is a function of numbers that takes no longer than reading one."""
    return isinstance(op, _CHEAP)


def is_costly(op: Op | None) -> bool:
    """Whether an Op is an elementwise function such as exp, which takes longer than reading."""
    return isinstance(op, Elemwise) and not is_cheap(op.scalar_op)
