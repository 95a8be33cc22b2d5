"""Finds the variables of a body that are zero if given inputs are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import toposort
from pytensor.scalar import basic as ps
from pytensor.scalar import math as psm
from pytensor.tensor.basic import Alloc, Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import AdvancedSubtensor, IncSubtensor, Subtensor

from scanopt_cli.ir.inner_graphs import core_op

# Functions that are 0 at 0.
_THROUGH_ZERO = (
    *(ps.Neg, ps.Abs, ps.Sqr, ps.Sqrt, ps.Sign, ps.Cast, ps.Identity, ps.Expm1, ps.Log1p),
    *(ps.Sin, ps.Tan, ps.ArcSin, ps.ArcTan, ps.Sinh, ps.Tanh, ps.ArcSinh, ps.ArcTanh, psm.Erf),
)


def zeros_among(outputs: Sequence[Variable], zero_inputs: Iterable[Variable]) -> set[Variable]:
    """Return the ancestors of ``outputs`` that are provably zero if ``zero_inputs`` are.

    ``zero_inputs`` are included. The sign of a zero is ignored, and zero times infinity is taken to
    be zero, as PyTensor's own rewrites do.
    """
    found = set(zero_inputs)
    for node in toposort(outputs):
        if len(node.outputs) == 1 and _is_zero_node(node, found):
            found.add(node.outputs[0])
    found.update(variable for variable in outputs if _is_zero(variable, found))
    return found


def _is_zero(variable: Variable, zeros: set[Variable]) -> bool:
    if isinstance(variable, Constant):
        data = variable.data
        return isinstance(data, np.ndarray | np.generic | float | int) and not np.any(data)
    return variable in zeros


def _is_zero_node(node: Apply, zeros: set[Variable]) -> bool:
    op: Any = core_op(node.op)
    known = [_is_zero(variable, zeros) for variable in node.inputs]
    match op:
        case Elemwise(scalar_op=ps.Mul()) | Dot():
            return any(known)
        case Elemwise(scalar_op=ps.Add() | ps.Sub()) | MakeVector() | Join():
            return all(known)
        case Elemwise(scalar_op=ps.TrueDiv()):
            return known[0]
        case Elemwise(scalar_op=ps.Second()):
            return known[1]
        case Elemwise(scalar_op=ps.Switch()):
            return known[1] and known[2]
        case Elemwise(scalar_op=scalar_op):
            return isinstance(scalar_op, _THROUGH_ZERO) and all(known)
        case CAReduce(scalar_op=ps.Add()):
            return known[0]
        case DimShuffle() | Reshape() | Subtensor() | AdvancedSubtensor() | Alloc():
            return known[0]
        case TensorFromScalar() | ScalarFromTensor():
            return known[0]
        case IncSubtensor():
            return known[0] and known[1]
    return False
