"""Loops whose initial buffers have a derivative in no other rows than the initial ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from pytensor.graph.basic import Variable
from pytensor.tensor.basic import AllocEmpty
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.subtensor import IncSubtensor

from scanopt_cli.analysis.initial_buffers import with_room
from scanopt_cli.ir.indexing import along
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.pipeline.contract import Pass, PassContext, Rewrite


@dataclass(frozen=True)
class InitialRowsAlone(Pass):
    """Let loops start from buffers of which only the initial rows are set.

    PyTensor's reverse mode gives the other rows of a state's initial buffer a derivative too,
    though the steps overwrite them. From a buffer ``Alloc(h0, 5)``, which `clean-slices` makes, it
    would reach ``h0``.
    """

    name: ClassVar[str] = "initial-rows-alone"

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        """Yield a new Scan for each with a state whose initial buffer is set in other rows."""
        for view in context.scans():
            states = view.of_kind(SlotKind.MIT_SOT, SlotKind.SIT_SOT)
            others = [slot for slot in states if not _is_set_in_part(slot.outer_input)]
            for slot in others:
                buffer: Any = slot.outer_input
                axis, width = view.batch_ndim, slot.n_initial
                start = buffer[along(axis, slice(None, width))]
                slot.outer_input = with_room(start, buffer.shape, width, axis)
            if others:
                yield Rewrite(view.rebuild())


def _is_set_in_part(buffer: Variable) -> bool:
    """Whether ``buffer`` is empty but for what is written into it."""
    node = buffer.owner
    while node is not None and isinstance(node.op, DimShuffle):  # of a batch of one
        node = node.inputs[0].owner
    if node is None or not isinstance(core_op(node.op), IncSubtensor):
        return False
    base = node.inputs[0].owner
    return base is not None and isinstance(core_op(base.op), AllocEmpty)
