"""Finds the readers of a loop's output and the steps they read, for memory saving.

A reader is described by how far it reads: the last ``tail`` steps, or the first ``head`` steps.
Both bounds hold for any trip count; a reader that may read any step has neither. Readers of a
reversal count as readers of the output: the first rows of the reversal are the last of the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import Output
from pytensor.tensor.shape import Shape_i
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor, get_idx_list

from scanopt_cli.analysis.accesses.row_ranges import rows_index
from scanopt_cli.analysis.affine import AffineExpr
from scanopt_cli.analysis.describing import describe
from scanopt_cli.analysis.lengths import Lengths, is_full_slice
from scanopt_cli.ir.scan_view import TRACED, ScanView, Slot, SlotKind, scan_op

type Clients = Callable[[Variable], Sequence[tuple[Any, int]]]


@dataclass(frozen=True, slots=True)
class Read:
    """One reader of a loop's output.

    Attributes
    ----------
    text
        How it reads: ``[::2]``, ``an operand of Sum``.
    tail
        How many last steps it reads, if it counts from the end only: with ``tail`` steps kept it
        reads the same values, and raises in the same cases. Initial rows are not counted, and a
        read that stays within them has ``tail`` 0.
    head
        How many first steps it reads, if it counts from the first row only.
    """

    text: str
    tail: int | None = None
    head: int | None = None


type Reads = Mapping[Slot, Sequence[Read]]


def reads_of_outputs(view: ScanView, clients: Clients) -> Reads:
    """Return the readers of each traced output of a loop."""
    return {slot: reads(view, slot, clients) for slot in view.of_kind(*TRACED)}


def reads(view: ScanView, slot: Slot, clients: Clients) -> list[Read]:
    """Return every reader of the output of ``slot``, in the graph's order.

    The slice that strips the initial rows off a state's buffer is replaced by its own readers.
    """
    assert slot.outer_output is not None
    return list(_reads(view, slot.outer_output, "", slot.n_initial, clients))


def _reads(
    view: ScanView,
    variable: Variable,
    before: str,
    reach: int,
    clients: Clients,
    *,
    is_stripped: bool = False,
    is_reversed: bool = False,
) -> Iterator[Read]:
    """Yield the readers of a buffer with ``reach`` initial rows.

    The initial rows are before the steps, or after them if the buffer ``is_reversed``.
    """
    axis = view.batch_ndim
    for node, position in clients(variable):
        index = row_index(node, axis) if position == 0 else None
        if isinstance(node.op, Shape_i) and node.op.i != axis:
            yield _nothing("its shape", reach)
            continue
        if index is None:
            yield Read(_operation_text(node))
            continue
        inner = node.outputs[0] if isinstance(index, slice) else None
        text = f"{before}[{_index_text(index)}]"
        if inner is not None and not (is_stripped or is_reversed) and is_strip(index, reach):
            yield from _reads(view, inner, before, 0, clients, is_stripped=True)
        elif inner is not None and not is_reversed and _is_reversal(index, node, axis):
            yield from _reads(view, inner, text, reach, clients, is_reversed=True)
        elif is_reversed:
            yield _of_reversed(_read(index, text, 0), reach)
        else:
            yield _read(index, text, reach)


def _nothing(text: str, reach: int) -> Read:
    """A read of no step. A trace keeps one step still: without it, its rows lose their shape."""
    return Read(text, tail=0 if reach else 1, head=0)


def _of_reversed(read: Read, reach: int) -> Read:
    """A read of a reversed buffer as a read of the buffer."""
    tail = None if read.head is None else max(read.head - reach, 0 if reach else 1)
    head = None if read.tail is None else max(read.tail - reach, 0)
    return Read(read.text, tail=tail, head=head)


def _operation_text(node: Apply) -> str:
    if isinstance(node.op, Output):
        return "an output"
    return f"an operand of {str(node.op).partition('{')[0]}"


def row_index(node: Apply, axis: int) -> Any:
    """Return the index by which ``node`` reads rows, which are on ``axis``; ``None`` if unclear.

    It is a scalar or a slice, or the array of a constant list of rows. Other axes may be indexed
    too, except with a list.
    """
    if isinstance(node.op, AdvancedSubtensor):
        return _listed(node) if axis == 0 else None
    if not isinstance(node.op, Subtensor):
        return None
    indices = get_idx_list(node.inputs, node.op.idx_list)
    if len(indices) <= axis or not all(map(is_full_slice, indices[:axis])):
        return None
    return indices[axis]


def rows_alone(node: Apply, axis: int) -> Any:
    """Return the scalar or slice by which ``node`` reads rows, if it indexes no other axis."""
    return rows_index(node, axis) if isinstance(node.op, Subtensor) else None


def sequence_steps(node: Apply, position: int) -> AffineExpr | None:
    """Return the trip count of the loop that reads a sequence, ``None`` for other readers.

    A batched loop is one of the others.
    """
    if scan_op(node) is None or scan_op(node) is not node.op:
        return None
    reader = ScanView.of(node)
    if not 0 < position <= len(reader.of_kind(SlotKind.SEQ)):
        return None
    return Lengths().value_of(reader.n_steps)


def in_numbers(index: Any) -> Any:
    """Return an index, slice or list of rows in numbers.

    ``None`` if a part is not constant, or for a step of 0, which is an error.
    """
    if isinstance(index, Constant):
        return int(index.data)
    if not isinstance(index, slice):
        return index if isinstance(index, np.ndarray) else None
    bounds = (index.start, index.stop, index.step)
    if any(part is not None and not isinstance(part, Constant) for part in bounds):
        return None
    return None if number(index.step, 1) == 0 else slice(*map(number, bounds))


def is_strip(index: slice, reach: int) -> bool:
    """Whether a slice strips off ``reach`` initial rows."""
    return number(index.start, 0) == reach and index.stop is None and number(index.step, 1) == 1


def number(part: Any, missing: int | None = None) -> int | None:
    """Return a constant bound of a slice as a number; ``missing`` if there is no bound."""
    if part is None:
        return missing
    return int(part.data) if isinstance(part, Constant) else None


def _listed(node: Apply) -> Any:
    """The constant list of rows that ``node`` reads; ``None`` if it reads otherwise."""
    if tuple(node.op.idx_list) != (0,):
        return None
    rows: Any = node.inputs[1]
    is_list = isinstance(rows, Constant) and rows.type.ndim == 1 and rows.type.dtype != "bool"
    return np.asarray(rows.data) if is_list and rows.data.size else None


def _is_reversal(index: slice, node: Apply, axis: int) -> bool:
    is_all = index.start is index.stop is None
    return is_all and number(index.step) == -1 and rows_alone(node, axis) is not None


def _read(index: Any, text: str, reach: int) -> Read:
    if isinstance(index, np.ndarray):
        least, most = int(index.min()), int(index.max())
        if most < 0:
            return Read(text, tail=max(-least - reach, 0))
        return Read(text, head=max(most + 1 - reach, 0)) if least >= 0 else Read(text)
    if not isinstance(index, slice):
        place = number(index)
        if place is None:
            return Read(text)
        if place < 0:
            return Read(text, tail=max(-place - reach, 0))
        return Read(text, head=max(place + 1 - reach, 0))
    step = number(index.step, 1)
    start, stop = number(index.start, 0), number(index.stop, 0)
    if step is None or step == 0 or start is None or stop is None:
        return Read(text)
    # The slice runs between `low` and `high`, `low` first in the buffer; negative ones count from
    # the end.
    low, high = (index.start, index.stop) if step > 0 else (index.stop, index.start)
    if low is not None and _is_negative(low) and (high is None or _is_negative(high)):
        # A reversed slice does not read its lower bound itself.
        deepest = -int(low.data) - (step < 0)
        return Read(text, tail=max(deepest - reach, 0 if reach else 1))
    if step > 0 and high is not None and stop == 0:
        return _nothing(text, reach)
    if step > 0 and high is not None and not _is_negative(high) and start >= 0:
        return Read(text, head=max(stop - reach, 0))
    if step < 0 and high is not None and not _is_negative(high) and (low is None or stop >= 0):
        return Read(text, head=max(start + 1 - reach, 0))
    return Read(text)


def _is_negative(part: Constant) -> bool:
    return int(part.data) < 0


def _index_text(index: Any) -> str:
    def text_of(part: Any) -> str:
        return "" if part is None else describe(part)

    if isinstance(index, np.ndarray):
        return str(index.tolist())
    if not isinstance(index, slice):
        return text_of(index)
    text = f"{text_of(index.start)}:{text_of(index.stop)}"
    return text if index.step is None else f"{text}:{text_of(index.step)}"
