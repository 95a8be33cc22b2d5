"""Finds the rows of a buffer that are zero or equal before a loop starts.

A gradient's initial buffer is zeros with a few rows written: the cotangent of the last state, if
the cost is on that state, or one value for every state of ``ys.sum()``. The rows are read off the
expression that made the buffer, their positions as affine expressions, so the answers hold for any
trip count. Rows that cannot be decided are a run without a value.
"""

from __future__ import annotations

from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.scalar import basic as ps
from pytensor.tensor.basic import Alloc, Join
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.subtensor import IncSubtensor, Subtensor
from pytensor.tensor.variable import TensorConstant

from scanopt_cli.analysis.accesses.indices import rows_index
from scanopt_cli.analysis.accesses.row_ranges import RowRange, ordered
from scanopt_cli.analysis.affine import ONE, ZERO, AffineExpr
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.row_runs import Rows, Run, is_positive_zero
from scanopt_cli.ir.inner_graphs import core_op

# Initial buffers are shallow expressions; past this depth the rows are unknown.
_DEPTH = 40
# A gradient writes a few runs of rows. A buffer with more runs counts as unknown, as each write to
# it would cost as many comparisons.
_RUNS = 32


class RowAnalysis:
    """Reads the rows of a buffer, on ``axis``, off the expressions that made it."""

    def __init__(self, lengths: Lengths, axis: int = 0) -> None:
        self._lengths = lengths
        self._axis = axis
        self._known: dict[Variable, Rows] = {}

    def of(self, buffer: Variable, depth: int = _DEPTH) -> Rows:
        """Return the rows of ``buffer``."""
        known = self._known.get(buffer)
        if known is None:
            known = self._of(buffer, depth) if depth > 0 else None
            if known is None:
                known = self._unknown(buffer)
            elif len(known.runs) > _RUNS:
                known = Rows(self._unknown(buffer).runs, known.is_certain)
            self._known[buffer] = known
        return known

    def _unknown(self, buffer: Variable) -> Rows:
        return Rows((Run(self._length(buffer)),))

    def _length(self, buffer: Variable) -> AffineExpr:
        return self._lengths.length_of(buffer, self._axis)

    def _of(self, buffer: Variable, depth: int) -> Rows | None:
        filled = filling(buffer)
        if filled is not None:
            return Rows((Run(self._length(buffer), filled),))
        node = buffer.owner
        if node is None:
            return None
        op = core_op(node.op)
        match op:
            case Alloc() if op is node.op:
                return self._repeated(node.inputs[0], buffer)
            case Elemwise(scalar_op=ps.Second()) if node.inputs[1].type.broadcastable[self._axis]:
                return self._repeated(node.inputs[1], buffer)
            case Elemwise(scalar_op=ps.Add()):
                return self._sum(node, depth)
            case SpecifyShape():
                return Rows(self.of(node.inputs[0], depth - 1).runs, is_certain=False)
            case Join(axis=along) if op is node.op and along == self._axis:
                parts = [self.of(part, depth - 1) for part in node.inputs]
                return Rows(tuple(run for part in parts for run in part.runs), is_certain=False)
            case Subtensor():
                return self._taken(node, depth)
            case IncSubtensor():
                return self._written(node, op, depth)
        return None

    def _repeated(self, value: Variable, buffer: Variable) -> Rows:
        row, is_certain = self._row(value, buffer)
        return Rows((Run(self._length(buffer), row),), is_certain)

    def _row(
        self, value: Variable, buffer: Variable, *, is_row: bool = False
    ) -> tuple[Variable | None, bool]:
        """The row that ``value`` gives when it is broadcast to ``buffer``, and whether it fits.

        The row is ``None`` if it is unknown; ``value`` fits if its shape provably broadcasts to a
        row. With ``is_row``, ``value`` is a row itself. Otherwise it may be one if it has no axis
        of rows, or if that axis has length 1 and can be removed.
        """
        axes = [axis for axis in range(buffer.type.ndim) if axis != self._axis]
        missing = buffer.type.ndim - value.type.ndim
        places = list(range(value.type.ndim))
        if is_row or self._axis < missing:
            source: Variable | None = value
        elif not missing and filling(value) is not None:
            source, places = value, axes
        else:
            source = None if missing else unexpanded(value, self._axis)
            places = places[:-1]
        if source is None:
            return None, False
        axes = axes[len(axes) - len(places) :]
        lengths = [self._lengths.length_of(source, place) for place in places]
        wanted = [self._lengths.length_of(buffer, axis) for axis in axes]
        is_whole = lengths == wanted and len(lengths) == buffer.type.ndim - 1
        fits = all(mine in (theirs, ONE) for mine, theirs in zip(lengths, wanted, strict=True))
        filled = filling(source)
        row = filled if filled is not None else source if is_whole else None
        return None if row is None else _cast(row, buffer.type.dtype), fits

    def _sum(self, node: Apply, depth: int) -> Rows | None:
        if any(part.type.broadcastable[self._axis] for part in node.inputs):
            return None
        if any(part.type.dtype != node.outputs[0].type.dtype for part in node.inputs):
            return None
        shapes = {
            tuple(self._lengths.length_of(part, axis) for axis in range(part.type.ndim))
            for part in node.inputs
        }
        if len(shapes) != 1:
            return None
        parts = [self.of(part, depth - 1) for part in node.inputs]
        runs = reduce(self._added, (part.runs for part in parts[1:]), parts[0].runs)
        return Rows(runs, all(part.is_certain for part in parts))

    def _added(self, left: tuple[Run, ...], right: tuple[Run, ...]) -> tuple[Run, ...]:
        """The runs of the sum of two buffers of one length; 0 + x is x, other sums are unknown."""
        first, second = list(left[::-1]), list(right[::-1])
        found: list[Run] = []
        while first and second:
            one, other = first.pop(), second.pop()
            both = ordered(one.length, other.length, self._lengths)
            if both is None:
                rest = sum((run.length for run in first), start=one.length)
                return (*found, Run(rest))
            shared = both[0]
            for run, left_over in ((one, first), (other, second)):
                if run.length != shared:
                    left_over.append(Run(run.length - shared, run.value))
            found.append(Run(shared, _sum_of(one.value, other.value)))
        return tuple(found)

    def _all_rows(self, buffer: Variable) -> RowRange:
        return RowRange(ZERO, self._length(buffer))

    def _taken(self, node: Apply, depth: int) -> Rows | None:
        """The rows of ``x[low:high]``, also of a reversed slice."""
        index = rows_index(node, self._axis)
        if not isinstance(index, slice):
            return None
        row_range = self._all_rows(node.inputs[0]).cut(index, self._lengths)
        if row_range is None:
            return None
        source = self.of(node.inputs[0], depth - 1)
        runs = source.between(row_range.low, row_range.high, self._lengths)
        if runs is None:
            return None
        return Rows(runs[::-1] if row_range.is_reversed else runs, source.is_certain)

    def _written(self, node: Apply, op: IncSubtensor, depth: int) -> Rows | None:
        """The rows of ``x[low:high].inc(y)`` and ``x[i].set(y)``."""
        index = rows_index(node, self._axis)
        array, value = node.inputs[:2]
        if index is None:
            return None
        old = self.of(array, depth - 1)
        whole = self._all_rows(array)
        row_range, is_assumed = whole.taken(index, self._lengths), False
        if row_range is None and not isinstance(index, slice):
            # If the index is out of bounds, computing the buffer fails.
            row_range, is_assumed = self._assumed(index, whole), True
        if row_range is None:
            return None
        split = self._around(old, row_range, whole, is_assumed=is_assumed)
        if split is None:
            return None
        before, inside, after = split
        new = self._values(value, array, row_range, depth, is_row=not isinstance(index, slice))
        if not op.set_instead_of_inc:
            new = Rows(self._added(inside, new.runs), new.is_certain)
        is_certain = old.is_certain and new.is_certain and not is_assumed
        return Rows((*before, *new.runs, *after), is_certain)

    def _assumed(self, index: Variable, whole: RowRange) -> RowRange | None:
        """The row of a constant index, assuming that it is in bounds."""
        place = self._lengths.value_of(index)
        if not place.is_constant:
            return None
        return RowRange(place if place.constant >= 0 else whole.length + place, ONE)

    def _around(
        self, rows: Rows, row_range: RowRange, whole: RowRange, *, is_assumed: bool
    ) -> tuple[tuple[Run, ...], tuple[Run, ...], tuple[Run, ...]] | None:
        """The runs before, in and after a row range; ``is_assumed`` if it may be out of bounds."""
        bounds = (ZERO, row_range.low, row_range.high, whole.high)
        found: list[tuple[Run, ...] | None]
        if is_assumed:
            if len(rows.runs) != 1:
                return None
            value = rows.runs[0].value
            cuts = [high - low for low, high in pairwise(bounds)]
            found = [(Run(cut, value),) if cut != ZERO else () for cut in cuts]
        else:
            found = [rows.between(low, high, self._lengths) for low, high in pairwise(bounds)]
        before, inside, after = found
        if before is None or inside is None or after is None:
            return None
        return before, inside, after

    def _values(
        self, value: Variable, array: Variable, row_range: RowRange, depth: int, *, is_row: bool
    ) -> Rows:
        """The rows that are written into ``row_range``, in the order of ``array``."""
        axis = self._axis
        is_repeated = is_row or value.type.ndim < array.type.ndim or value.type.broadcastable[axis]
        if is_repeated:
            row, fits = self._row(value, array, is_row=is_row)
            return Rows((Run(row_range.length, row),), fits)
        is_alike = value.type.dtype == array.type.dtype and all(
            self._lengths.length_of(value, other) == self._lengths.length_of(array, other)
            for other in range(array.type.ndim)
            if other != axis
        )
        if not is_alike or self._length(value) != row_range.length:
            return Rows((Run(row_range.length),), is_certain=False)
        rows = self.of(value, depth - 1)
        return Rows(rows.runs[::-1], rows.is_certain) if row_range.is_reversed else rows


def filling(variable: Variable) -> Variable | None:
    """Return the number that every element of ``variable`` equals, as a scalar.

    ``None`` if that cannot be read off the graph.
    """
    while variable.type.ndim or variable.owner is not None:
        if isinstance(variable, TensorConstant):
            data = variable.data
            first = data.reshape(-1)[:1]
            if not data.size or data.tobytes() != first.tobytes() * data.size:
                return None
            return TensorConstant(variable.type.clone(shape=()), first[0])
        node = variable.owner
        match None if node is None else node.op:
            case Elemwise(scalar_op=ps.Second()) if all(node.inputs[1].type.broadcastable):
                variable = node.inputs[1]
            case DimShuffle():
                variable = node.inputs[0]
            case Alloc() if all(node.inputs[0].type.broadcastable):
                variable = node.inputs[0]
            case _:
                return None if variable.type.ndim else variable
    return variable


def _cast(value: Any, dtype: str) -> Variable | None:
    """``value`` as ``dtype``; ``None`` if it is neither of that type nor a constant exact in it."""
    if value.type.dtype == dtype:
        return value  # type: ignore[no-any-return]
    if not isinstance(value, TensorConstant):
        return None
    data = value.data.astype(dtype)
    is_same = np.array_equal(data, value.data)
    return TensorConstant(value.type.clone(dtype=dtype), data) if is_same else None


def unexpanded(variable: Variable, axis: int) -> Variable | None:
    """Return the variable that ``variable`` is with a length-1 axis inserted at ``axis``.

    ``None`` if it is not made by such a DimShuffle.
    """
    node = variable.owner
    if node is None or not isinstance(node.op, DimShuffle):
        return None
    order: list[int | str] = list(range(variable.type.ndim - 1))
    order.insert(axis, "x")
    source = node.inputs[0]
    drops_none = source.type.ndim == variable.type.ndim - 1
    return source if drops_none and list(node.op.new_order) == order else None


def _sum_of(left: Variable | None, right: Variable | None) -> Variable | None:
    return right if is_positive_zero(left) else left if is_positive_zero(right) else None
