"""How a node indexes the rows of a buffer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.subtensor import AdvancedSubtensor, IncSubtensor, Subtensor

from scanopt_cli.analysis.expression_text import describe
from scanopt_cli.ir.indexing import indices_of, is_full_slice, number
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.ir.scan_view import batch_ndim


@dataclass(frozen=True, slots=True)
class Bound:
    """A place between two rows: after ``offset`` rows, or, negative, so many before the end."""

    offset: int
    from_end: bool = False

    def reversed(self) -> Bound:
        """Return the same place, if the rows are counted last row first."""
        return Bound(-self.offset, not self.from_end)


@dataclass(frozen=True, slots=True)
class Extent:
    """Where an index reads, whatever the number of rows: between two places.

    There may be fewer rows than the places presume; then it reads fewer, or raises.
    """

    low: Bound
    high: Bound

    @classmethod
    def of(cls, index: Any) -> Extent:
        """Return the extent of a number, a slice of numbers, or an array of rows."""
        if isinstance(index, slice):
            return _of_slice(index)
        rows = np.atleast_1d(np.asarray(index))
        low, high = int(rows.min()), int(rows.max())
        if low < 0 <= high:
            return cls(Bound(0), Bound(0, from_end=True))
        return cls(Bound(low, low < 0), Bound(high + 1, high < 0))

    @property
    def is_empty(self) -> bool:
        """Whether no row is read, however many there are."""
        low, high = self.low, self.high
        if low.from_end == high.from_end:
            return high.offset <= low.offset
        return high == Bound(0) or low == Bound(0, from_end=True)

    @property
    def n_last(self) -> int | None:
        """How many last rows it reads at most, if it counts only from the end."""
        if self.is_empty:
            return 0
        return -self.low.offset if self.low.from_end and self.high.from_end else None

    @property
    def n_first(self) -> int | None:
        """How many first rows it reads at most, if it counts only from the first."""
        if self.is_empty:
            return 0
        return None if self.low.from_end or self.high.from_end else self.high.offset

    @property
    def n_left_out(self) -> int:
        """How many last rows it leaves out, whatever the number of rows."""
        return -self.high.offset if self.high.from_end else 0

    def reversed(self) -> Extent:
        """Return the extent in the buffer of what reads its reversal."""
        return Extent(self.high.reversed(), self.low.reversed())


def _of_slice(index: slice) -> Extent:
    def place(bound: int | None, missing: Bound, behind: int) -> Bound:
        if bound is None:
            return missing
        return Bound(bound + behind, bound < 0)

    first, end = Bound(0), Bound(0, from_end=True)
    if index.step is None or index.step > 0:
        return Extent(place(index.start, first, 0), place(index.stop, end, 0))
    # x[s:e:-1] are the rows e+1 to s, last first.
    return Extent(place(index.stop, first, 1), place(index.start, end, 1))


@dataclass(frozen=True, slots=True)
class RowIndex:
    """The index by which a node reads rows.

    ``value`` is a scalar or a slice, as variables, or the array of a constant list of rows. In
    ``rest`` are the indices of the axes after that of the rows, without full slices at the end.
    """

    value: Any
    rest: tuple[Any, ...] = ()

    @property
    def is_slice(self) -> bool:
        """Whether the rows are sliced."""
        return isinstance(self.value, slice)

    @property
    def in_numbers(self) -> Any:
        """The scalar, slice or list of rows in numbers.

        ``None`` if a part is not constant, or for a step of 0, which is an error.
        """
        value = self.value
        if not isinstance(value, slice):
            return number(value) if not isinstance(value, np.ndarray) else value
        bounds = (value.start, value.stop, value.step)
        if any(part is not None and not isinstance(part, Constant) for part in bounds):
            return None
        return None if number(value.step, 1) == 0 else slice(*map(number, bounds))

    @property
    def row(self) -> int | None:
        """The one row that it reads, by a constant scalar; else ``None``."""
        found = self.in_numbers
        return found if isinstance(found, int) else None

    @property
    def extent(self) -> Extent | None:
        """Where it reads, ``None`` if a part is not constant."""
        found = self.in_numbers
        return None if found is None else Extent.of(found)

    @property
    def is_reversal(self) -> bool:
        """Whether it takes every row, last row first, and indexes no other axis."""
        value = self.value
        is_all = isinstance(value, slice) and value.start is value.stop is None
        return is_all and number(value.step) == -1 and not self.rest

    @property
    def reads_last(self) -> bool:
        """Whether it reads the last row and no other, by an index or a slice of rows alone."""
        value = self.value
        if isinstance(value, slice):
            return not self.rest and self.strips(-1)
        return not isinstance(value, np.ndarray) and number(value) == -1

    def strips(self, n_rows: int) -> bool:
        """Whether it is the slice ``[n_rows:]``."""
        value = self.value
        if not isinstance(value, slice) or value.stop is not None:
            return False
        return number(value.start, 0) == n_rows and number(value.step, 1) == 1

    def __str__(self) -> str:
        value = self.value
        if isinstance(value, np.ndarray):
            return str(value.tolist())
        if not isinstance(value, slice):
            return describe(value)
        bounds = [value.start, value.stop, *([] if value.step is None else [value.step])]
        return ":".join("" if bound is None else describe(bound) for bound in bounds)


def read_index(node: Apply, axis: int) -> RowIndex | None:
    """Return how ``node`` reads rows, which are on ``axis``; ``None`` if it does otherwise.

    Other axes may be indexed too, but not those before the rows, and none if the rows are a list.
    """
    if isinstance(node.op, AdvancedSubtensor):
        return _listed(node) if axis == 0 else None
    indices = indices_from(node, axis) if isinstance(node.op, Subtensor) else []
    return RowIndex(indices[0], tuple(indices[1:])) if indices else None


def _listed(node: Apply) -> RowIndex | None:
    if tuple(node.op.idx_list) != (0,):
        return None
    rows: Any = node.inputs[1]
    is_list = isinstance(rows, Constant) and rows.type.ndim == 1 and rows.type.dtype != "bool"
    return RowIndex(np.asarray(rows.data)) if is_list and rows.data.size else None


def rows_index(node: Apply, axis: int) -> Any:
    """Return the scalar or slice by which ``node`` reads or writes rows, which are on ``axis``.

    ``None`` if ``node`` is no Subtensor or IncSubtensor, plain or in a Blockwise, or if it indexes
    other axes too.
    """
    indices = indices_from(node, axis)
    return indices[0] if len(indices) == 1 else None


def indices_from(node: Apply, axis: int) -> list[Any]:
    """Return the indices of ``axis`` and of the axes after it, without full slices at the end.

    Empty if ``node`` is no Subtensor or IncSubtensor, plain or in a Blockwise whose batch axes come
    before ``axis``, or if it indexes axes before that.
    """
    before = axis - batch_ndim(node)
    if not isinstance(core_op(node.op), Subtensor | IncSubtensor):
        return []
    if isinstance(node.op, Blockwise) and before:
        return []
    indices = indices_of(node)
    if not all(map(is_full_slice, indices[:before])):
        return []
    while len(indices) > before + 1 and is_full_slice(indices[-1]):
        indices.pop()
    return indices[before:]


def axis_of(node: Apply) -> int | None:
    """Return the one axis that a Subtensor or IncSubtensor indexes, ``None`` if there are more.

    It is axis 0 if every index is a full slice.
    """
    if not isinstance(node.op, Subtensor | IncSubtensor):
        return None
    indices = indices_of(node)
    used = [axis for axis, index in enumerate(indices) if not is_full_slice(index)]
    if len(used) > 1 or not indices:
        return None
    return used[0] if used else 0
