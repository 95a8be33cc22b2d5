"""Loops whose initial buffers have a derivative in no other rows than the initial ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.scalar.basic import Switch
from pytensor.tensor.basic import AllocEmpty
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import shape_padright
from pytensor.tensor.subtensor import IncSubtensor

from scanopt_cli.analysis.initial_buffers import with_room
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.loop_lengths import rows
from scanopt_cli.ir.indexing import along
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import ScanPass
from scanopt_cli.remarks import Code


@dataclass(frozen=True)
class InitialRowsAlone(ScanPass):
    """Start loops from buffers of which only the initial rows are set.

    `scanopt grad` runs this pass on the graph that it differentiates. PyTensor's reverse mode gives
    all rows of a state's initial buffer a derivative, also those that steps overwrite. From a
    buffer ``Alloc(h0, 5)`` it would reach ``h0`` by all five.

    Legal cases:

    1. The initial buffer of a sit_sot or mit_sot may be set in other rows. The initial rows are
       written into an empty buffer of the same shape. Steps overwrite the other rows, and a Scan
       sets those to zero for which it has no step.
    2. The same, of a loop that may run no step: then it returns the buffer as it is, which is kept
       for that.

    Preconditions: none.

    Out of scope: mit_mots, whose steps add to what is in their buffers; TracedLoops, which have no
    buffers.
    """

    name: ClassVar[str] = "initial-rows-alone"
    undoes: ClassVar[str | None] = "clean-slices"

    def rewrite(self, view: ScanView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a Scan with emptier initial buffers."""
        states = view.of_kind(SlotKind.MIT_SOT, SlotKind.SIT_SOT)
        filled = [slot for slot in states if not _is_set_in_part(slot.outer_input)]
        if not filled:
            return None
        names, lengths = context.names(view), Lengths(view.n_steps)
        for slot in filled:
            context.passed(view, Code.START_EMPTIED, names[slot])
            buffer: Any = slot.outer_input
            axis, width = view.batch_ndim, slot.n_initial
            start = buffer[along(axis, slice(None, width))]
            room: Any = with_room(start, buffer.shape, width, axis)
            is_overwritten = lengths.runs() or lengths.provably_le(
                rows(view, slot, lengths), lengths.steps + width
            )
            if not is_overwritten:
                has_steps = shape_padright(pt.gt(view.n_steps, 0), buffer.type.ndim - axis)
                room = pt.switch(has_steps, room, buffer)
            slot.outer_input = room
        return view.rebuild()


def _is_set_in_part(buffer: Variable) -> bool:
    """Whether ``buffer`` is empty but for what is written into it, if there is a step."""
    node = buffer.owner
    if node is not None and isinstance(getattr(node.op, "scalar_op", None), Switch):
        node = node.inputs[1].owner
    while node is not None and isinstance(node.op, DimShuffle):  # of a batch of one
        node = node.inputs[0].owner
    if node is None or not isinstance(core_op(node.op), IncSubtensor):
        return False
    base = node.inputs[0].owner
    return base is not None and isinstance(core_op(base.op), AllocEmpty)
