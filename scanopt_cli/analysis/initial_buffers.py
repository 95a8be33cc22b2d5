"""Initial buffers of states: the initial rows, in a buffer with room for every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.basic import AllocEmpty
from pytensor.tensor.subtensor import IncSubtensor

from scanopt_cli.analysis.accesses.indices import rows_index
from scanopt_cli.analysis.affine import ZERO, AffineExpr
from scanopt_cli.analysis.count_variables import as_count
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.loop_lengths import is_start, with_start
from scanopt_cli.analysis.row_runs import Rows, is_positive_zero
from scanopt_cli.ir.indexing import along, number


def with_room(
    start: Variable, shape: Sequence[Any], width: int = 1, axis: int = 0, dtype: str | None = None
) -> Variable:
    """Return a buffer of ``shape`` whose first ``width`` rows along ``axis`` are ``start``.

    It is the expression that PyTensor itself builds: ``empty(shape)[:width].set(start)``. The
    buffer has ``dtype``, by default that of ``start``.
    """
    empty: Any = AllocEmpty(start.type.dtype if dtype is None else dtype)(*shape)
    made: Variable = empty[along(axis, slice(None, width))].set(start)
    return made


def with_dtype(buffer: Variable, dtype: str) -> Variable:
    """Return an initial buffer in another dtype; what `with_room` makes, with its rows cast."""
    node = buffer.owner
    if node is not None and isinstance(node.op, IncSubtensor):
        whole, rows, *index = node.inputs
        if whole.owner is not None and isinstance(whole.owner.op, AllocEmpty):
            empty = AllocEmpty(dtype)(*whole.owner.inputs)
            made: Variable = node.op.make_node(empty, pt.cast(rows, dtype), *index).outputs[0]
            return made
    cast: Variable = pt.cast(buffer, dtype)
    return cast


def initial_rows(buffer: Variable, count: int, lengths: Lengths, axis: int = 0) -> Variable:
    """Return what holds the first ``count`` rows of ``buffer``: if they were written, their values.

    The rows are along ``axis``. A read of the buffer would keep it alive, with its room for every
    step.
    """
    node = buffer.owner
    if node is None or not isinstance(node.op, IncSubtensor) or not node.op.set_instead_of_inc:
        return buffer
    whole: Any
    rows: Any
    whole, rows, *_ = node.inputs
    index = rows_index(node, axis)
    if not isinstance(index, slice) or index.start is not None or number(index.step, 1) != 1:
        return buffer
    is_long_enough = index.stop is not None and lengths.provably_le(
        count, with_start(lengths.value_of(index.stop), count)
    )
    is_alike = (rows.type.dtype, rows.type.ndim) == (buffer.type.dtype, buffer.type.ndim)
    if not (is_long_enough and is_alike and is_start(lengths.length_of(rows, axis), count)):
        return buffer
    # What is written may be broadcast to the rows.
    others = [
        other
        for other in range(buffer.type.ndim)
        if other != axis and lengths.length_of(rows, other) != lengths.length_of(buffer, other)
    ]
    made: Any = buffer
    if not others:
        made = rows
    elif axis:
        return buffer
    elif isinstance(whole.owner_op, AllocEmpty) and all(rows.type.broadcastable[a] for a in others):
        made = pt.alloc(rows, count, *whole.owner.inputs[1:])
    return made  # type: ignore[no-any-return]


class InitialBuffer:
    """The initial buffer of a mit_mot: reads rows from it, and builds other buffers of its rows.

    ``rows`` are the known values of its rows, ``steps`` is the trip count as a variable, and
    ``axis`` the axis of the rows.
    """

    def __init__(
        self, buffer: Variable, rows: Rows, steps: Any, axis: int, lengths: Lengths
    ) -> None:
        self._buffer: Any = buffer
        self._rows = rows
        self._axis = axis
        self._lengths = lengths
        self._steps_form = lengths.value_of(steps)
        self._steps = steps if steps.type.dtype == "int64" else steps.astype("int64")
        self._length = lengths.length_of(buffer, axis)

    @property
    def is_certain(self) -> bool:
        """Whether computing the initial buffer provably cannot fail."""
        return self._rows.is_certain

    def after(self, row: AffineExpr) -> Variable:
        """Return the rows from ``row`` on."""
        return self._between(row, self._length)

    def sequence(self, tap: int) -> Variable:
        """Return the rows from row ``tap`` on, one for each step."""
        return self._between(AffineExpr(tap), self._steps_form + tap)

    def common(self, tap: int) -> Variable | None:
        """Return the value that all rows of ``sequence(tap)`` have, ``None`` if none is known."""
        low = AffineExpr(tap)
        return self._rows.common(low, low + self._steps_form, self._lengths)

    def last(self, width: int) -> Variable | None:
        """Return the value of the ``width`` rows after one for each step, ``None`` if not known."""
        low = self._steps_form
        return self._rows.common(low, low + width, self._lengths)

    def state(self, begin: int, end: int) -> Variable:
        """Return a buffer that starts with the rows ``begin`` to ``end``, with room for each step.

        The rows are read from the initial buffer, unless it provably cannot fail and they are all
        zero, or are a single row of known value.
        """
        values = [self._known(row) for row in range(begin, end)]
        if all(map(is_positive_zero, values)):
            return self.zero_state(end - begin)
        if end - begin > 1:
            start: Any = self._between(AffineExpr(begin), AffineExpr(end))
        elif values[0] is not None:
            start = self._as_row(values[0])
        else:
            # The type must show that it is one row: PyTensor requires that where it keeps only the
            # last step.
            start = pt.expand_dims(self._buffer[along(self._axis, begin)], self._axis)
        return self._with_room(start, end - begin)

    def zero_state(self, width: int) -> Variable:
        """Return a buffer that starts with ``width`` rows of zeros, with room for each step."""
        dtype = self._buffer.type.dtype
        if self._buffer.type.ndim == self._axis + 1 and width == 1:
            # PyTensor would shorten an Alloc here to a scalar, and then fail on it.
            return self._with_room(self._as_row(pt.constant(0, dtype=dtype)), width)
        shape = self._shape(width)
        shape[self._axis] = width
        return self._with_room(pt.zeros(shape, dtype=dtype), width)

    def _with_room(self, start: Variable, width: int) -> Variable:
        """A buffer that starts with the ``width`` rows ``start``, with room for each step."""
        return with_room(start, self._shape(width), width, self._axis, self._buffer.type.dtype)

    def zeros(self, width: int) -> Variable:
        """Return a buffer of zeros, with ``width`` rows and one for each step."""
        made: Variable = pt.zeros(self._shape(width), dtype=self._buffer.type.dtype)
        return made

    def _known(self, row: int) -> Variable | None:
        if not self.is_certain:
            return None
        return self._rows.common(AffineExpr(row), AffineExpr(row + 1), self._lengths)

    def _as_row(self, value: Any) -> Variable:
        """A known value as a buffer of one row; a scalar is broadcast where it is written."""
        is_number = value.type.ndim == 0
        axes = tuple(range(self._buffer.type.ndim)) if is_number else self._axis
        row: Variable = pt.expand_dims(value, axes)
        return row

    def _shape(self, width: int) -> list[Any]:
        """The shape of a buffer with ``width`` rows and one for each step."""
        shape = [self._dimension(axis) for axis in range(self._buffer.type.ndim)]
        shape[self._axis] = self._count(self._steps_form + width)
        return shape

    def _dimension(self, axis: int) -> Any:
        if axis == self._axis:
            return None
        count = as_count(self._lengths.length_of(self._buffer, axis))
        return self._buffer.shape[axis] if count is None else count

    def _count(self, form: AffineExpr) -> Any:
        """``form``, which is a constant or the trip count plus a constant, as a variable."""
        count = as_count(form)
        if count is None:
            count = self._steps + (form - self._steps_form).constant
        return count

    def _between(self, low: AffineExpr, high: AffineExpr) -> Variable:
        """The rows from ``low`` to ``high`` of the buffer."""
        begin = None if low == ZERO else self._bound(low)
        end = None if high == self._length else self._bound(high)
        rows: Variable = self._buffer
        if begin is not None or end is not None:
            rows = self._buffer[along(self._axis, slice(begin, end))]
        return rows

    def _bound(self, row: AffineExpr) -> Any:
        """``row`` as a slice's bound: a number, from the start or from the end, or a variable."""
        if row.is_constant:
            return row.constant
        behind = row - self._length
        return behind.constant if behind.is_constant else self._count(row)
