"""Finds arrays whose rows are all equal, along any axis, and what a row of them is.

A row is read off the expression that made the array: a value that is filled in, through slices,
reversals, moved axes, joins and elementwise operations. It is written as an expression of its own,
which computes one row instead of all, and raises in the same cases as the array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar import basic as ps
from pytensor.tensor.basic import Alloc, Join, MakeVector, alloc
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.extra_ops import Repeat
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, SpecifyShape, specify_shape
from pytensor.tensor.subtensor import IncSubtensor, Subtensor
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorConstant

from scanopt_cli.analysis.affine import ONE, ZERO
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.reshaped_lengths import asked_length
from scanopt_cli.analysis.row_values import RowAnalysis, unexpanded
from scanopt_cli.ir.indexing import along, indices_of, is_full_slice, number
from scanopt_cli.passes.push_out.hoisting import is_total

# A constant of more elements stays an input, to keep megabytes of literals out of bodies.
LARGEST = 4096

# Expressions that fill arrays are shallow.
_DEPTH = 40


class UniformRows:
    """Reads rows of arrays that are provably equal, bit by bit, in a loop of known ``lengths``.

    ``same`` returns a key of a variable that is equal only for variables of equal values.
    """

    def __init__(self, lengths: Lengths, same: Callable[[Variable], bytes]) -> None:
        self._lengths = lengths
        self._same = same
        self._known: dict[tuple[Variable, int], Variable | None] = {}
        self._depth = 0

    def of(self, array: Variable, axis: int = 0) -> Any:
        """Return the row that is everywhere along ``axis`` of ``array``, ``None`` if unknown."""
        key = (array, axis)
        if key not in self._known:
            self._known[key] = None
            if self._depth < _DEPTH:
                self._depth += 1
                self._known[key] = self._typed(self._of(array, axis), array, axis)
                self._depth -= 1
        return self._known[key]

    def _typed(self, row: Any, array: Any, axis: int) -> Any:
        """``row``, declaring all lengths that ``array`` declares."""
        if row is None:
            return None
        shape = array.type.shape
        wanted: TensorType = array.type.clone(shape=(*shape[:axis], *shape[axis + 1 :]))
        if row.type.dtype != wanted.dtype:
            return None
        return row if wanted.is_super(row.type) else specify_shape(row, wanted.shape)

    def _of(self, array: Variable, axis: int) -> Any:
        if isinstance(array, TensorConstant):
            return _constant_row(array, axis)
        node = array.owner
        if node is None:
            return None
        match node.op:
            case Alloc():
                return self._alloc(node, axis)
            case Elemwise(inplace_pattern={}) if is_total(node) or self._lengths.runs():
                return self._elemwise(node, array, axis)
            case DimShuffle():
                return self._dimshuffle(node, axis)
            case Subtensor():
                return self._subtensor(node, axis)
            case Join():
                return self._join(node, axis)
            case MakeVector():
                return self._equal(node.inputs, array)
            case Reshape() | SplitDims() | JoinDims():
                return self._reshape(node, axis)
            case Repeat():
                return self._repeat(node, axis)
            case CheckAndRaise():
                return self._with_inputs(node, self.of(node.inputs[0], axis), node.inputs[1:])
            case SpecifyShape():
                return self._specify_shape(node, axis)
            case IncSubtensor():
                return self._written(array, axis)
        return None

    def _across(self, array: Variable, axis: int) -> Any:
        """The row of ``array``, which may be broadcast along ``axis``."""
        return _without(array, axis) if array.type.broadcastable[axis] else self.of(array, axis)

    def _with_inputs(self, node: Apply, row: Variable | None, others: Sequence[Variable]) -> Any:
        return None if row is None else node.op.make_node(row, *others).outputs[0]

    def _have_rows(self, arrays: Sequence[Variable], axis: int) -> bool:
        """Whether arrays provably have equally many rows."""
        return len({self._lengths.length_of(array, axis) for array in arrays}) == 1

    def _alloc(self, node: Apply, axis: int) -> Any:
        value: Any
        value, *counts = node.inputs
        place = axis - (len(counts) - value.type.ndim)
        row = value
        if place >= 0:
            is_repeated = value.type.broadcastable[place]
            length = self._lengths.value_of(counts[axis])
            if not is_repeated and self._lengths.length_of(value, place) != length:
                return None
            row = self._across(value, place)
        rest = counts[:axis] + counts[axis + 1 :]
        if row is None or not rest:
            return row
        if isinstance(row, TensorConstant) and all(isinstance(count, Constant) for count in rest):
            shape = [int(number(count) or 0) for count in rest]
            if np.prod(shape, dtype=float) <= LARGEST and np.broadcast_shapes(
                shape, row.data.shape
            ) == tuple(shape):
                return pt.constant(np.full(shape, row.data))
        return alloc(row, *rest)

    def _elemwise(self, node: Apply, array: Variable, axis: int) -> Any:
        spanning = [part for part in node.inputs if not part.type.broadcastable[axis]]
        if not spanning or not self._have_rows(spanning, axis):
            return None
        rows = [self._across(part, axis) for part in node.inputs]
        if None not in rows:
            return node.op.make_node(*rows).outputs[node.outputs.index(array)]
        if isinstance(node.op.scalar_op, ps.Second) and rows[1] is not None:
            return self._filled(node, rows[1], axis)
        return None

    def _filled(self, node: Apply, row: Any, axis: int) -> Any:
        """A row of ``fill(like, value)``, of which the entries of ``like`` do not matter."""
        axes = [other for other in range(node.outputs[0].type.ndim) if other != axis]
        like: Any
        value: Any
        like, value = node.inputs
        counts = [
            (value if like.type.broadcastable[other] else like).shape[other] for other in axes
        ]
        return alloc(row, *counts) if counts else row

    def _dimshuffle(self, node: Apply, axis: int) -> Any:
        order = list(node.op.new_order)
        source = order.pop(axis)
        if source == "x":
            return None
        row: Any = self.of(node.inputs[0], source)
        if row is None:
            return None
        return row.dimshuffle([o if o == "x" or o < source else o - 1 for o in order])

    def _subtensor(self, node: Apply, axis: int) -> Any:
        indices = indices_of(node)
        ndim = node.inputs[0].type.ndim
        indices += [slice(None)] * (ndim - len(indices))
        source = [place for place, index in enumerate(indices) if isinstance(index, slice)][axis]
        if not number(indices[source].step, 1):
            return None
        row: Any = self.of(node.inputs[0], source)
        rest = (*indices[:source], *indices[source + 1 :])
        if row is None or all(map(is_full_slice, rest)):
            return row
        return row[rest]

    def _join(self, node: Apply, axis: int) -> Any:
        parts, joined = node.inputs, node.op.axis
        if axis != joined:
            if not self._have_rows(parts, axis):
                return None
            found = [self.of(part, axis) for part in parts]
            return None if None in found else pt.join(joined - (axis < joined), *found)
        lengths = (self._lengths.length_of(part, axis) for part in parts)
        if not all(self._lengths.provably_le(0, length) for length in lengths):
            return None
        return self._equal([self._across(part, axis) for part in parts], node.outputs[0])

    def _equal(self, rows: Sequence[Any], array: Variable) -> Any:
        """The row that ``rows`` are all the same as."""
        if not rows or None in rows:
            return None
        dtype = array.type.dtype
        cast = [row if row.type.dtype == dtype else row.astype(dtype) for row in rows]
        return cast[0] if len({self._same(row) for row in cast}) == 1 else None

    def _reshape(self, node: Apply, axis: int) -> Any:
        """The row of an array that has other axes of length 1 than its source, as of a repeat."""
        source, made = node.inputs[0], node.outputs[0]
        before = self._lengths.shape(source)
        # What is asked for is no -1 where it equals a length of the source.
        after = [asked_length(self._lengths, node, place) for place in range(made.type.ndim)]
        kept = [place for place, length in enumerate(before) if length != ONE]
        into = [place for place, length in enumerate(after) if length != ONE]
        if axis not in into or [before[i] for i in kept] != [after[i] for i in into]:
            return None
        place = kept[into.index(axis)]
        row: Any = self.of(source, place)
        if row is None:
            return None
        taken = tuple(slice(None) if i in kept else 0 for i in range(len(before)) if i != place)
        others = (i for i in range(len(after)) if i != axis)
        kept_axes = iter(range(len(into) - 1))
        order = [next(kept_axes) if i in into else "x" for i in others]
        return row[taken].dimshuffle(order) if 0 in taken or "x" in order else row

    def _repeat(self, node: Apply, axis: int) -> Any:
        """The row of an array of which rows are repeated so many times."""
        source, counts = node.inputs
        along_axis = node.op.axis
        if axis == along_axis:
            return self._across(source, axis)
        row = self.of(source, axis)
        return None if row is None else Repeat(along_axis - (axis < along_axis))(row, counts)

    def _specify_shape(self, node: Apply, axis: int) -> Any:
        source, *counts = node.inputs
        count = counts.pop(axis)
        is_number = isinstance(count.type, TensorType)
        if is_number and self._lengths.value_of(count) != self._lengths.length_of(source, axis):
            return None
        return self._with_inputs(node, self.of(source, axis), counts)

    def _written(self, array: Variable, axis: int) -> Any:
        """The row of a buffer into which equal rows were written."""
        rows = RowAnalysis(self._lengths, axis).of(array)
        row = rows.common(ZERO, self._lengths.length_of(array, axis), self._lengths)
        is_row = row is not None and row.type.ndim == array.type.ndim - 1
        return row if is_row and rows.is_certain else _row_written_everywhere(array, axis)


def _row_written_everywhere(array: Any, axis: int) -> Any:
    """The row of ``x[:] = y``, where it is not known whether ``y`` is broadcast to a row."""
    if axis or not _is_overwritten(array):
        return None
    buffer, value, *_ = array.owner.inputs
    if value.type.ndim == buffer.type.ndim == 1 and value.type.broadcastable[0]:
        return _without(value, 0).astype(buffer.type.dtype)
    if not 0 < value.type.ndim < buffer.type.ndim:
        return None
    lengths = [buffer.shape[other] for other in range(1, buffer.type.ndim)]
    return pt.set_subtensor(pt.zeros(lengths, dtype=buffer.type.dtype)[:], value)


def _is_overwritten(array: Any) -> bool:
    """Whether an array is what ``x[:] = y`` makes of another one."""
    op = array.owner_op
    is_set = isinstance(op, IncSubtensor) and op.set_instead_of_inc
    return is_set and all(map(is_full_slice, indices_of(array.owner)))


def may_repeat_entry(array: Any) -> bool:
    """Whether an array is ``x[:] = y`` of a vector, whose rows are equal if its length is 1."""
    while isinstance(array.owner_op, Subtensor):
        array = array.owner.inputs[0]
    if not _is_overwritten(array):
        return False
    value = array.owner.inputs[1].type
    return bool(array.type.ndim == value.ndim == 1 and value.shape[0] is None)


def _constant_row(array: TensorConstant, axis: int) -> Any:
    rows = np.ascontiguousarray(np.moveaxis(array.data, axis, 0))
    if not len(rows):
        return None
    first = rows[:1].tobytes()
    return pt.constant(np.asarray(rows[0])) if rows.tobytes() == first * len(rows) else None


def _without(array: Any, axis: int) -> Any:
    """The one row of an array of length 1 along ``axis``."""
    if isinstance(array, TensorConstant):
        return pt.constant(np.asarray(np.take(array.data, 0, axis)))
    source = unexpanded(array, axis)
    return array[along(axis, 0)] if source is None else source
