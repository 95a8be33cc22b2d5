"""Who reads a loop's output, and which of its rows: what memory saving needs to know.

A reader is told by how far it looks: ``tail`` rows from the end, or the first ``head`` steps. Both
are bounds that hold for any number of steps; a reader that may look anywhere has neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import Output
from pytensor.tensor.subtensor import Subtensor, get_idx_list

from scanopt_cli.scans.lengths import is_full_slice
from scanopt_cli.scans.view import ScanView, Slot

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
    return list(_reads(view, slot.outer_output, name, slot.reach, clients, is_stripped=False))


def _reads(
    view: ScanView,
    variable: Variable,
    name: str,
    reach: int,
    clients: Clients,
    *,
    is_stripped: bool,
) -> Iterator[Read]:
    """Readers of a buffer with ``reach`` rows of start before the steps."""
    for node, position in clients(variable):
        index = _row_index(node, view.batch_ndim) if position == 0 else None
        if index is None:
            yield Read(_operation_text(node, name))
        elif not is_stripped and _is_strip(index, reach):
            yield from _reads(view, node.outputs[0], name, 0, clients, is_stripped=True)
        else:
            yield _read(index, f"`{name}[{_index_text(index)}]`", reach)


def _operation_text(node: Apply, name: str) -> str:
    if isinstance(node.op, Output):
        return f"the output `{name}`"
    return f"{str(node.op).partition('{')[0]} of `{name}`"


def _row_index(node: Apply, axis: int) -> Any:
    """The index or slice that a Subtensor takes of the rows; ``None`` if it is no plain one."""
    if not isinstance(node.op, Subtensor):
        return None
    indices = get_idx_list(node.inputs, node.op.idx_list)
    if len(indices) <= axis or not all(map(is_full_slice, indices[:axis])):
        return None
    return indices[axis]


def _is_strip(index: Any, reach: int) -> bool:
    return (
        isinstance(index, slice)
        and _number(index.start, 0) == reach
        and index.stop is None
        and _number(index.step, 1) == 1
    )


def _read(index: Any, text: str, reach: int) -> Read:
    if not isinstance(index, slice):
        place = _number(index)
        if place is None:
            return Read(text)
        if place < 0:
            return Read(text, tail=max(-place - reach, 0))
        return Read(text, head=max(place + 1 - reach, 0))
    step = _number(index.step, 1)
    start, stop = _number(index.start, 0), _number(index.stop, 0)
    if step is None or step == 0 or start is None or stop is None:
        return Read(text)
    # The walk goes between two ends, `low` nearer to the start; negative ones count from the end.
    low, high = (index.start, index.stop) if step > 0 else (index.stop, index.start)
    if low is not None and _is_negative(low) and (high is None or _is_negative(high)):
        return Read(text, tail=max(-int(low.data) - reach, 0))
    if step > 0 and high is not None and not _is_negative(high) and start >= 0:
        return Read(text, head=max(stop - reach, 0))
    return Read(text)


def _is_negative(part: Constant) -> bool:
    return int(part.data) < 0


def _number(part: Any, missing: int | None = None) -> int | None:
    if part is None:
        return missing
    return int(part.data) if isinstance(part, Constant) else None


def _index_text(index: Any) -> str:
    def told(part: Any) -> str:
        number = _number(part)
        return "" if part is None else str(part) if number is None else str(number)

    if not isinstance(index, slice):
        return told(index)
    text = f"{told(index.start)}:{told(index.stop)}"
    return text if index.step is None else f"{text}:{told(index.step)}"
