"""Sums, products and extrema along axes of arrays, as a loop's kernels compute them in Numba."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.scalar.basic import AND, OR, XOR, Add, Maximum, Minimum, Mul
from pytensor.tensor.elemwise import CAReduce
from pytensor.tensor.type import DenseTensorType

# NaN is larger and smaller than every number.
_COMBINED: Mapping[type, str] = {
    Add: "{total} + {value}",
    Mul: "{total} * {value}",
    AND: "{total} & {value}",
    OR: "{total} | {value}",
    XOR: "{total} ^ {value}",
    Maximum: "{value} if ({value} != {value}) | ({total} < {value}) else {total}",
    Minimum: "{value} if ({value} != {value}) | ({total} > {value}) else {total}",
}


def is_reduction(node: Apply) -> bool:
    """Whether a kernel computes what a node makes: a reduction of some axes, not of all."""
    op: Any = node.op
    return (
        isinstance(op, CAReduce)
        and type(op.scalar_op) in _COMBINED
        and isinstance(node.inputs[0].type, DenseTensorType)
        and node.outputs[0].type.ndim > 0
        and not node.outputs[0].type.dtype.startswith("complex")
        and getattr(op, "acc_dtype", None) in (None, node.outputs[0].type.dtype)
    )


def combined(node: Apply, total: str, value: str) -> str:
    """Return the source that combines an accumulator and a value."""
    op: Any = node.op
    return _COMBINED[type(op.scalar_op)].format(total=total, value=value)


def identity(node: Apply) -> Any:
    """Return the identity element of a reduction."""
    op: Any = node.op
    dtype = np.dtype(node.outputs[0].type.dtype)
    value = op.scalar_op.identity
    if not np.isfinite(value) and dtype.kind == "b":
        return dtype.type(value > 0)
    if not np.isfinite(value) and dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        return dtype.type(bounds.max if value > 0 else bounds.min)
    return dtype.type(value)
