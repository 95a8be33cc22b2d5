"""Copies of variables that declare fewer lengths: PyTensor does not look through a copy."""

from __future__ import annotations

from typing import Any

from pytensor.compile.ops import deep_copy_op
from pytensor.graph.basic import Apply, Variable


def ones(variable: Any) -> tuple[bool, ...]:
    """Return for each axis whether a variable declares a length of 1."""
    return getattr(variable.type, "broadcastable", ())


def declaring_as(variable: Variable, like: Variable) -> Variable:
    """Return ``variable``, or a copy of it that declares no more lengths of 1 than ``like``."""
    return variable if ones(variable) == ones(like) else copy_of_type(variable, like.type)


def copy_of_type(variable: Variable, kind: Any) -> Variable:
    """Return a copy that is declared to be of a type."""
    return Apply(deep_copy_op, [variable], [kind()]).outputs[0]
