"""Variables that hold the rows of a loop's output, in the order of the steps or last row first.

A Scan returns buffers: the initial rows, and then a row a step, behind the batch axes. A TracedLoop
returns traces, of which a graph makes the same: it joins further initial rows to a trace, and moves
the rows behind batch axes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.basic import Join
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import SpecifyShape

from scanopt_cli.analysis.accesses.indices import RowIndex, read_index
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.ir.naming import Clients
from scanopt_cli.ir.scan_view import batch_ndim
from scanopt_cli.ir.slots import Slot, SlotView
from scanopt_cli.loop.batching import SAME_COUNT
from scanopt_cli.loop.operator_base import LoopView


@dataclass(frozen=True, slots=True)
class RowSource:
    """A variable that holds all rows of a loop's output, its steps, or the reversal of either.

    The steps are the output without the initial rows, as a slice strips them off.

    Attributes
    ----------
    variable, axis
        The variable, and the axis of the rows.
    n_initial
        How many initial rows it has: before the steps, or after them if it is reversed.
    slot
        Whose rows they are.
    is_trace
        Whether the rows are those of a TracedLoop.
    path
        The slices that give the variable from the output.
    """

    variable: Variable
    axis: int
    n_initial: int
    slot: Slot
    is_trace: bool
    path: tuple[RowIndex, ...] = ()

    @classmethod
    def of(cls, view: SlotView, slot: Slot) -> Self:
        """Return the output of ``slot``."""
        is_trace = isinstance(view, LoopView)
        return cls(slot.output, view.batch_ndim, slot.n_initial, slot, is_trace)

    @property
    def is_reversed(self) -> bool:
        """Whether it holds the rows last row first."""
        return any(index.is_reversal for index in self.path)

    @property
    def is_plain(self) -> bool:
        """Whether it is the output or all of its steps, in order."""
        return not any(index.is_reversal or index.rest for index in self.path)

    def every(self, clients: Clients) -> Iterator[Self]:
        """Yield this source, and all plain ones that the graph makes of it."""
        yield self
        for reader in clients(self.variable):
            if (made := self.plainly_behind(*reader)) is not None:
                yield from made.every(clients)

    def plainly_behind(self, node: Apply, position: int) -> Self | None:
        """Return what a reader makes of the rows, if that is a plain source."""
        made = self.behind(node, position)
        return made if made is not None and made.is_plain else None

    def behind(self, node: Apply, position: int) -> Self | None:
        """Return what a reader makes of the rows, ``None`` if that holds other ones."""
        index = read_index(node, self.axis) if position == 0 else None
        if index is not None:
            made = replace(self, variable=node.outputs[0], path=(*self.path, index))
            if not self.path and index.strips(self.n_initial):
                return replace(made, n_initial=0)
            return made if index.is_reversal and not self.is_reversed else None
        return self._moved(node, position) if self.is_trace else None

    def _moved(self, node: Apply, position: int) -> Self | None:
        """Return the same rows behind a node that moves their axis, or puts further ones before.

        Other such nodes check a batch, or say lengths of other axes.
        """
        op = core_op(node.op)
        if isinstance(op, Join):
            before = None if self.path else _rows_before(node, position, self)
            return None if before is None else self._as(node, n_initial=before + self.n_initial)
        if isinstance(op, DimShuffle) and op is node.op:
            others = [axis for axis in range(self.variable.type.ndim) if axis != self.axis]
            order = op.new_order
            is_move = self.axis in order and [i for i in order if i != self.axis] == others
            return self._as(node, axis=order.index(self.axis)) if is_move else None
        if isinstance(op, SpecifyShape):
            # The type may know less than the statement, of which a length became a constant.
            stated = [v.data if isinstance(v, Constant) else v for v in node.inputs[1:]]
            is_of_others = stated[self.axis] is node.outputs[0].type.shape[self.axis] is None
            is_known = not any(isinstance(length, Variable) for length in stated)
            return self._as(node) if is_of_others and is_known else None
        return self._as(node) if op == SAME_COUNT and position == 0 else None

    def _as(self, node: Apply, **changed: Any) -> Self:
        return replace(self, variable=node.outputs[0], **changed)


def remade(variable: Variable, made: dict[Variable, Variable]) -> Any:
    """Return the variable of a `RowSource`, made of what replaces the output.

    ``made`` maps outputs to what replaces them, and gets what is made of these.
    """
    if variable not in made:
        node = variable.owner
        assert node is not None
        inputs = list(node.inputs)
        place = -1 if isinstance(core_op(node.op), Join) else 0
        inputs[place] = remade(inputs[place], made)
        made[variable] = node.op(*inputs)
        made[variable].name = variable.name
    return made[variable]


def _rows_before(node: Apply, position: int, source: RowSource) -> int | None:
    """Return how many rows a Join puts before those of a trace, ``None`` if that is not known."""
    op: Any = core_op(node.op)
    axis, rows, made = op.axis + batch_ndim(node), node.inputs[-1], node.outputs[0]
    is_alike = (made.type.dtype, made.type.broadcastable) == (
        rows.type.dtype,
        rows.type.broadcastable,
    )
    if axis != source.axis or position != len(node.inputs) - 1 or not is_alike:
        return None
    lengths = Lengths()
    before = lengths.length_of(made, axis) - lengths.length_of(rows, axis)
    return before.constant if before.is_constant else None
