"""Writes row ranges as slices, in the plainest form that PyTensor evaluates correctly."""

from __future__ import annotations

from typing import Any

from pytensor.graph.basic import Constant

from scanopt_cli.analysis.accesses.row_ranges import RowRange
from scanopt_cli.analysis.affine import ONE, ZERO, AffineExpr
from scanopt_cli.analysis.count_variables import as_count
from scanopt_cli.analysis.lengths import Lengths

# A bound of more terms than this costs more to compute than the slice that it replaces.
_TERMS = 2


def canonical_index(row: AffineExpr, length: AffineExpr) -> Any:
    """Return an index that reads ``row`` of ``length`` rows, ``None`` if it can't be written.

    The last row is ``-1``, whatever the length.
    """
    return -1 if row == length - 1 else _bound(row, length)


def canonical_slice(rows: RowRange, length: AffineExpr, lengths: Lengths) -> slice | None:
    """Return the slice that takes ``rows`` of ``length`` rows, ``None`` if it can't be written.

    A single row is taken forwards. Where PyTensor learns that a slice takes one row, it takes the
    slice's start for that row, and so reads ``x[:0:-1]`` as ``x[0]``. Therefore a reversed slice
    with a stop and an unknown number of rows is written only if it starts at a negative number.
    """
    low, high = rows.low, rows.high
    if rows.length == ZERO:
        return slice(None, 0)
    if rows.length == ONE or not rows.is_reversed:
        start = None if low == ZERO else canonical_index(low, length)
        stop = None if high == length else _bound(high, length)
        is_written = (start is not None or low == ZERO) and (stop is not None or high == length)
        return slice(start, stop) if is_written else None
    return _backwards(rows, length, lengths)


def _backwards(rows: RowRange, length: AffineExpr, lengths: Lengths) -> slice | None:
    low, high = rows.low, rows.high
    start = None if high == length else _bound(high - 1, length)
    stop = None if low == ZERO else _bound(low - 1, length)
    if (start is None and high != length) or (stop is None and low != ZERO):
        return None
    # A bound before the first row would count from the end.
    if not isinstance(start, int) and start is not None and not lengths.provably_le(ONE, high):
        return None
    if stop is not None and not lengths.provably_le(ONE, low):
        return None
    if isinstance(start, int) and start >= 0 and not lengths.provably_le(ONE, high):
        return None
    from_behind = isinstance(start, int) and start < 0
    if stop is not None and not rows.length.is_constant and not from_behind:
        return None
    return slice(start, stop, -1)


def cost(index: Any) -> int:
    """Return the cost of an index: 1 for each constant bound, 2 for each computed one."""
    parts = (index.start, index.stop, index.step) if isinstance(index, slice) else (index,)
    return sum(
        0 if part is None else 1 if isinstance(part, int | Constant) else 2 for part in parts
    )


def _bound(row: AffineExpr, length: AffineExpr) -> Any:
    """A row as a number, from the start or from the end, or as an expression."""
    if row.is_constant:
        return row.constant
    behind = row - length
    if behind.is_constant:
        return behind.constant if behind.constant < 0 else None
    return as_count(row) if len(row.terms) <= _TERMS else None
