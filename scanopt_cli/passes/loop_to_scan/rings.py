"""States that are arrays of rows, which steps read and write at their index modulo the length.

`scan-to-loop` carries a mit_sot of many rows so, and a mit_mot: the row at a tap is at the index of
the step plus a number, the *offset*.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.scalar.basic import Mod
from pytensor.tensor.basic import ScalarFromTensor
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.subtensor import IncSubtensor, Subtensor
from pytensor.tensor.type import TensorType

from scanopt_cli.analysis.accesses.indices import rows_index
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.graph import substituted
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.loop.operator_base import LoopView


@dataclass(frozen=True, slots=True)
class Ring:
    """A state whose rows a step reads and writes.

    ``reads`` are the offsets of the rows that are read, by what stands for them in the body, and
    ``writes`` those of what is written, in this order.
    """

    slot: Slot
    reads: Mapping[Variable, int]
    writes: Sequence[tuple[int, Variable]]

    @property
    def size(self) -> int:
        """How many rows it has; 0 if that is not known."""
        return self.slot.inner_inputs[0].type.shape[0] or 0

    @property
    def is_mit_mot(self) -> bool:
        """Whether it was a mit_mot, and is one still."""
        offsets = [offset for offset, _ in self.writes]
        is_one = bool(self.reads) and min(self.reads.values()) == 0
        was_one = self.slot.former is SlotKind.MIT_MOT
        return was_one and is_one and len(set(offsets)) == len(offsets)

    @property
    def is_mit_sot(self) -> bool:
        """Whether it holds the last rows of one value, the oldest of which a step reads.

        The row that a step writes is then the oldest, and before the first step it is row 0.
        """
        size, offsets = self.size, [offset for offset, _ in self.writes]
        if not size or len(offsets) != 1 or offsets[0] % size:
            return False
        return any(offset % size == 0 for offset in self.reads.values())


def rings_of(view: LoopView, slots: Sequence[Slot]) -> list[Ring]:
    """Return those of the states ``slots`` of an unfrozen view that are rings, and nothing more."""
    reads: dict[Variable, list[Apply]] = defaultdict(list)
    for node in io_toposort([], view.inner_outputs()):
        if isinstance(node.op, Subtensor):
            reads[node.inputs[0]].append(node)
    found = [ring for slot in slots if (ring := _ring_of(view, slot, reads)) is not None]
    if not found:
        return []
    # Without the rows that are read, and itself as the next state, nothing may depend on a ring.
    mine = {ring.slot for ring in found}
    others = [v for slot in view.outputs() if slot not in mine for v in slot.inner_outputs]
    others += [] if view.condition is None else [view.condition]
    others += [value for ring in found for _, value in ring.writes]
    rows = {row: row.type() for ring in found for row in ring.reads}
    used = set(ancestors(substituted(others, rows, copies_all=False)))
    return [ring for ring in found if ring.slot.inner_inputs[0] not in used]


def _ring_of(view: LoopView, slot: Slot, reads: Mapping[Variable, Sequence[Apply]]) -> Ring | None:
    (state,), top = slot.inner_inputs, slot.inner_outputs[0]
    if not isinstance(state.type, TensorType) or not state.type.ndim:
        return None
    places = _Places(view, state)
    writes: list[tuple[int, Variable]] = []
    while top is not state:
        node = top.owner
        if node is None or not isinstance(node.op, SpecifyShape | IncSubtensor):
            return None
        top = node.inputs[0]
        if isinstance(node.op, IncSubtensor):
            offset = places.offset(node) if node.op.set_instead_of_inc else None
            if offset is None or not _fits(node.inputs[1], slot):
                return None
            writes.insert(0, (offset, node.inputs[1]))
    rows = {node.outputs[0]: places.offset(node) for node in reads[state]}
    known = {row: offset for row, offset in rows.items() if offset is not None}
    return Ring(slot, known, writes) if writes and len(known) == len(rows) else None


def _fits(value: Variable, slot: Slot) -> bool:
    """Whether a value is provably of the shape of a row, or what a Scan wrote into a buffer."""
    kind, row = value.type, slot.inner_inputs[0].type
    if (kind.dtype, kind.broadcastable) != (row.dtype, row.broadcastable[1:]):
        return False
    was_one = slot.former in (SlotKind.MIT_SOT, SlotKind.MIT_MOT)
    return was_one or (kind.shape == row.shape[1:] and None not in kind.shape)


class _Places:
    """Reads at which rows of a state a step reads and writes."""

    def __init__(self, view: LoopView, state: Variable) -> None:
        self._lengths = Lengths()
        self._index = self._lengths.value_of(view.index)
        self._length = self._lengths.length_of(state)

    def offset(self, node: Apply) -> int | None:
        """Return how far the row is from that at the index of the step, modulo the length."""
        place: Any = rows_index(node, 0)
        while isinstance(place, Variable) and isinstance(place.owner_op, ScalarFromTensor):
            place = place.owner.inputs[0]
        if not isinstance(place, Variable) or not isinstance(place.owner_op, Elemwise):
            return None
        if not isinstance(place.owner_op.scalar_op, Mod):
            return None
        at, length = map(self._lengths.value_of, place.owner.inputs)
        offset = at - self._index
        is_known = length == self._length and offset.is_constant and offset.constant >= 0
        return int(offset.constant) if is_known else None
