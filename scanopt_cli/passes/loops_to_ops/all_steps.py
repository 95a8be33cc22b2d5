"""What the step of a loop computes, at all steps at once: one Op on whole arrays for each node."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.basic import Alloc, Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import All as AllOf
from pytensor.tensor.math import Any as AnyOf
from pytensor.tensor.math import Argmax, Dot, MaxAndMinCAReduce, Prod, Sum
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.sort import ArgSortOp, SortOp
from pytensor.tensor.special import LogSoftmax, LogSumExp, Softmax
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)
from pytensor.tensor.type import TensorType

from scanopt_cli.ir.dtypes import has_one_float_dtype
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.ir.levels import IfElse
from scanopt_cli.passes.loops_to_ops.branches import (
    Always,
    choice_for_all_steps,
    has_choice_for_all_steps,
)
from scanopt_cli.passes.loops_to_ops.entries import (
    entries_for_all_steps,
    has_entries_for_all_steps,
)
from scanopt_cli.passes.loops_to_ops.layouts import (
    LAYOUTS,
    has_layout_for_all_steps,
    layout_for_all_steps,
)
from scanopt_cli.passes.loops_to_ops.outside import Outside
from scanopt_cli.passes.push_out.hoisting import is_total
from scanopt_cli.passes.push_out.rows_of_all_steps import at_all_steps
from scanopt_cli.passes.push_out_batches.batched_nodes import at_all_steps as solved_at_all_steps
from scanopt_cli.passes.push_out_batches.batched_nodes import is_dear, is_solution

_LARGEST_OF = (Argmax, LogSoftmax, MaxAndMinCAReduce, Softmax)
"""Ops that look for the largest of some entries, which may be an error if there are none."""
_FEW = 64
"""An array of so many entries may be there once for each step."""


def has_op_for_all_steps(node: Apply, varying: set[Variable], always: Always) -> bool:
    """Whether `ops_for_all_steps` takes a node, of whose inputs some are ``varying``.

    Each step computes what it does ``always``; other nodes only if a branch is taken.

    The Ops raise no errors but those of a step, and that shapes do not fit, where a loop of no
    steps raises none.
    """
    op = core_op(node.op)
    if varying.isdisjoint(node.inputs):
        return False
    if is_solution(node, [v in varying for v in node.inputs]):
        return is_dear(node)
    if op is not node.op and not isinstance(op, Dot):
        return False
    if isinstance(op, ScalarFromTensor | TensorFromScalar):
        return True
    if not all(isinstance(v.type, TensorType) for v in node.outputs):
        return False
    if isinstance(op, IfElse):
        return has_choice_for_all_steps(node, always)
    if isinstance(op, LAYOUTS):
        return has_layout_for_all_steps(node, varying)
    match op:
        case Elemwise() | DimShuffle() | Sum() | Prod():
            return len(node.outputs) == 1 and is_total(node)
        case AllOf() | AnyOf() | ArgSortOp() | CumOp() | SortOp():
            return True
        case Argmax() | LogSoftmax() | MaxAndMinCAReduce() | Softmax():
            return True
        case LogSumExp():
            return _has_entries(node)
        case AdvancedSubtensor() | AdvancedIncSubtensor() | IncSubtensor() | Subtensor():
            return has_entries_for_all_steps(node, varying)
        case Dot():
            are_matrices = all(v.type.ndim == 2 for v in node.inputs)
            is_alike = are_matrices and (_is_alike(node) or not varying.issuperset(node.inputs))
            return is_alike and has_one_float_dtype(node)
    return False


def ops_for_all_steps(node: Apply, outside: Outside) -> list[Any]:
    """Return what a node computes at all steps, one row for each."""
    if isinstance(node.op, LAYOUTS):
        return layout_for_all_steps(node, outside)
    inputs = [outside.of(v) for v in node.inputs]
    is_row = [v in outside.varying for v in node.inputs]
    if is_solution(node, is_row):
        return solved_at_all_steps(node, inputs, is_row, None if outside.runs else outside.n_steps)
    match core_op(node.op):
        case ScalarFromTensor() | TensorFromScalar():
            return inputs
        case AdvancedSubtensor() | AdvancedIncSubtensor() | IncSubtensor() | Subtensor():
            return [entries_for_all_steps(node, outside)]
        case IfElse():
            return [choice_for_all_steps(node, outside)]
        case ArgSortOp() | SortOp() as op:
            return [type(op)(op.kind, op.axis + 1)(inputs[0])]
        case CumOp() as op:
            return [CumOp(axis=op.axis + 1, mode=op.mode)(inputs[0])]
        case Dot():
            product = _product(node, set(outside.varying))
            if product is not None:
                return [product(*inputs)]
            return outside.if_there_is_a_step([pt.matmul(*inputs)])
        case CAReduce() as op:
            made = op.clone(axis=tuple(axis + 1 for axis in _axes(node)))(inputs[0])
        case Argmax() | Softmax() | LogSoftmax() | LogSumExp() as op:
            made = type(op)(axis=tuple(axis + 1 for axis in _axes(node)))(inputs[0])
        case _:
            return [at_all_steps(node, inputs)]
    may_raise = isinstance(node.op, _LARGEST_OF) and not _has_entries(node)
    return outside.if_there_is_a_step([made]) if may_raise else [made]


def _has_entries(node: Apply) -> bool:
    """Whether there is an entry along the axes that a node reduces or norms, by its type."""
    lengths = node.inputs[0].type.shape
    return all(lengths[axis] for axis in _axes(node))


def _axes(node: Apply) -> list[int]:
    """Return the axes along which a node reduces its operand, or norms it."""
    op: Any = node.op
    ndim = node.inputs[0].type.ndim
    return list(range(ndim)) if op.axis is None else [axis % ndim for axis in op.axis]


def invariant_shape(node: Apply, varying: Iterable[Variable]) -> Callable[[Any], Any] | None:
    """Return how to get from the rows of all steps what a node reads of the shape of one."""
    if node.inputs and node.inputs[0] in set(varying):
        match node.op:
            case Shape():
                return lambda rows: rows.shape[1:]
            case Shape_i(i=axis):
                return lambda rows: rows.shape[axis + 1]
    return None


def takes_more_room(node: Apply, varying: set[Variable], rows: Iterable[Variable]) -> bool:
    """Whether an array of all steps may be far larger than those that it is made of.

    It has more axes than those of each step that it is made of, or than the ``rows`` that a step
    reads of sequences, or holds what no step changes once for each.
    """
    made: Any = node.outputs[0].type
    if isinstance(node.op, Elemwise | IfElse):
        parts = [v for v in node.inputs if v in varying]
        return made.ndim > 0 and all(_is_spread(v, made) for v in parts)
    if not getattr(made, "ndim", 0) or _has_few_entries(made):
        return False
    if isinstance(core_op(node.op), Dot):
        is_of_rows = varying.issuperset(node.inputs)
        return is_of_rows and True not in made.broadcastable
    match node.op:
        case Join() | MakeVector():
            return any(v not in varying and not _has_few_entries(v.type) for v in node.inputs)
        case Alloc():
            if _has_few_copies(node):
                return False
            parts = list(rows)
        case AdvancedSubtensor() if node.inputs[0] in varying:
            return bool(made.ndim > node.inputs[0].type.ndim)
        case AdvancedSubtensor() | AdvancedIncSubtensor() | IncSubtensor() | Subtensor():
            if node.inputs[0] in varying:
                return False
            parts = list(rows)
        case _:
            return False
    return all(_is_spread(v, made) for v in parts)


def _is_spread(part: Any, made: Any) -> bool:
    """Whether an array has an axis of length 1 where what it is a part of has none."""
    ones = part.type.broadcastable
    return len(ones) != made.ndim or any(
        one and not other for one, other in zip(ones, made.broadcastable, strict=True)
    )


def _has_few_copies(node: Apply) -> bool:
    """Whether an array is filled in few times, by the types."""
    value, made = node.inputs[0].type, node.outputs[0].type
    ones = (True,) * (made.ndim - value.ndim) + tuple(value.broadcastable)
    added = [length for one, length in zip(ones, made.shape, strict=True) if one]
    return None not in added and prod(added) <= _FEW


def _has_few_entries(kind: Any) -> bool:
    """Whether an array has few entries, by its type."""
    lengths = getattr(kind, "shape", ())
    return None not in lengths and prod(lengths) <= _FEW


def _product(node: Apply, varying: set[Variable]) -> Callable[[Any, Any], Any] | None:
    """Return how the products of all steps are computed, ``None`` if it is one for each step.

    The factors of one step are matrices; vectors have an axis of length 1 then.
    """
    left, right = node.inputs
    if right not in varying:
        return _times
    if left not in varying:
        return lambda matrix, others: _transposed(_times(_transposed(others), matrix.T))
    is_number: bool = node.outputs[0].type.broadcastable == (True, True)
    return _inner if is_number and _is_alike(node) else None


def _is_alike(node: Apply) -> bool:
    """Whether two factors are known to be of length 1 alike along the axis that is summed over.

    If one alone is, it would be broadcast, not refused.
    """
    left, right = (v.type.broadcastable for v in node.inputs)
    return bool(left[1] == right[0])


def _times(matrices: Any, factor: Any) -> Any:
    """Return the product of each of ``matrices`` with one matrix, as one product."""
    steps, rows, columns = _lengths(matrices)
    found = pt.dot(matrices.reshape((steps * rows, columns)), factor)
    return found.reshape((steps, rows, _lengths(factor)[1]))


def _inner(rows: Any, columns: Any) -> Any:
    """Return the products of a row and a column for each step."""
    products = rows[:, 0, :] * columns[:, :, 0]
    return pt.expand_dims(pt.sum(products, axis=1, dtype=products.type.dtype), (1, 2))


def _transposed(matrices: Any) -> Any:
    return matrices.dimshuffle(0, 2, 1)


def _lengths(array: Any) -> list[Any]:
    """Return the lengths of an array, as numbers where its type says them."""
    return [
        array.shape[axis] if length is None else length
        for axis, length in enumerate(array.type.shape)
    ]
