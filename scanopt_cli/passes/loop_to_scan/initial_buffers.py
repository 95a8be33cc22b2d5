"""Initial buffers of states, from the initial values of a TracedLoop.

`scan-to-loop` reads the initial values ``rows[0]``, ``rows[1]`` of the rows that a buffer starts
with, or of the buffer itself, if it is no array with room that they are written into.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from scanopt_cli.analysis.accesses.indices import rows_index
from scanopt_cli.analysis.initial_buffers import with_room
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.loop_lengths import is_start
from scanopt_cli.ir.indexing import number


def row_of(value: Variable) -> tuple[Variable, int] | None:
    """Return the array, and the number of the row, that ``value`` is read of; ``None`` if none."""
    node = value.owner
    if node is None or not isinstance(node.op, Subtensor):
        return None
    index = rows_index(node, 0)
    row = None if isinstance(index, slice) else number(index)
    return None if row is None or row < 0 else (node.inputs[0], row)


def buffer_of(
    starts: Sequence[Any],
    kind: Any,
    lengths: Lengths,
    rows_and_steps: Callable[[int], Any],
    *,
    was_one: bool,
) -> Variable:
    """Return a buffer that starts with the rows ``starts``, and has room for a row of each step.

    ``kind`` is the type of a row, and ``rows_and_steps`` returns a number plus that of the steps.
    ``was_one`` says that there was such a buffer in a Scan. Without it, none is made of an Alloc of
    numbers: PyTensor would shorten it to a number, and then fail.
    """
    count = len(starts)
    places = [row_of(start) for start in starts]
    rows: Any = places[0] and places[0][0]
    if rows is not None and places == [(rows, place) for place in range(count)]:
        length = lengths.length_of(rows)
        made: Any = rows.owner.inputs[0] if isinstance(rows.owner_op, SpecifyShape) else rows
        is_room = isinstance(made.owner_op, Alloc | IncSubtensor)
        is_room &= was_one or rows.type.ndim > 1
        if is_room and length == lengths.steps + count:
            return _declared(rows, kind)
        if count > 1 and not is_start(length, count):
            rows = rows[:count]
        if count > 1 or rows.type.shape[0] == 1:
            return _with_room(rows, kind, count, rows_and_steps)
    rows = pt.stack(list(starts)) if count > 1 else pt.expand_dims(starts[0], 0)
    return _with_room(rows, kind, count, rows_and_steps)


def _with_room(rows: Any, kind: Any, count: int, rows_and_steps: Callable[[int], Any]) -> Variable:
    known = [a if b is None else b for a, b in zip(rows.type.shape[1:], kind.shape, strict=True)]
    shape = [_length(rows, 1 + axis) if n is None else n for axis, n in enumerate(known)]
    # Rows that are allocated to be broadcast may as well be broadcast where they are written.
    value = rows.owner.inputs[0] if isinstance(rows.owner_op, Alloc) else rows
    rows = value if value.type.ndim == rows.type.ndim else rows
    buffer: Any = with_room(rows, [rows_and_steps(count), *shape], count)
    buffer.owner.inputs[0].tag.nan_guard_mode_check = False
    return _declared(buffer, kind)


def _length(variable: Any, axis: int) -> Any:
    """Return the length of an array, as the variable that it was allocated by if there is one."""
    source, place = variable, axis
    while isinstance(source.owner_op, DimShuffle) and source.owner.op.new_order[place] != "x":
        place = int(source.owner.op.new_order[place])
        source = source.owner.inputs[0]
    is_known = isinstance(source.owner_op, Alloc)
    return source.owner.inputs[1 + place] if is_known else variable.shape[axis]


def _declared(buffer: Any, kind: Any) -> Variable:
    """Return a buffer that declares the lengths of its rows as ``kind`` does."""
    wanted = kind.clone(shape=(buffer.type.shape[0], *kind.shape))
    made: Variable = wanted.filter_variable(buffer, allow_convert=True)
    return made
