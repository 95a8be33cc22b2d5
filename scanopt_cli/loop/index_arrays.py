"""Arrays of indices, by which entries of an array are picked or written."""

from __future__ import annotations

from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.type import DenseTensorType, integer_dtypes

from scanopt_cli.ir.indexing import indices_of, is_full_slice


def index_arrays(node: Apply) -> dict[int, Any] | None:
    """Return the arrays of indices of a node, by dimension; ``None`` if it picks otherwise.

    All are vectors of integers, of one length, or one index for all, behind each other; other
    dimensions are whole.
    """
    op: Any = node.op
    indices = indices_of(node)
    if op.non_consecutive_adv_indexing(node):
        return None
    found = {}
    for axis, index in enumerate(indices):
        if is_full_slice(index):
            continue
        if not isinstance(index, Variable) or not isinstance(index.type, DenseTensorType):
            return None
        if index.type.ndim > 1 or index.type.dtype not in integer_dtypes:
            return None
        if index.type.dtype == "uint64":
            return None
        found[axis] = index
    return found if any(index.type.ndim for index in found.values()) else None


def is_write(node: Apply) -> bool:
    """Whether a kernel writes what a node writes, into an array or a copy of it."""
    op: Any = node.op
    if not all(isinstance(v.type, DenseTensorType) for v in (*node.inputs[:2], *node.outputs)):
        return False
    indices = index_arrays(node)
    array, value = node.inputs[:2]
    return (
        indices is not None
        and not getattr(op, "ignore_duplicates", False)
        and value.type.ndim == array.type.ndim - len(indices) + 1
        and array.type.dtype == node.outputs[0].type.dtype
        and value.type.dtype in (array.type.dtype, "float32", "float64")
        and (array.type.dtype == value.type.dtype or array.type.dtype.startswith("float"))
    )
