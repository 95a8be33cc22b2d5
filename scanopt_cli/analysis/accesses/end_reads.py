"""Readers that leave out the last steps of a loop, however many steps there are."""

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
from scanopt_cli.analysis.count_variables import as_count
from scanopt_cli.analysis.lengths import AffineExpr, Lengths, is_full_slice
from scanopt_cli.ir.scan_view import ScanView, Slot

_ONE = AffineExpr(1)


@dataclass(frozen=True, slots=True)
class EndRead:
    """A reader that leaves out the last ``behind`` steps, and of which steps there may be none.

    ``start`` is how many rows of start are in what it reads. ``index`` is ``None`` if it reads by
    count, as a loop reads a sequence, and needs no other index when there are fewer rows.
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
        """Return the same of ``rows``, which are those that were read without the last ``fewer``.

        ``length`` is how many rows there were, if there may have been fewer than ``fewer`` steps:
        then more rows of the start are left than are to be read, which are counted.
        """
        front = (slice(None),) * axis
        node, index = self.node, self.index
        made: Variable
        if self.start and length is not None:
            counted = as_count(length - AffineExpr(self.behind))
            if _steps(index) > 0:
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
        """Return the same for loops that read no more rows than were read here, if it is less.

        They read first rows, so what is behind them does not count; and a loop of no steps reads
        none.
        """
        index = self.index
        if not isinstance(index, slice) or abs(_steps(index)) != 1:
            return None
        if _steps(index) > 0:
            return rows if not index.start else None
        if self.start <= 1 and self.behind == fewer == 1 and index.stop is None:
            turned: Variable = rows[(*(slice(None),) * axis, slice(None, None, -1))]
            return turned
        return None


def end_read(
    node: Apply, position: int, view: ScanView, lengths: Lengths, *, start: int
) -> EndRead | None:
    """Return how ``node`` leaves out last steps, ``None`` if it may read the last one.

    Of what it reads, ``start`` rows are not steps.
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
    """Return ``ys[-1]`` for ``ys[n-1]`` of the ``n`` steps of a loop that does not stop early.

    The buffer of ``slot`` must hold every step.
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
    """``x[-k]`` for a read of ``x[n-k]`` of ``n`` rows, and so for the bounds of slices.

    ``None`` if there is none, or if that may be another row when there are few: for ``k`` = 1 it is
    the same row, or error, whatever the length.
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
    """Whether nobody but loops of ``length`` steps reads ``variable``, as a sequence."""
    return all(sequence_steps(node, position) == length for node, position in clients(variable))


def _steps(index: slice) -> int:
    return 1 if index.step is None else int(index.step)


def _reaches_into(index: Any, start: int) -> bool:
    """Whether a slice from the first row on, or down to it, leaves out no more than the start."""
    if not isinstance(index, slice) or abs(_steps(index)) != 1:
        return False
    if _steps(index) > 0:
        begin, end = index.start, index.stop
        return (begin is None or begin >= 0) and end is not None and -start <= end < 0
    return index.stop is None and index.start is not None and -start <= index.start + 1 < 0


def _behind(index: Any) -> int:
    """How many last rows are left out whatever the length; 0 if the last may be read."""
    if isinstance(index, np.ndarray):
        return -1 - int(index.max()) if index.max() < 0 else 0
    if isinstance(index, int):
        return -1 - index if index < 0 else 0
    first, last = index.start, index.stop
    if _steps(index) > 0:
        is_empty = first is not None and last is not None and last <= first < 0
        return -last if last is not None and last < 0 and not is_empty else 0
    is_empty = first is not None and last is not None and first <= last < 0
    return -1 - first if first is not None and first < 0 and not is_empty else 0


def _shifted(index: Any, fewer: int) -> Any:
    """An index that counts from the end, where there are ``fewer`` rows there."""

    def moved(bound: int | None) -> int | None:
        return bound if bound is None or bound >= 0 else bound + fewer or None

    if isinstance(index, np.ndarray):
        return pt.constant(index + fewer)
    if isinstance(index, int):
        return index + fewer
    begin, end = moved(index.start), moved(index.stop)
    return slice(None if begin == -1 and _steps(index) < 0 else begin, end, index.step)
