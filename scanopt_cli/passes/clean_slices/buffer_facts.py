"""Lengths, row values and writes, as the rules of `clean-slices` ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytensor.tensor as pt
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from scanopt_cli.analysis.accesses.indices import axis_of, rows_index
from scanopt_cli.analysis.accesses.row_ranges import RowRange
from scanopt_cli.analysis.affine import ONE, ZERO, AffineExpr
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.row_runs import is_positive_zero
from scanopt_cli.analysis.row_values import RowAnalysis
from scanopt_cli.ir.scan_view import ScanView, scan_op
from scanopt_cli.ir.slots import SlotKind

_MATRIX = 2
# A gradient nests only a few writes into zeros.
_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Write:
    """A write of ``value`` into ``rows`` of ``array``, which provably raises nothing.

    ``axis`` is the axis of the rows, and ``length`` how many rows ``array`` has. ``is_row`` if an
    index selects the row, not a slice. ``is_aligned`` if the value has the shape and the dtype of
    the rows it is written to: nothing is broadcast or cast. ``order`` is the axis of the value that
    runs along the rows, ``None`` if the value has at most one row.
    """

    node: Apply
    array: Variable
    value: Variable
    axis: int
    length: AffineExpr
    rows: RowRange
    is_row: bool
    is_aligned: bool
    order: int | None
    may_lose_shape: bool = False

    @property
    def is_cast(self) -> bool:
        """Whether the value has another dtype than the buffer."""
        return bool(self.value.type.dtype != self.array.type.dtype)

    @property
    def sets(self) -> bool:
        """Whether the value overwrites the rows, and is not added to them."""
        return bool(self.node.op.set_instead_of_inc)


class BufferFacts:
    """Lengths, row values and writes; the row values of a buffer are analysed once.

    ``lengths`` may take as non-negative the trip count of a loop that ran before, and what a
    successful read proves to be.
    """

    def __init__(self, lengths: Lengths) -> None:
        self.lengths = lengths
        self._rows: dict[int, RowAnalysis] = {}

    def known(self, array: Variable, axis: int, rows: RowRange) -> Variable | None:
        """Return the value that all rows of a row range share, if computing ``array`` can't fail.

        ``None`` if none is known. Only values along the first axis are: there a value of fewer
        axes is a row.
        """
        return None if axis else self._common(array, axis, rows)

    def is_zero(self, array: Variable, axis: int, rows: RowRange | None = None) -> bool:
        """Whether the rows of a row range, or all, are 0, and computing ``array`` can't fail."""
        if rows is None:
            rows = RowRange(ZERO, self.lengths.length_of(array, axis))
        return is_positive_zero(self._common(array, axis, rows))

    def _common(self, array: Variable, axis: int, rows: RowRange) -> Variable | None:
        known = self._rows.setdefault(axis, RowAnalysis(self.lengths, axis)).of(array, _DEPTH)
        return known.common(rows.low, rows.high, self.lengths) if known.is_certain else None

    def write(self, node: Apply | None) -> Write | None:
        """Return ``node`` as a write along one axis, ``None`` if it is none or may raise."""
        if node is None or not isinstance(node.op, IncSubtensor):
            return None
        axis = axis_of(node)
        if axis is None:
            return None
        array, value = node.inputs[:2]
        index = rows_index(node, axis)
        length = self.lengths.length_of(array, axis)
        rows = RowRange(ZERO, length).taken(index, self.lengths)
        if rows is None:
            return None
        is_row = not isinstance(index, slice)
        target = [self.lengths.length_of(array, other) for other in range(array.type.ndim)]
        target[axis : axis + 1] = [] if is_row else [rows.length]
        shape = [self.lengths.length_of(value, other) for other in range(value.type.ndim)]
        spanned = target[len(target) - len(shape) :] if len(shape) <= len(target) else []
        if len(spanned) != len(shape) or any(
            mine not in (ONE, wanted) for mine, wanted in zip(shape, spanned, strict=True)
        ):
            return None
        is_aligned = shape == target and value.type.dtype == array.type.dtype
        own = axis - (array.type.ndim - value.type.ndim)
        order = None if is_row or own < 0 or shape[own] == ONE else own
        is_lost = is_aligned and not self._keeps_shape(value, rows)
        is_aligned = is_aligned and not is_lost
        return Write(node, array, value, axis, length, rows, is_row, is_aligned, order, is_lost)

    def _keeps_shape(self, value: Variable, rows: RowRange) -> bool:
        """Whether a value that is written to ``rows`` has the lengths that its type says."""
        has_rows = value.type.ndim < _MATRIX or self.lengths.provably_le(ONE, rows.length)
        return has_rows or not is_trace_of_no_steps(value)

    def disjoint(self, one: RowRange, other: RowRange) -> bool:
        """Whether two row ranges provably have no row in common."""
        provably_le = self.lengths.provably_le
        return provably_le(one.high, other.low) or provably_le(other.high, one.low)

    def within(self, inner: RowRange, outer: RowRange) -> bool:
        """Whether ``inner`` is provably a part of ``outer``."""
        provably_le = self.lengths.provably_le
        return provably_le(outer.low, inner.low) and provably_le(inner.high, outer.high)


def is_trace_of_no_steps(value: Variable) -> bool:
    """Whether a value may be computed, entry by entry, of what a Scan of no steps traced.

    The virtual machine gives such a trace the length 0 along each axis.
    """
    waiting, seen = [value], set()
    while waiting:
        variable = waiting.pop()
        node = variable.owner
        if node is None or variable in seen:
            continue
        seen.add(variable)
        if scan_op(node) is not None:
            view = ScanView.of(node)
            is_trace = any(slot.output is variable for slot in view.of_kind(SlotKind.NIT_SOT))
            if is_trace and not Lengths(view.n_steps).runs():
                return True
        elif isinstance(node.op, Elemwise):
            waiting += node.inputs
        elif isinstance(node.op, DimShuffle | Subtensor | IncSubtensor | DeepCopyOp | ViewOp):
            waiting.append(node.inputs[0])
    return False


def relative(inner: RowRange, outer: RowRange) -> RowRange:
    """Return ``inner``, a part of ``outer``, counted in the rows of ``outer`` and their order."""
    low = outer.high - inner.high if outer.is_reversed else inner.low - outer.low
    return RowRange(low, inner.length, inner.is_reversed ^ outer.is_reversed)


def filled(value: Variable, shape: Sequence[Any]) -> Variable:
    """Return a buffer of ``shape``, filled with ``value``, which is broadcast to it."""
    made: Any = pt.alloc(value, *shape)
    return made  # type: ignore[no-any-return]
