"""Which constants of a TracedLoop its steps read row by row, as a Scan reads a sequence."""

from __future__ import annotations

from collections.abc import Iterator

from pytensor.graph.traversal import io_toposort
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.indexing import indices_of
from scanopt_cli.ir.slots import Slot, SlotKind, SlotView


def rows_by_step(view: SlotView) -> Iterator[tuple[Slot, int]]:
    """Yield each constant of which a step reads a row at a fixed distance from its index.

    With it comes 1 if later steps read later rows, and -1 if they read earlier ones. A constant is
    yielded for each such read.
    """
    constants = {slot.inner_inputs[0]: slot for slot in view.of_kind(SlotKind.CONSTANT)}
    if not constants:
        return
    (index,) = view.of_kind(SlotKind.INDEX)[0].inner_inputs
    lengths = Lengths()
    ((step, _),) = lengths.value_of(index).terms
    for node in io_toposort([], view.inner_outputs()):
        if not isinstance(node.op, Subtensor) or node.inputs[0] not in constants:
            continue
        place, *_ = indices_of(node)
        if isinstance(place, slice):
            continue
        direction = dict(lengths.value_of(place).terms).get(step)
        if direction in (1, -1):
            yield constants[node.inputs[0]], direction
