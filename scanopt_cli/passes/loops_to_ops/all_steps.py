"""What the step of a loop computes, at all steps at once: one Op on whole arrays for each node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Dot, MaxAndMinCAReduce, Prod, Sum
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.special import LogSoftmax, LogSumExp, Softmax
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import TensorType

from scanopt_cli.ir.dtypes import has_one_float_dtype
from scanopt_cli.ir.indexing import indices_of, number
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.passes.push_out.hoisting import is_total
from scanopt_cli.passes.push_out.rows_of_all_steps import at_all_steps

type Known = Mapping[Variable, Any]
"""Variables of a body, with what they are outside: invariant values, or the rows of all steps."""


def has_op_for_all_steps(node: Apply, varying: Iterable[Variable]) -> bool:
    """Whether `op_for_all_steps` takes a node, of whose inputs some are ``varying``.

    The Op raises no error but that shapes do not fit, where a loop of no steps raises none.
    """
    found, op = set(varying), core_op(node.op)
    if len(node.outputs) != 1 or not all(isinstance(v.type, TensorType) for v in node.outputs):
        return False
    if op is not node.op and not isinstance(op, Dot):
        return False
    match op:
        case Elemwise() | DimShuffle() | Sum() | Prod():
            return is_total(node)
        case CumOp():
            return True
        case MaxAndMinCAReduce() | Softmax() | LogSoftmax() | LogSumExp():
            # Of no entries there is no largest one, which is an error if the loop runs a step.
            lengths = node.inputs[0].type.shape
            return all(lengths[axis] for axis in _axes(node))
        case Subtensor():
            array, *indices = node.inputs
            return array in found and found.isdisjoint(indices) and reads_within(node)
        case Dot():
            are_matrices = all(v.type.ndim == 2 for v in node.inputs)
            return are_matrices and has_one_float_dtype(node) and _product(node, found) is not None
    return False


def op_for_all_steps(node: Apply, varying: Known, invariant: Known) -> Any:
    """Return what a node computes at all steps, one row for each."""

    def outside(variable: Variable) -> Any:
        return varying.get(variable, invariant.get(variable, variable))

    inputs = [outside(v) for v in node.inputs]
    match core_op(node.op):
        case CAReduce() as op:
            return op.clone(axis=tuple(axis + 1 for axis in _axes(node)))(inputs[0])
        case Softmax() | LogSoftmax() | LogSumExp() as op:
            return type(op)(axis=tuple(axis + 1 for axis in _axes(node)))(inputs[0])
        case CumOp() as op:
            return CumOp(axis=op.axis + 1, mode=op.mode)(inputs[0])
        case Subtensor():
            places = [_translated(index, outside) for index in indices_of(node)]
            return inputs[0][(slice(None), *places)]
        case Dot():
            product = _product(node, set(varying))
            assert product is not None
            return product(*inputs)
    return at_all_steps(node, inputs)


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


def is_outer_product(node: Apply, varying: Iterable[Variable]) -> bool:
    """Whether an array is made that has more axes than those of each step that it is made of."""
    found = set(varying)
    made: Any = node.outputs[0].type
    ndims = [v.type.ndim for v in node.inputs if v in found]
    spread = [v.type.broadcastable != made.broadcastable for v in node.inputs if v in found]
    return isinstance(node.op, Elemwise) and bool(ndims) and made.ndim > 0 and all(spread)


def reads_within(node: Apply) -> bool:
    """Whether a node reads of an array by slices, and by numbers that are provably in bounds."""
    if not isinstance(node.op, Subtensor):
        return False
    for length, index in zip(node.inputs[0].type.shape, indices_of(node), strict=False):
        if isinstance(index, slice):
            if not number(index.step, 1):
                return False
            continue
        place = number(index)
        if place is None or length is None or not -length <= place < length:
            return False
    return True


def _translated(index: Any, outside: Callable[[Variable], Any]) -> Any:
    """Return an index of a body, a variable or a slice of them, as it is outside."""
    if isinstance(index, slice):
        parts = (index.start, index.stop, index.step)
        return slice(*(part if part is None else outside(part) for part in parts))
    return index if isinstance(index, Constant) else outside(index)


def _product(node: Apply, varying: set[Variable]) -> Callable[[Any, Any], Any] | None:
    """Return how the products of all steps are computed, ``None`` if no Op is known for it.

    The factors of one step are matrices; vectors have an axis of length 1 then.
    """
    left, right = node.inputs
    if right not in varying:
        return _times
    if left not in varying:
        return lambda matrix, others: _transposed(_times(_transposed(others), matrix.T))
    is_number: bool = node.outputs[0].type.broadcastable == (True, True)
    # Factors of which one alone is known to be of length 1 would be broadcast, not refused.
    is_alike = left.type.broadcastable[1] == right.type.broadcastable[0]
    return _inner if is_number and is_alike else None


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
