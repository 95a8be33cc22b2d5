"""Row ranges: the rows of a buffer that a chain of slices takes, as affine expressions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytensor.graph.basic import Variable

from scanopt_cli.analysis.affine import ONE, ZERO, AffineExpr
from scanopt_cli.analysis.lengths import Lengths


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

    def covers(self, length: AffineExpr) -> bool:
        """Whether the range is all ``length`` rows of a buffer, in either order."""
        return self.low == ZERO and self.high == length

    def cut(self, index: slice, lengths: Lengths, n_initial: int = 0) -> RowRange | None:
        """Return the row range that a slice of this one takes, ``None`` if undecided.

        ``n_initial`` is that of `Lengths.span`.
        """
        span = lengths.span(index, self.length, n_initial=n_initial)
        if span is None:
            return None
        begin, end, is_reversed = span
        low = self.high - end if self.is_reversed else self.low + begin
        return RowRange(low, end - begin, self.is_reversed ^ is_reversed)

    def taken(self, index: Any, lengths: Lengths) -> RowRange | None:
        """Return the row range that an index or slice of this one takes, ``None`` if undecided."""
        if isinstance(index, slice):
            return self.cut(index, lengths)
        row = self.place(index, lengths)
        return None if row is None else RowRange(row, ONE)

    def within(self, outer: RowRange) -> RowRange:
        """Return the rows that this range takes of those of ``outer``, as rows of the buffer."""
        low = outer.high - self.high if outer.is_reversed else outer.low + self.low
        return RowRange(low, self.length, self.is_reversed ^ outer.is_reversed)

    def place(self, index: Variable, lengths: Lengths) -> AffineExpr | None:
        """Return the row of the buffer at an index into this range, ``None`` if undecided."""
        position = position_of(lengths.value_of(index), self.length, lengths)
        return None if position is None else self.row(position)

    def row(self, position: AffineExpr) -> AffineExpr:
        """Return the row of the buffer at a position within this range."""
        return self.high - 1 - position if self.is_reversed else self.low + position


def position_of(index: AffineExpr, length: AffineExpr, lengths: Lengths) -> AffineExpr | None:
    """Return where an index falls in ``0..length-1``, ``None`` if not provably in bounds."""
    if index.is_constant and index.constant < 0:
        return length + index if lengths.provably_le(index.scaled(-1), length) else None
    in_bounds = lengths.provably_le(0, index) and lengths.provably_le(index + 1, length)
    return index if in_bounds else None


def ordered(
    left: AffineExpr, right: AffineExpr, lengths: Lengths
) -> tuple[AffineExpr, AffineExpr] | None:
    """Return the smaller and the larger of two lengths, ``None`` if undecided."""
    if lengths.provably_le(left, right):
        return left, right
    return (right, left) if lengths.provably_le(right, left) else None
