"""What estimates need of entries: how many a node has, without the nodes that compute them.

A product of two matrices of 3x3 entries is 54 nodes. Whether arrays are worth computing entry by
entry depends on the shapes alone, and where products are, they seldom are. So variables stand for
entries until that is decided.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.scalar.basic import Second
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.type import float_dtypes

from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.passes.of_traced_loops.unroll_small.array_entries import (
    Entries,
    Unrolling,
    filled,
)
from scanopt_cli.passes.of_traced_loops.unroll_small.linear_algebra import (
    Found,
    check_product,
)
from scanopt_cli.passes.of_traced_loops.unroll_small.rules import entries_of


def stand_ins(op: Op, node: Apply, known: Unrolling) -> Found:
    """Return entries of the outputs of a node, or variables of their shapes that stand for them.

    Of integers and conditions, which may be indices, the entries are always those of the node.

    Raises
    ------
    ValueError, IndexError
        If the entries are not known.
    """
    shape = _shape(op, node, known)
    if shape is None:
        return entries_of(op, node, known)
    if not known.is_small(shape):
        raise ValueError("the result is large")
    kind: Any = node.outputs[0].type
    return [filled(shape, kind.clone(shape=())())]


def _shape(op: Op, node: Apply, known: Unrolling) -> tuple[int, ...] | None:
    """Return the shape of the output of a node; ``None`` if entries are needed to tell it.

    Raises
    ------
    ValueError
        If operands do not fit.
    """
    is_product = isinstance(core_op(op), Dot)
    is_elementwise = isinstance(op, Elemwise) and not isinstance(op.scalar_op, Second)
    if not (is_product or is_elementwise) or len(node.outputs) > 1:
        return None
    if getattr(node.outputs[0].type, "dtype", None) not in float_dtypes:
        return None
    parts: list[Entries] = []
    for variable in node.inputs:
        entries = known.entries(variable)
        if entries is None:
            return None
        parts.append(entries)
    if is_elementwise:
        return np.broadcast_shapes(*(part.shape for part in parts))
    left, right = parts
    if isinstance(op, Blockwise):
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        check_product(left[(0,) * (left.ndim - 2)], right[(0,) * (right.ndim - 2)])
        return (*batch, left.shape[-2], right.shape[-1])
    check_product(left, right)
    return (*left.shape[:-1], *right.shape[1:])
