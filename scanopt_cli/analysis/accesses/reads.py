"""Who reads a loop's output, and which of its rows: what memory saving needs to know.

A reader is told by how far it looks: ``tail`` rows from the end, or the first ``head`` steps. Both
are bounds that hold for any number of steps; a reader that may look anywhere has neither.
A reversal is looked through: what is first of a reversal is last of the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import Output
from pytensor.tensor.shape import Shape_i
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor, get_idx_list

from scanopt_cli.analysis.accesses.row_ranges import rows_index
from scanopt_cli.analysis.describing import describe
from scanopt_cli.analysis.lengths import AffineExpr, Lengths, is_full_slice
from scanopt_cli.ir.scan_view import ScanView, Slot, SlotKind, scan_op

type Clients = Callable[[Variable], Sequence[tuple[Any, int]]]


@dataclass(frozen=True, slots=True)
class Read:
    """One reader of a loop's output.

    Attributes
    ----------
    text
        The reader as code, with the slot's name: ``h[::2]``.
    tail
        How many last steps it looks at, if it looks from the end only: with ``tail`` steps kept it
        reads the same values, and raises in the same cases. Rows of the start are not counted, and
        a read that stays within them has ``tail`` 0.
    head
        How many first steps it looks at, if it looks from the start only.
    """

    text: str
    tail: int | None = None
    head: int | None = None


def reads(view: ScanView, slot: Slot, name: str, clients: Clients) -> list[Read]:
    """Return every reader of the output of ``slot``, in the graph's order.

    The slice that strips the start off a state's buffer is looked through: its readers count.
    """
    assert slot.outer_output is not None
    return list(_reads(view, slot.outer_output, name, slot.n_initial, clients))


def _reads(
    view: ScanView,
    variable: Variable,
    name: str,
    reach: int,
    clients: Clients,
    *,
    is_stripped: bool = False,
    is_turned: bool = False,
) -> Iterator[Read]:
    """Readers of a buffer with ``reach`` rows of start before the steps, or behind if turned."""
    axis = view.batch_ndim
    for node, position in clients(variable):
        index = row_index(node, axis) if position == 0 else None
        if isinstance(node.op, Shape_i) and node.op.i != axis:
            yield _nothing(f"the shape of `{name}`", reach)
            continue
        if index is None:
            yield Read(_operation_text(node, name))
            continue
        inner = node.outputs[0] if isinstance(index, slice) else None
        text = f"{name}[{_index_text(index)}]"
        if inner is not None and not (is_stripped or is_turned) and is_strip(index, reach):
            yield from _reads(view, inner, name, 0, clients, is_stripped=True)
        elif inner is not None and not is_turned and _is_reversal(index, node, axis):
            yield from _reads(view, inner, text, reach, clients, is_turned=True)
        elif is_turned:
            yield _turned(_read(index, f"`{text}`", 0), reach)
        else:
            yield _read(index, f"`{text}`", reach)


def _nothing(text: str, reach: int) -> Read:
    """A read of no step. A trace keeps one all the same: without, its rows lose their shape."""
    return Read(text, tail=0 if reach else 1, head=0)


def _turned(read: Read, reach: int) -> Read:
    """A read of a reversal as one of what is reversed."""
    tail = None if read.head is None else max(read.head - reach, 0 if reach else 1)
    head = None if read.tail is None else max(read.tail - reach, 0)
    return Read(read.text, tail=tail, head=head)


def _operation_text(node: Apply, name: str) -> str:
    if isinstance(node.op, Output):
        return f"the output `{name}`"
    return f"{str(node.op).partition('{')[0]} of `{name}`"


def row_index(node: Apply, axis: int) -> Any:
    """Return what ``node`` reads of the rows, which are on ``axis``: ``None`` if it is unclear.

    It is an index or a slice, or the array of a constant list of rows. Other axes may be indexed
    too.
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
    """Return what ``node`` reads of the rows, if it reads nothing but rows by a plain index."""
    return rows_index(node, axis) if isinstance(node.op, Subtensor) else None


def sequence_steps(node: Apply, position: int) -> AffineExpr | None:
    """Return the step count of the loop that reads a sequence, ``None`` for other readers."""
    if scan_op(node) is None or scan_op(node) is not node.op:
        return None
    reader = ScanView.of(node)
    if not 0 < position <= len(reader.of_kind(SlotKind.SEQ)):
        return None
    return Lengths().value_of(reader.n_steps)


def in_numbers(index: Any) -> Any:
    """Return an index, slice or list of rows in numbers; ``None`` if one is not known."""
    if isinstance(index, Constant):
        return int(index.data)
    if not isinstance(index, slice):
        return index if isinstance(index, np.ndarray) else None
    bounds = (index.start, index.stop, index.step)
    if any(part is not None and not isinstance(part, Constant) for part in bounds):
        return None
    return slice(*map(number, bounds))


def is_strip(index: slice, reach: int) -> bool:
    """Whether a slice strips a start of ``reach`` rows off."""
    return number(index.start, 0) == reach and index.stop is None and number(index.step, 1) == 1


def number(part: Any, missing: int | None = None) -> int | None:
    """Return a constant bound of a slice as a number; ``missing`` for one that is not there."""
    if part is None:
        return missing
    return int(part.data) if isinstance(part, Constant) else None


def _listed(node: Apply) -> Any:
    """The constant list of rows that is read, and nothing but rows."""
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
    # The walk goes between two ends, `low` nearer to the start; negative ones count from the end.
    low, high = (index.start, index.stop) if step > 0 else (index.stop, index.start)
    if low is not None and _is_negative(low) and (high is None or _is_negative(high)):
        # Backwards, the end itself is not read.
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
    def told(part: Any) -> str:
        return "" if part is None else describe(part)

    if isinstance(index, np.ndarray):
        return str(index.tolist())
    if not isinstance(index, slice):
        return told(index)
    text = f"{told(index.start)}:{told(index.stop)}"
    return text if index.step is None else f"{text}:{told(index.step)}"
