"""Row ranges: the rows of a buffer that a chain of slices takes, as affine expressions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.subtensor import IncSubtensor, Subtensor, get_idx_list

from scanopt_cli.analysis.affine import AffineExpr
from scanopt_cli.analysis.lengths import Lengths, is_full_slice

_ONE = AffineExpr(1)


@dataclass(frozen=True, slots=True)
class RowRange:
    """``length`` rows of a buffer, from ``low`` on; ``is_reversed`` if they come last row first."""

    low: AffineExpr
    length: AffineExpr
    is_reversed: bool = False

    @property
    def high(self) -> AffineExpr:
        """One past the last row."""
        return self.low + self.length

    def cut(self, index: slice, lengths: Lengths, reach: int = 0) -> RowRange | None:
        """Return the row range that a slice of this one takes, ``None`` if undecided.

        In a slice with step 1, a bound that is the length of initial rows ``x[:reach]`` counts as
        ``reach``: with fewer initial rows, the loop could not run.
        """
        span = lengths.span(index, self.length, reach=reach)
        if span is None:
            return None
        begin, end, is_reversed = span
        low = self.high - end if self.is_reversed else self.low + begin
        return RowRange(low, end - begin, self.is_reversed ^ is_reversed)

    def within(self, outer: RowRange) -> RowRange:
        """Return the rows that this range takes of those of ``outer``, as rows of the buffer."""
        low = outer.high - self.high if outer.is_reversed else outer.low + self.low
        return RowRange(low, self.length, self.is_reversed ^ outer.is_reversed)

    def place(self, index: Variable, lengths: Lengths) -> AffineExpr | None:
        """Return the row of the buffer at an index into this range, ``None`` if undecided."""
        position = position_of(lengths.value_of(index), self.length, lengths)
        if position is None:
            return None
        return self.high - _ONE - position if self.is_reversed else self.low + position


def position_of(index: AffineExpr, length: AffineExpr, lengths: Lengths) -> AffineExpr | None:
    """Return where an index falls in ``0..length-1``, ``None`` if not provably in bounds."""
    if index.is_constant and index.constant < 0:
        return length + index if lengths.provably_le(index.scaled(-1), length) else None
    in_bounds = lengths.provably_le(AffineExpr(), index) and lengths.provably_le(
        index + _ONE, length
    )
    return index if in_bounds else None


def ordered(
    left: AffineExpr, right: AffineExpr, lengths: Lengths
) -> tuple[AffineExpr, AffineExpr] | None:
    """Return the smaller and the larger of two lengths, ``None`` if undecided."""
    if lengths.provably_le(left, right):
        return left, right
    return (right, left) if lengths.provably_le(right, left) else None


def rows_index(node: Apply, axis: int) -> Any:
    """Return the index or slice by which ``node`` reads or writes rows, which are on ``axis``.

    ``None`` if ``node`` is no Subtensor or IncSubtensor, plain or in a Blockwise, or if it indexes
    other axes too.
    """
    op, before = node.op, axis
    if isinstance(op, Blockwise):
        op, before = op.core_op, 0
        if node.op.batch_ndim(node) != axis:
            return None
    if not isinstance(op, Subtensor | IncSubtensor):
        return None
    written = isinstance(op, IncSubtensor)
    source, *parts = node.inputs[:1] + node.inputs[1 + written :]
    indices = list(get_idx_list([source, *parts], op.idx_list))
    while indices and is_full_slice(indices[-1]) and len(indices) > before + 1:
        indices.pop()
    if len(indices) != before + 1 or not all(map(is_full_slice, indices[:before])):
        return None
    return indices[before]
