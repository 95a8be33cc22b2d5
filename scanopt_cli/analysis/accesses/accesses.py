"""Which rows of a loop's outputs are read, and by whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import Output
from pytensor.scan.op import Scan
from pytensor.tensor.shape import Shape_i

from scanopt_cli.analysis.accesses.indices import Bound, Extent, RowIndex, read_index
from scanopt_cli.analysis.affine import AffineExpr
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import TRACED, Slot, SlotKind, SlotView

type Clients = Callable[[Variable], Sequence[tuple[Any, int]]]

_NO_ROW = Extent(Bound(0), Bound(0))


@dataclass(frozen=True, slots=True)
class Access:
    """One reader of a loop's output, of its steps, or of the reversal of either.

    The steps are the output without the initial rows, as a slice strips them off.

    Attributes
    ----------
    node, position
        The reader, and which of its inputs is ``source``.
    source
        What it reads.
    path
        The slices that give ``source`` from the output.
    n_initial
        How many initial rows ``source`` has: before the steps, or after them if it is reversed.
    index
        How it reads rows; ``None`` if it reads otherwise.
    extent
        Between which places of the buffer it reads, ``None`` if that may be anywhere.
    """

    node: Apply
    position: int
    source: Variable
    path: tuple[RowIndex, ...]
    n_initial: int
    index: RowIndex | None
    extent: Extent | None

    @property
    def is_reversed(self) -> bool:
        """Whether ``source`` holds the rows last row first."""
        return any(index.is_reversal for index in self.path)

    @property
    def is_plain(self) -> bool:
        """Whether ``source`` is the output or all of its steps, in order."""
        return not any(index.is_reversal or index.rest for index in self.path)

    @property
    def is_last_row(self) -> bool:
        """Whether it takes the last row of a plain ``source``, by the number -1."""
        return self.is_plain and self.index is not None and self.index.row == -1

    @property
    def result(self) -> Variable:
        """The variable that the reader computes."""
        return self.node.outputs[0]

    @property
    def tail(self) -> int | None:
        """How many last steps it reads, if it counts from the end only; else ``None``.

        From a buffer that keeps this many steps it reads the same values, for any trip count, and
        raises in the same cases. It is 0 for an index that stays within the initial rows, and at
        least 1 if ``source`` has none: a trace of no rows loses the shape of its rows.
        """
        if self.extent is None or self.extent.n_last is None:
            return None
        return max(self.extent.n_last - self.n_initial, 0 if self.n_initial else 1)

    @property
    def head(self) -> int | None:
        """How many first steps it reads, if it counts from the first row only; else ``None``."""
        if self.extent is None or self.extent.n_first is None:
            return None
        return max(self.extent.n_first - self.n_initial, 0)

    @property
    def text(self) -> str:
        """How it reads: ``[::2]``, ``an operand of Sum``."""
        if self.index is not None:
            indices = [*(index for index in self.path if index.is_reversal), self.index]
            return "".join(f"[{index}]" for index in indices)
        if self.extent is not None:
            return "its shape"
        if isinstance(self.node.op, Output):
            return "an output"
        return f"an operand of {str(self.node.op).partition('{')[0]}"


type Accesses = Mapping[Slot, Sequence[Access]]


def accesses_of_outputs(view: ScanView, clients: Clients) -> Accesses:
    """Return the readers of each traced output of a loop."""
    return {slot: accesses(view, slot, clients) for slot in view.of_kind(*TRACED)}


def accesses(view: SlotView, slot: Slot, clients: Clients) -> list[Access]:
    """Return every reader of the output of ``slot``, in the graph's order.

    Slices that strip off the initial rows, and reversals, are replaced by their own readers.
    """
    assert slot.outer_output is not None
    return list(accesses_of(slot.outer_output, slot.n_initial, clients, view.batch_ndim))


def accesses_of(
    source: Variable, n_initial: int, clients: Clients, axis: int, path: tuple[RowIndex, ...] = ()
) -> Iterator[Access]:
    """Yield every reader of a buffer, whose rows are along ``axis``, as `accesses` does.

    ``source`` is the buffer, or what ``path`` takes of it.
    """
    is_reversed = any(index.is_reversal for index in path)
    for node, position in clients(source):
        index = read_index(node, axis) if position == 0 else None
        if index is not None and not path and index.strips(n_initial):
            yield from accesses_of(node.outputs[0], 0, clients, axis, (index,))
        elif index is not None and not is_reversed and index.is_reversal:
            yield from accesses_of(node.outputs[0], n_initial, clients, axis, (*path, index))
        else:
            extent = None if index is None else index.extent
            if isinstance(node.op, Shape_i) and node.op.i != axis:
                extent = _NO_ROW
            if extent is not None and is_reversed:
                extent = extent.reversed()
            yield Access(node, position, source, path, n_initial, index, extent)


def stripped(view: ScanView, slot: Slot, clients: Clients) -> Any:
    """Return the steps of the output of ``slot``: the slice that strips off the initial rows.

    ``None`` if there is no such slice, or if ``slot`` has no initial rows.
    """
    if slot.outer_output is None or not slot.n_initial:
        return None
    for node, position in clients(slot.outer_output):
        if position == 0 and is_strip(read_index(node, view.batch_ndim), slot):
            return node.outputs[0]
    return None


def is_strip(index: RowIndex | None, slot: Slot) -> bool:
    """Whether an index of the output of ``slot`` takes all steps, without the initial rows."""
    return index is not None and not index.rest and index.strips(slot.n_initial)


def sequence_steps(node: Apply, position: int) -> AffineExpr | None:
    """Return the trip count of the loop that reads a sequence, ``None`` for other readers.

    A batched loop is one of the others.
    """
    if not isinstance(node.op, Scan):
        return None
    reader = ScanView.of(node)
    if not 0 < position <= len(reader.of_kind(SlotKind.SEQ)):
        return None
    return Lengths().value_of(reader.n_steps)
