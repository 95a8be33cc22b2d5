"""Which elementwise arithmetic takes long."""

from __future__ import annotations

from pytensor.graph.op import Op
from pytensor.scalar import basic as scalars
from pytensor.tensor.elemwise import Elemwise

_CHEAP = (
    *(scalars.Add, scalars.Sub, scalars.Mul, scalars.Sqr, scalars.Neg, scalars.Abs),
    *(scalars.Identity, scalars.Cast, scalars.Second, scalars.Switch, scalars.Sign),
    *(scalars.Maximum, scalars.Minimum, scalars.ScalarMaximum, scalars.ScalarMinimum),
    *(scalars.LogicalComparison, scalars.IsNan, scalars.IsInf, scalars.TrueDiv),
    *(scalars.Reciprocal, scalars.AND, scalars.OR, scalars.XOR, scalars.Invert, scalars.Sqrt),
)
"""Functions of numbers that are computed as fast as a number is read."""


def is_costly(op: Op | None) -> bool:
    """Whether an Op is an elementwise function such as exp, which takes longer than reading."""
    return isinstance(op, Elemwise) and not isinstance(op.scalar_op, _CHEAP)
