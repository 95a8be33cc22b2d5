"""Initial buffers of states, from the initial values of a TracedLoop.

`scan-to-loop` reads the initial values ``rows[0]``, ``rows[1]`` of the rows that a buffer starts
with, or of the buffer itself, if it is no array with room that they are written into.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from scanopt_cli.analysis.accesses.indices import rows_index
from scanopt_cli.analysis.affine import ZERO
from scanopt_cli.analysis.initial_buffers import with_room
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.loop_lengths import is_start
from scanopt_cli.ir.copies import copied
from scanopt_cli.ir.indexing import number


def row_of(value: Variable) -> tuple[Variable, int] | None:
    """Return the array, and the number of the row, that ``value`` is read of; ``None`` if none."""
    node = value.owner
    if node is None or not isinstance(node.op, Subtensor):
        return None
    index = rows_index(node, 0)
    row = None if isinstance(index, slice) else number(index)
    return None if row is None or row < 0 else (node.inputs[0], row)


def first_rows_of(rows: Variable, count: int) -> Variable | None:
    """Return the array whose first ``count`` rows are ``rows``, by a slice; ``None`` if none."""
    node = rows.owner
    if node is not None and isinstance(node.op, SpecifyShape):
        node = node.inputs[0].owner
    index = None if node is None or not isinstance(node.op, Subtensor) else rows_index(node, 0)
    if node is None or not isinstance(index, slice) or number(index.stop) != count:
        return None
    is_plain = number(index.start, 0) == 0 and number(index.step, 1) == 1
    return node.inputs[0] if is_plain else None


def rows_of(starts: Sequence[Any]) -> Any:
    """Return an array that starts with the rows ``starts``: that of which they are read, if any."""
    places = [row_of(start) for start in starts]
    source = places[0] and places[0][0]
    if source is not None and places == [(source, place) for place in range(len(starts))]:
        return source
    return pt.stack(list(starts)) if len(starts) > 1 else pt.expand_dims(starts[0], 0)


def buffer_of(
    rows: Any,
    count: int,
    kind: Any,
    lengths: Lengths,
    rows_and_steps: Callable[[int], Any],
    *,
    was_one: bool,
) -> Variable:
    """Return a buffer that starts with ``count`` rows of ``rows``, with room for each step.

    ``kind`` is the type of a row, and ``rows_and_steps`` returns a number plus that of the steps.
    ``was_one`` says that there was such a buffer in a Scan. Without it, none is made of an Alloc of
    numbers: PyTensor would shorten it to a number, and then fail.
    """
    length = lengths.length_of(rows)
    made: Any = rows
    while (source := _undeclared(made)) is not None:
        made = source
    is_buffer = isinstance(made.owner_op, Alloc | IncSubtensor) or lengths.steps == ZERO
    if was_one:
        is_buffer |= isinstance(made, Constant)
        is_buffer &= is_start(length - lengths.steps, count)
    else:
        is_buffer &= rows.type.ndim > 1 and length == lengths.steps + count
    if is_buffer:
        return _declared(rows, kind)
    # The type must show that it is one row: PyTensor requires that where it keeps the last step.
    if count == 1 and rows.type.shape[0] != 1:
        rows = pt.expand_dims(rows[0], 0)
    elif not is_start(length, count):
        rows = rows[:count]
    return _with_room(rows, kind, count, rows_and_steps)


def _undeclared(rows: Any) -> Any:
    """Return the same rows before they were copied or declared, ``None`` if they were not."""
    is_declared = isinstance(rows.owner_op, SpecifyShape)
    return rows.owner.inputs[0] if is_declared else copied(rows)


def _with_room(rows: Any, kind: Any, count: int, rows_and_steps: Callable[[int], Any]) -> Variable:
    known = [a if b is None else b for a, b in zip(rows.type.shape[1:], kind.shape, strict=True)]
    lengths = rows.shape
    shape = [_length(rows, 1 + i, lengths) if n is None else n for i, n in enumerate(known)]
    # Rows that are allocated to be broadcast may as well be broadcast where they are written.
    value = rows.owner.inputs[0] if isinstance(rows.owner_op, Alloc) else rows
    rows = value if value.type.ndim == rows.type.ndim else rows
    buffer: Any = with_room(rows, [rows_and_steps(count), *shape], count)
    buffer.owner.inputs[0].tag.nan_guard_mode_check = False
    return _declared(buffer, kind)


def _length(variable: Any, axis: int, lengths: Any) -> Any:
    """Return one of the lengths of an array: what it was allocated by, if there is such."""
    source, place = variable, axis
    while isinstance(source.owner_op, DimShuffle) and source.owner.op.new_order[place] != "x":
        place = int(source.owner.op.new_order[place])
        source = source.owner.inputs[0]
    is_known = isinstance(source.owner_op, Alloc)
    return source.owner.inputs[1 + place] if is_known else lengths[axis]


def _declared(buffer: Any, kind: Any) -> Variable:
    """Return a buffer that declares the lengths of its rows as ``kind`` does."""
    wanted = kind.clone(shape=(buffer.type.shape[0], *kind.shape))
    made: Variable = wanted.filter_variable(buffer, allow_convert=True)
    return made
