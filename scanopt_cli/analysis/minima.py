"""Recognises minima as PyTensor writes them: of two numbers, and of a list through a maximum."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from pytensor.graph.basic import Constant, Variable
from pytensor.scalar import basic as ps
from pytensor.tensor.basic import MakeVector
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Max

# How many operands of a minimum its text shows.
_PARTS = 6


def minimum_parts(variable: Variable) -> tuple[Variable, ...] | None:
    """Return the operands of a minimum, ``None`` if ``variable`` is not one.

    Recognised are ``minimum(a, b)`` and ``pt.min([a, b, ...])``. PyTensor writes the latter as
    ``-max(-[a, b, ...])``, and its rewrites leave ``-1 * x`` for ``-x``.
    """
    node = variable.owner
    if node is None:
        return None
    if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, ps.ScalarMinimum):
        return tuple(node.inputs) if len(node.inputs) == 2 else None
    largest = _negated(variable)
    reduced = None if largest is None else largest.owner
    if largest is None or reduced is None or not isinstance(reduced.op, Max) or largest.type.ndim:
        return None
    vector = _negated(reduced.inputs[0])
    made = None if vector is None else vector.owner
    if made is None or not isinstance(made.op, MakeVector) or not made.inputs:
        return None
    return tuple(made.inputs)


def minimum_text(variable: Variable, text_of: Callable[[Variable], str]) -> str | None:
    """Return ``min(a,b,c)`` for a tree of minima, ``None`` if ``variable`` is not one.

    ``text_of`` returns the text of an operand; operands past the first few are shown as ``...``.
    """
    if minimum_parts(variable) is None:
        return None
    waiting: list[Variable] = [variable]
    parts: list[str] = []
    while waiting and len(parts) < _PARTS:
        part = waiting.pop()
        smaller = minimum_parts(part)
        if smaller is not None:
            waiting.extend(reversed(smaller))
        else:
            parts.append(text_of(part))
    return f"min({','.join(parts)}{',...' if waiting else ''})"


def _negated(variable: Variable) -> Variable | None:
    """``x`` if ``variable`` is ``-x`` of signed integers (unsigned ones would wrap)."""
    node = variable.owner
    signed = str(getattr(variable.type, "dtype", "")).startswith("int")
    if node is None or not signed or not isinstance(node.op, Elemwise):
        return None
    if isinstance(node.op.scalar_op, ps.Neg):
        negated: Variable = node.inputs[0]
        return negated
    if isinstance(node.op.scalar_op, ps.Mul) and len(node.inputs) == 2:
        for factor, other in (node.inputs, reversed(node.inputs)):
            if isinstance(factor, Constant) and np.all(np.asarray(factor.data) == -1):
                return other if other.type.ndim == variable.type.ndim else None
    return None
