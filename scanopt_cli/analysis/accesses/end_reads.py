"""Readers that leave out the last steps of a loop, whatever its trip count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.subtensor import get_idx_list

from scanopt_cli.analysis.accesses.reads import (
    Clients,
    in_numbers,
    row_index,
    rows_alone,
    sequence_steps,
)
from scanopt_cli.analysis.accesses.stripped import readers_of
from scanopt_cli.analysis.affine import AffineExpr
from scanopt_cli.analysis.count_variables import as_count
from scanopt_cli.analysis.lengths import Lengths, is_full_slice
from scanopt_cli.ir.scan_view import ScanView, Slot

_ONE = AffineExpr(1)


@dataclass(frozen=True, slots=True)
class EndRead:
    """A reader that leaves out the last ``behind`` steps; it may read no step at all.

    ``start`` is the number of initial rows in the variable that it reads. ``index`` is ``None`` if
    it reads a number of first rows, as a loop reads a sequence; it then needs no other index where
    there are fewer rows.
    """

    node: Apply
    behind: int
    start: int
    index: Any = None

    @property
    def is_row(self) -> bool:
        """Whether one row is read, by an index."""
        return isinstance(self.index, int)

    def of(self, rows: Any, axis: int, fewer: int, length: AffineExpr | None) -> Variable:
        """Return the same read of ``rows``, the rows of the source without the last ``fewer``.

        ``length`` is the length of the source, given if there may have been fewer than ``fewer``
        steps. Then ``rows`` may hold more initial rows than the reader takes, and a read that
        includes initial rows counts its rows from the first.
        """
        front = (slice(None),) * axis
        node, index = self.node, self.index
        made: Variable
        if self.start and length is not None:
            counted = as_count(length - AffineExpr(self.behind))
            if _stride(index) > 0:
                made = rows[(*front, slice(index.start, counted))]
            else:
                made = rows[(*front, slice(None, counted))][(*front, slice(None, None, -1))]
        else:
            rest = tuple(get_idx_list(node.inputs, node.op.idx_list)[axis + 1 :])
            index = _shifted(index, fewer)
            if is_full_slice(index) and not rest:
                return rows  # type: ignore[no-any-return]
            made = rows[(*front, index, *rest)]
        made.name = node.outputs[0].name
        return made

    def of_sequence(self, rows: Any, axis: int, fewer: int) -> Variable | None:
        """Return the same for loops that read at most these rows as a sequence, if simpler.

        A loop reads the first rows of a sequence, so further rows behind those do not matter; a
        loop of no steps reads none. ``None`` if there is no simpler form than that of `of`.
        """
        index = self.index
        if not isinstance(index, slice) or abs(_stride(index)) != 1:
            return None
        if _stride(index) > 0:
            return rows if not index.start else None
        if self.start <= 1 and self.behind == fewer == 1 and index.stop is None:
            turned: Variable = rows[(*(slice(None),) * axis, slice(None, None, -1))]
            return turned
        return None


def end_read(
    node: Apply, position: int, view: ScanView, lengths: Lengths, *, start: int
) -> EndRead | None:
    """Return how ``node`` leaves out the last steps, ``None`` if it may read the last one.

    ``start`` is the number of initial rows in the variable that it reads.
    """
    axis = view.batch_ndim
    length = lengths.value_of(view.n_steps) + AffineExpr(start)
    if (count := sequence_steps(node, position)) is not None:
        left = length - count
        behind = left.constant if left.is_constant else 0
        return EndRead(node, behind, start) if behind > 0 else None
    index = in_numbers(row_index(node, axis)) if position == 0 else None
    if index is None:
        return None
    if start and (rows_alone(node, axis) is None or not _reaches_into(index, start)):
        return None
    behind = _behind(index)
    return EndRead(node, behind, start, index) if behind > 0 else None


def counted_reads(
    view: ScanView, slot: Slot, lengths: Lengths, clients: Clients
) -> dict[Variable, Variable]:
    """Return ``ys[-1]`` for each read ``ys[n-1]`` of the ``n`` steps of a loop.

    The loop may not stop early, and the buffer of ``slot`` must hold every step.
    """
    steps = lengths.value_of(view.n_steps)
    found: dict[Variable, Variable] = {}
    for node, position, start in readers_of(view, slot, clients):
        length = steps + AffineExpr(start)
        new = _counted_from_end(node, position, view.batch_ndim, length, lengths)
        if new is not None:
            found[node.outputs[0]] = new
    return found


def _counted_from_end(
    node: Apply, position: int, axis: int, length: AffineExpr, lengths: Lengths
) -> Variable | None:
    """``x[-k]`` for a read ``x[n-k]`` of ``n`` rows, and likewise for the bounds of slices.

    ``None`` if no bound has that form, or if ``-k`` may be another row when there are few rows. For
    ``k`` = 1 it is the same row, or the same error, whatever the length.
    """
    index = row_index(node, axis) if position == 0 else None

    def moved(bound: Any) -> Any:
        if bound is None or isinstance(bound, Constant):
            return bound
        back = length - lengths.value_of(bound)
        if not back.is_constant or back.constant < 1:
            return bound
        is_same = back == _ONE or lengths.provably_le(back, length)
        return -back.constant if is_same else bound

    if index is None or isinstance(index, np.ndarray):
        return None
    if isinstance(index, slice):
        new: Any = slice(moved(index.start), moved(index.stop), index.step)
        is_new = new.start is not index.start or new.stop is not index.stop
    else:
        new = moved(index)
        is_new = new is not index
    if not is_new:
        return None
    rest = tuple(get_idx_list(node.inputs, node.op.idx_list)[axis + 1 :])
    source: Any = node.inputs[0]
    made: Variable = source[(*(slice(None),) * axis, new, *rest)]
    made.name = node.outputs[0].name
    return made


def only_sequences(variable: Variable, clients: Clients, length: AffineExpr) -> bool:
    """Whether all readers of ``variable`` are loops of ``length`` steps, as a sequence."""
    return all(sequence_steps(node, position) == length for node, position in clients(variable))


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


def _behind(index: Any) -> int:
    """How many last rows an index leaves out whatever the length; 0 if it may read the last."""
    if isinstance(index, np.ndarray):
        return -1 - int(index.max()) if index.max() < 0 else 0
    if isinstance(index, int):
        return -1 - index if index < 0 else 0
    first, last = index.start, index.stop
    if _stride(index) > 0:
        is_empty = first is not None and last is not None and last <= first < 0
        return -last if last is not None and last < 0 and not is_empty else 0
    is_empty = first is not None and last is not None and first <= last < 0
    return -1 - first if first is not None and first < 0 and not is_empty else 0


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
