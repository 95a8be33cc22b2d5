"""The indices of Subtensor and IncSubtensor nodes, which PyTensor keeps apart from their inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    IncSubtensor,
    indices_from_subtensor,
)

from scanopt_cli.ir.inner_graphs import core_op

IN_BOUNDS = CheckAndRaise(IndexError, "index out of bounds")
"""Raises what reading out of bounds does, where compiled code would read what is there."""


def indices_of(node: Apply) -> list[Any]:
    """Return the indices of a node that reads or writes by index: variables, and slices of them.

    For a Blockwise they are those of its core Op, which come after the batch axes.
    """
    op: Any = core_op(node.op)
    n_operands = 2 if isinstance(op, IncSubtensor | AdvancedIncSubtensor) else 1
    return list(indices_from_subtensor(node.inputs[n_operands:], op.idx_list))


def along(axis: int, index: Any, *rest: Any) -> tuple[Any, ...]:
    """Return what indexes ``axis`` by ``index``, and by ``rest`` the axes that follow."""
    return (*(slice(None),) * axis, index, *rest)


def taken(source: Any, axis: int, index: Any, *rest: Any) -> Variable:
    """Return ``source``, indexed as by `along`; a full slice alone leaves it as it is."""
    is_whole = is_full_slice(index) and not rest
    found: Variable = source if is_whole else source[along(axis, index, *rest)]
    return found


def is_full_slice(index: object) -> bool:
    """Whether an index is ``:``. (Comparing slices would compare the variables in them.)"""
    return isinstance(index, slice) and index.start is index.stop is index.step is None


def number(part: Any, missing: int | None = None) -> int | None:
    """Return a constant index, or bound of a slice, as a number; ``missing`` for no bound.

    ``None`` if it is not constant, or no scalar.
    """
    if part is None:
        return missing
    is_number = isinstance(part, Constant) and not np.ndim(part.data)
    return int(part.data) if is_number else None
