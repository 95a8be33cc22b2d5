"""Serves the readers of a buffer that is kept in parts with slices of those parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.analysis.accesses.indices import rows_index
from scanopt_cli.analysis.accesses.row_ranges import RowRange, ordered
from scanopt_cli.analysis.affine import ONE, ZERO, AffineExpr
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.indexing import along, taken
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.ir.naming import Clients


@dataclass(slots=True, eq=False)
class Part:
    """The rows ``low`` to ``high`` of a buffer, which ``source`` holds.

    ``first`` is the row of the buffer that ``source`` begins with, and ``length`` the number of
    rows of ``source``. ``source`` is used by `Reading.built` only, and may be set after
    the readings are found.
    """

    low: AffineExpr
    high: AffineExpr
    first: AffineExpr
    length: AffineExpr
    source: Any = None


@dataclass(frozen=True, slots=True)
class Piece:
    """The rows ``begin`` to ``end`` of the source of a part; negative ones count from its end."""

    part: Part
    begin: int | None
    end: int | None


@dataclass(frozen=True, slots=True)
class Reading:
    """A variable that reads the buffer, or is the buffer, as pieces of its parts.

    ``is_row`` if it is a single row, without the axis of the rows.
    """

    variable: Variable
    pieces: tuple[Piece, ...]
    is_reversed: bool = False
    is_row: bool = False

    def built(self, axis: int) -> Variable:
        """Return the variable built from the parts' sources; ``axis`` is the axis of the rows."""
        if self.is_row:
            (piece,) = self.pieces
            row: Variable = piece.part.source[along(axis, piece.begin)]
            return row
        parts = [taken(p.part.source, axis, slice(p.begin, p.end)) for p in self.pieces]
        rows: Any = parts[0] if len(parts) == 1 else pt.join(axis, *parts)
        return taken(rows, axis, slice(None, None, -1 if self.is_reversed else None))


@dataclass(frozen=True, slots=True)
class Readers:
    """Finds the readers of a buffer that is kept in ``parts``, with its rows on ``axis``.

    The buffer is the gradient of another loop, which needs ``n_initial`` initial rows.
    """

    parts: Sequence[Part]
    axis: int
    n_initial: int
    clients: Clients
    lengths: Lengths

    def of(self, buffer: Variable) -> list[Reading]:
        """Return readings that together serve all readers of ``buffer``, deepest first.

        A chain of slices is followed as far as its rows are known. The buffer itself is the last
        reading if one of its readers is not a slice or index of known rows.
        """
        whole = RowRange(ZERO, self.parts[-1].high)
        readings = self._readings(buffer, whole)
        assert readings is not None
        return readings

    def _readings(self, variable: Variable, row_range: RowRange) -> list[Reading] | None:
        """Readings that serve the readers of ``variable``; ``None`` if its pieces are unknown."""
        found: list[Reading] = []
        is_needed = False
        for node, position in self.clients(variable):
            served = self._served(node, row_range) if position == 0 else None
            if served is None:
                is_needed = True
            else:
                found.extend(served)
        if is_needed:
            pieces = self._pieces(row_range)
            if pieces is None:
                return None
            is_reversed = row_range.is_reversed and row_range.length != ONE
            found.append(Reading(variable, pieces, is_reversed))
        return found

    def _served(self, node: Apply, row_range: RowRange) -> list[Reading] | None:
        """Readings that serve ``node``, which reads ``row_range``; ``None`` if they are unknown."""
        op = core_op(node.op)
        index = rows_index(node, self.axis) if isinstance(op, Subtensor) else None
        if index is None:
            return None
        if isinstance(index, slice):
            smaller = row_range.cut(index, self.lengths, self.n_initial)
            return None if smaller is None else self._readings(node.outputs[0], smaller)
        row = row_range.place(index, self.lengths)
        piece = None if row is None else self._row(row)
        return None if piece is None else [Reading(node.outputs[0], (piece,), is_row=True)]

    def _row(self, row: AffineExpr) -> Piece | None:
        lengths = self.lengths
        for part in self.parts:
            if lengths.provably_le(part.low, row) and lengths.provably_le(row + 1, part.high):
                place = row - part.first
                if (place - part.length).is_constant:
                    place = place - part.length
                return Piece(part, place.constant, None) if place.is_constant else None
        return None

    def _pieces(self, row_range: RowRange) -> tuple[Piece, ...] | None:
        pieces = tuple(self._overlaps(row_range))
        return pieces if pieces and None not in pieces else None  # type: ignore[return-value]

    def _overlaps(self, row_range: RowRange) -> Iterator[Piece | None]:
        """The pieces of ``row_range``, with ``None`` for a part whose overlap cannot be decided."""
        lengths = self.lengths
        for part in self.parts:
            if lengths.provably_le(row_range.high, part.low) or lengths.provably_le(
                part.high, row_range.low
            ):
                continue
            lows = ordered(row_range.low, part.low, lengths)
            highs = ordered(row_range.high, part.high, lengths)
            yield None if lows is None or highs is None else _piece(part, lows[1], highs[0])


def _piece(part: Part, low: AffineExpr, high: AffineExpr) -> Piece | None:
    """The rows ``low`` to ``high`` of the buffer, if their positions in the part are constant."""
    begin, end = low - part.first, high - part.first
    at_end = end == part.length
    first = None if begin == ZERO else _place(begin, part.length, from_end=at_end)
    last = None if at_end else _place(end, part.length, from_end=False)
    if (first is None and begin != ZERO) or (last is None and not at_end):
        return None
    return Piece(part, first, last)


def _place(row: AffineExpr, length: AffineExpr, *, from_end: bool) -> int | None:
    behind = row - length
    if behind.is_constant and (from_end or not row.is_constant):
        return behind.constant
    return row.constant if row.is_constant else None
