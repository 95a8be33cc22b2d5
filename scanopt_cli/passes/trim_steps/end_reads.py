"""Readers that leave out the last steps of a loop, whatever its trip count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from scanopt_cli.analysis.accesses.accesses import Access, sequence_steps
from scanopt_cli.analysis.affine import AffineExpr
from scanopt_cli.analysis.count_variables import as_count
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.indexing import along, taken
from scanopt_cli.ir.naming import Clients


@dataclass(frozen=True, slots=True)
class EndRead:
    """A reader that leaves out the last ``n_left_out`` steps; it may read no step at all.

    ``index`` has constant bounds. It is ``None`` for a loop that reads the source as a sequence:
    such a loop takes as many first rows as it has steps, so its read need not be rewritten.
    """

    access: Access
    n_left_out: int
    index: Any = None

    def of(self, rows: Any, fewer: int, length: AffineExpr | None) -> Variable:
        """Return the same read of ``rows``, the rows of the source without the last ``fewer``.

        ``length`` is the length of the source, given if there may have been fewer than ``fewer``
        steps. Then ``rows`` may hold more initial rows than the reader takes, and a read that
        includes initial rows counts its rows from the first.
        """
        index, axis = self.index, self.access.axis
        made: Variable
        if self.access.n_initial and length is not None:
            counted = as_count(length - self.n_left_out)
            if _stride(index) > 0:
                made = rows[along(axis, slice(index.start, counted))]
            else:
                made = rows[along(axis, slice(None, counted))][along(axis, slice(None, None, -1))]
        else:
            assert self.access.index is not None
            made = taken(rows, axis, _shifted(index, fewer), *self.access.index.rest)
        if made is not rows:
            made.name = self.access.result.name
        return made

    def of_sequence(self, rows: Any, fewer: int) -> Variable | None:
        """Return the same for loops that read at most these rows as a sequence, if simpler.

        A loop reads the first rows of a sequence, so further rows behind those do not matter; a
        loop of no steps reads none. ``None`` if there is no simpler form than that of `of`.
        """
        index = self.index
        if not isinstance(index, slice) or abs(_stride(index)) != 1:
            return None
        if self.access.index is None or self.access.index.rest:
            return None
        if _stride(index) > 0:
            return rows if not index.start else None
        if self.access.n_initial <= 1 and self.n_left_out == fewer == 1 and index.stop is None:
            turned: Variable = rows[along(self.access.axis, slice(None, None, -1))]
            return turned
        return None


def end_read(access: Access, lengths: Lengths) -> EndRead | None:
    """Return how a reader leaves out the last steps, ``None`` if it may read the last one."""
    if (count := sequence_steps(access.node, access.source)) is not None:
        left = lengths.steps + access.n_initial - count
        n_left_out = left.constant if left.is_constant and not access.is_reversed else 0
        return EndRead(access, n_left_out) if n_left_out > 0 else None
    if access.index is None or access.extent is None or access.is_reversed:
        return None
    if access.extent.is_empty:
        return None  # without the last rows, a slice of none may be one of some
    index = access.index.in_numbers
    if access.n_initial and (access.index.rest or not _reaches_into(index, access.n_initial)):
        return None
    n_left_out = access.extent.n_left_out
    return EndRead(access, n_left_out, index) if n_left_out > 0 else None


def only_sequences(variable: Variable, clients: Clients, length: AffineExpr) -> bool:
    """Whether all readers of ``variable`` are loops of ``length`` steps, as a sequence."""
    return all(sequence_steps(node, variable) == length for node, _ in clients(variable))


def _stride(index: slice) -> int:
    return 1 if index.step is None else int(index.step)


def _reaches_into(index: Any, start: int) -> bool:
    """Whether a slice leaves out at least one and at most ``start`` last rows.

    Its step must be 1 or -1. A forward slice may not start at a row counted from the end, and a
    reversed one must reach down to the first row.
    """
    if not isinstance(index, slice) or abs(_stride(index)) != 1:
        return False
    if _stride(index) > 0:
        begin, end = index.start, index.stop
        return (begin is None or begin >= 0) and end is not None and -start <= end < 0
    return index.stop is None and index.start is not None and -start <= index.start + 1 < 0


def _shifted(index: Any, fewer: int) -> Any:
    """``index``, where it counts from the end, for a source without its last ``fewer`` rows."""

    def moved(bound: int | None) -> int | None:
        return bound if bound is None or bound >= 0 else bound + fewer or None

    if isinstance(index, np.ndarray):
        return pt.constant(index + fewer)
    if isinstance(index, int):
        return index + fewer
    begin, end = moved(index.start), moved(index.stop)
    return slice(None if begin == -1 and _stride(index) < 0 else begin, end, index.step)
