"""Lengths of arrays along the axes that they share with what they are computed of."""

from __future__ import annotations

from typing import Any

from pytensor.conditional.op import IfElse
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.basic import Split
from pytensor.tensor.blas import BatchedDot
from pytensor.tensor.elemwise import CAReduce
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Argmax
from pytensor.tensor.sort import ArgSortOp, SortOp
from pytensor.tensor.special import LogSoftmax, LogSumExp, Softmax
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor

from scanopt_cli.analysis.affine import AffineExpr
from scanopt_cli.analysis.loop_lengths import KnownLengths
from scanopt_cli.analysis.matrix_ops import SOLVERS
from scanopt_cli.ir.inner_graphs import core_op


def kept_length(
    lengths: KnownLengths, node: Apply, variable: Variable, axis: int
) -> AffineExpr | None:
    """Return the length of a reduction, a part or a choice of arrays, ``None`` if not known."""
    match node.op:
        case CAReduce(axis=reduced) | Argmax(axis=reduced) | LogSumExp(axis=reduced):
            ndim = node.inputs[0].type.ndim
            gone = range(ndim) if reduced is None else [one % ndim for one in reduced]
            kept = [one for one in range(ndim) if one not in gone]
            return lengths.length_of(node.inputs[0], kept[axis])
        case AdvancedIncSubtensor() | ArgSortOp() | CumOp() | LogSoftmax() | Softmax() | SortOp():
            return lengths.length_of(node.inputs[0], axis)
        case BatchedDot():
            return lengths.length_of(node.inputs[axis == 2], axis)
        case Split(axis=split) if axis != split:
            return lengths.length_of(node.inputs[0], axis)
        case AdvancedSubtensor(idx_list=places) if axis == 0:
            # Rows at places of the first axes: vectors, of which none is broadcast to another one.
            vectors = node.inputs[1:]
            if any(isinstance(place, slice) for place in places):
                return None
            if any(vector.type.ndim != 1 or vector.type.dtype == "bool" for vector in vectors):
                return None  # of a mask, the result has as many rows as it has that are true
            found = {lengths.length_of(vector, 0) for vector in vectors}
            return found.pop() if len(found) == 1 else None
        case IfElse(n_outs=count):
            place = 1 + node.outputs.index(variable)
            one, other = (lengths.length_of(node.inputs[at], axis) for at in (place, place + count))
            return one if one == other else None
    op: Any = core_op(node.op)
    if isinstance(op, SOLVERS) and op.b_ndim == 2 and axis == variable.type.ndim - 1:
        return lengths.length_of(node.inputs[1], axis)  # a solution for each column
    return None
