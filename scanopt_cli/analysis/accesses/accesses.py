"""Which rows of a loop's outputs are read, and by whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import Output
from pytensor.tensor.shape import Shape_i

from scanopt_cli.analysis.accesses.indices import Bound, Extent, RowIndex, read_index
from scanopt_cli.analysis.accesses.row_sources import RowSource
from scanopt_cli.analysis.affine import AffineExpr
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.step_rows import rows_ahead
from scanopt_cli.ir.naming import Clients
from scanopt_cli.ir.scan_view import is_loop, view_of
from scanopt_cli.ir.slots import WITH_ROWS, Slot, SlotView

_NO_ROW = Extent(Bound(0), Bound(0))


@dataclass(frozen=True, slots=True)
class Access:
    """One reader of a loop's output, of its steps, or of the reversal of either.

    Attributes
    ----------
    node, position
        The reader, and which of its inputs it reads them by.
    rows
        What it reads.
    index
        How it reads rows; ``None`` if it reads otherwise.
    extent
        Between which places of the buffer it reads, ``None`` if that may be anywhere.
    """

    node: Apply
    position: int
    rows: RowSource
    index: RowIndex | None
    extent: Extent | None

    @property
    def source(self) -> Variable:
        """The variable that it reads."""
        return self.rows.variable

    @property
    def axis(self) -> int:
        """The axis of the rows of ``source``."""
        return self.rows.axis

    @property
    def path(self) -> tuple[RowIndex, ...]:
        """The slices that give ``source`` from the output."""
        return self.rows.path

    @property
    def n_initial(self) -> int:
        """How many initial rows ``source`` has."""
        return self.rows.n_initial

    @property
    def is_reversed(self) -> bool:
        """Whether ``source`` holds the rows last row first."""
        return self.rows.is_reversed

    @property
    def is_plain(self) -> bool:
        """Whether ``source`` is the output or all of its steps, in order."""
        return self.rows.is_plain

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


def accesses_of_outputs(view: SlotView, clients: Clients) -> Accesses:
    """Return the readers of each output of a loop that holds rows."""
    return {slot: accesses(view, slot, clients) for slot in view.of_kind(*WITH_ROWS)}


def accesses(view: SlotView, slot: Slot, clients: Clients) -> list[Access]:
    """Return every reader of the rows of ``slot``, in the graph's order.

    What makes another `RowSource` is replaced by its own readers.
    """
    return list(_accesses(RowSource.of(view, slot), clients))


def _accesses(rows: RowSource, clients: Clients) -> Iterator[Access]:
    for node, position in clients(rows.variable):
        made = rows.behind(node, position)
        if made is not None:
            yield from _accesses(made, clients)
            continue
        index = read_index(node, rows.axis) if position == 0 else None
        extent = None if index is None else index.extent
        if isinstance(node.op, Shape_i) and node.op.i != rows.axis:
            extent = _NO_ROW
        if extent is not None and rows.is_reversed:
            extent = extent.reversed()
        yield Access(node, position, rows, index, extent)


def is_strip(index: RowIndex | None, n_initial: int) -> bool:
    """Whether an index of a buffer takes all steps, without the initial rows."""
    return index is not None and not index.rest and index.strips(n_initial)


def sequence_steps(node: Apply, source: Variable) -> AffineExpr | None:
    """Return how many first rows a loop reads of ``source``, a row a step.

    That is its trip count, and more if a TracedLoop reads rows ahead. ``None`` for other readers; a
    batched Scan is one of them.
    """
    view = view_of(node) if is_loop(node) else None
    if view is None or view.batch_ndim:
        return None
    slots = [slot for slot in view.slots if slot.outer_input is source]
    ahead = [rows for slot in slots if (rows := rows_ahead(view, slot)) is not None]
    is_read_alone = ahead and len(ahead) == len(slots)
    return Lengths().value_of(view.n_steps) + max(ahead) if is_read_alone else None
