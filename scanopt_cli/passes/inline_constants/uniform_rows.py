"""The value of a sequence whose rows are all equal."""

from __future__ import annotations

from typing import Any

import numpy as np
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.basic import Alloc
from pytensor.tensor.basic import alloc as alloc_tensor
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorConstant

from scanopt_cli.ir.indexing import indices_of

# A constant of more elements stays an input, to keep megabytes of literals out of bodies.
LARGEST = 4096


def uniform_row(sequence: Variable, inner_type: TensorType) -> Any:
    """Return the value of every row of ``sequence``, ``None`` unless rows are provably equal."""
    sequence = _unsliced(sequence)
    if isinstance(sequence, TensorConstant):
        rows = sequence.data
        if not rows.shape[0] or any(row.tobytes() != rows[0].tobytes() for row in rows[1:]):
            return None
        return TensorConstant(inner_type.clone(shape=rows.shape[1:]), rows[0])
    node = sequence.owner
    if node is None or not isinstance(node.op, Alloc):
        return None
    value, _, *row_lengths = node.inputs
    if value.type.ndim > len(row_lengths):
        if not value.type.broadcastable[0]:
            return None
        value = value[0]
    if value.type.ndim == 0 and isinstance(value, TensorConstant):
        lengths = [length.data for length in row_lengths if isinstance(length, Constant)]
        if len(lengths) == len(row_lengths) and np.prod(lengths, dtype=float) <= LARGEST:
            data = np.full([int(length) for length in lengths], value.data, value.data.dtype)
            return TensorConstant(inner_type.clone(shape=data.shape), data)
    return alloc_tensor(value, *row_lengths) if row_lengths else value


def _unsliced(sequence: Variable) -> Variable:
    """Look through slices of the first axis alone, which leave each row unchanged."""
    while sequence.owner is not None and isinstance(sequence.owner.op, Subtensor):
        indices = indices_of(sequence.owner)
        if len(indices) != 1 or not isinstance(indices[0], slice):
            break
        sequence = sequence.owner.inputs[0]
    return sequence
