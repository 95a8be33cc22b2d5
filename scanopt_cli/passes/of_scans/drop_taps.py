"""Drop the taps of states that no step reads, and the initial rows that only they needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar

from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Add
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.shape import specify_shape

from scanopt_cli.analysis.affine import ZERO, AffineExpr
from scanopt_cli.analysis.buffers import is_whole
from scanopt_cli.analysis.initial_buffers import initial_rows, with_room
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.row_runs import is_positive_zero
from scanopt_cli.analysis.row_values import filling
from scanopt_cli.ir.naming import Clients
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.passes.of_scans.mit_mot_to_sit_sot.parts import Part, Readers, Reading
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import ScanPass
from scanopt_cli.remarks import Code, Why


@dataclass(frozen=True)
class DropTaps(ScanPass):
    """Drop the taps of states that no step reads, and the initial rows that only they needed.

    Legal cases:

    1. A step does not read a tap of a mit_sot that lies nearer than another one that it reads: the
       tap goes, the buffer stays.
    2. A step does not read the farthest taps of a mit_sot: they go, and the buffer starts with as
       many initial rows as are left to read. With one row left, the state is a sit_sot. If a step
       reads no tap, the nearest one stays. Readers outside, of rows, slices, reversals and slices
       of slices, read the smaller buffer, or the initial rows, where they read these alone.
    3. A step of a mit_mot writes a row back as it has read it, or with zeros added: it no longer
       writes it. Of a derivative, that is the row of a tap that the loop does not read. One write
       stays.
    4. A step of a mit_mot reads a row for nothing, or only for a write of case 3: it no longer
       reads it, unless it is the earliest one that it reads, or it writes it.

    Preconditions: for case 2, the buffer provably holds the initial rows and every step, no
    condition may end the loop, and no reader takes initial rows together with others, as it would
    have to be joined from both. The loop is not batched, and no step works in place. What is added
    in case 3 provably is 0.0 and has the shape of the row; a sum of -0.0 and 0.0 would be 0.0, and
    the row keeps its -0.0. PyTensor's derivative of what cases 3 and 4 leave is wrong, and `grad`
    refuses it: differentiate first.

    Out of scope: TracedLoops, whose states have no taps, and of which ``remove-unused`` removes
    those that were made for taps that no step reads; the rows of a mit_mot's buffer that no step
    reaches any more, which ``mit-mot-to-sit-sot`` leaves outside the loop.
    """

    name: ClassVar[str] = "drop-taps"
    repeats: ClassVar[bool] = True
    accepts_batched: ClassVar[bool] = False
    accepts_in_place: ClassVar[bool] = False

    def rewrite(self, view: ScanView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs and their readers, from a loop with fewer taps."""
        names, lengths = context.names(view), Lengths(view.n_steps)
        written = {slot: _written_taps(slot) for slot in view.of_kind(SlotKind.MIT_MOT)}
        read = _read_inputs(view, written)
        kept: dict[Slot, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        smaller: dict[Slot, _SmallerBuffer] = {}
        for slot in view.of_kind(SlotKind.MIT_SOT, SlotKind.MIT_MOT):
            pairs = zip(slot.taps, slot.inner_inputs, strict=True)
            writes = written.get(slot, slot.out_taps)
            taps = {tap for tap, inner in pairs if inner in read or tap in writes}
            if slot.kind is SlotKind.MIT_SOT and min(slot.taps) not in taps:
                taps = taps or {max(slot.taps)}
                made = _SmallerBuffer.of(view, slot, -min(taps), lengths, context.clients)
                if made is None:
                    context.missed(view, Code.TAPS_KEPT, Why.INITIAL_ROWS_READ, names[slot])
                else:
                    smaller[slot] = made
            if slot not in smaller:
                taps.add(min(slot.taps))
            left = tuple(tap for tap in slot.taps if tap in taps)
            if left != slot.taps or writes != slot.out_taps:
                kept[slot] = left, writes
        if not kept:
            return None
        view.unfreeze()
        for slot, (left, writes) in kept.items():
            gone = tuple(str(tap) for tap in slot.taps if tap not in left)
            unwritten = tuple(str(tap) for tap in slot.out_taps if tap not in writes)
            if gone:
                context.passed(view, Code.TAPS_DROPPED, names[slot], taps=gone)
            if unwritten:
                context.passed(view, Code.WRITES_DROPPED, names[slot], taps=unwritten)
            _keep(slot, left, writes)
        for made in smaller.values():
            made.shrink(view.n_steps)
        results = view.rebuild()
        for made in smaller.values():
            results |= made.replaced(results.pop(made.slot.output))
        return results


def _written_taps(slot: Slot) -> tuple[int, ...]:
    """Return the taps of a mit_mot at which a step may change what is in its buffer, or one."""
    read = dict(zip(slot.taps, slot.inner_inputs, strict=True))
    pairs = zip(slot.out_taps, slot.inner_outputs, strict=True)
    changed = tuple(tap for tap, new in pairs if not _is_kept(new, read.get(tap), slot))
    return changed or slot.out_taps[-1:]


def _is_kept(new: Variable, old: Variable | None, slot: Slot) -> bool:
    """Whether a step writes back a row that it has read, to which it has added no more than zeros.

    The zeros have the shape of a number, or of another row of the buffer.
    """
    node = new.owner
    if node is None or not isinstance(node.op, Elemwise) or not isinstance(node.op.scalar_op, Add):
        return new is old
    terms = list(node.inputs)
    if old not in terms or old is None or new.type.dtype != old.type.dtype:
        return False
    terms.remove(old)
    return all(_is_zero(term, slot) for term in terms)


def _is_zero(term: Variable, slot: Slot) -> bool:
    node = term.owner
    is_like_row = node is not None and node.inputs[0] in slot.inner_inputs
    is_number = all(getattr(term.type, "broadcastable", (False,)))
    return (is_like_row or is_number) and is_positive_zero(filling(term))


def _read_inputs(view: ScanView, written: Mapping[Slot, Sequence[int]]) -> Set[Variable]:
    """Return what a step reads if it writes no more than the taps that are ``written``."""
    outputs = [] if view.condition is None else [view.condition]
    for slot in view.outputs():
        pairs = zip(slot.out_taps, slot.inner_outputs, strict=True)
        outputs += [new for tap, new in pairs if tap in written.get(slot, slot.out_taps)]
    return set(ancestors(outputs))


def _keep(slot: Slot, taps: Sequence[int], out_taps: Sequence[int]) -> None:
    """Let a slot read and write no other taps than these."""
    inputs = zip(slot.taps, slot.inner_inputs, strict=True)
    slot.inner_inputs = [inner for tap, inner in inputs if tap in taps]
    outputs = zip(slot.out_taps, slot.inner_outputs, strict=True)
    slot.inner_outputs = [inner for tap, inner in outputs if tap in out_taps]
    slot.taps, slot.out_taps = tuple(taps), tuple(out_taps)
    if slot.kind is SlotKind.MIT_SOT and slot.taps == (-1,):
        slot.kind = SlotKind.SIT_SOT


@dataclass(slots=True, eq=False)
class _SmallerBuffer:
    """A state whose buffer shall start with fewer initial rows, the last of them.

    ``start`` are its initial rows as they are now; ``parts`` of its buffer are those that go, and
    all others, which the new output holds; ``readings`` serve its readers.
    """

    slot: Slot
    start: Any
    parts: tuple[Part, Part]
    readings: Sequence[Reading]

    @classmethod
    def of(
        cls, view: ScanView, slot: Slot, n_initial: int, lengths: Lengths, clients: Clients
    ) -> _SmallerBuffer | None:
        """Return a buffer with ``n_initial`` initial rows, ``None`` if readers need the other."""
        if view.is_while or not is_whole(view, slot, lengths):
            return None
        first, end = AffineExpr(slot.n_initial - n_initial), lengths.steps + slot.n_initial
        start: Any = initial_rows(slot.outer_input, slot.n_initial, lengths)
        parts = (Part(ZERO, first, ZERO, first), Part(first, end, first, end - first))
        readers = Readers(parts, 0, slot.n_initial, clients, lengths)
        readings = readers.of(slot.output)
        if any(len(reading.pieces) > 1 for reading in readings):
            return None
        return cls(slot, start, parts, readings)

    def shrink(self, n_steps: Any) -> None:
        """Let the loop start from the initial rows that are left."""
        n_before = self.parts[0].length.constant
        slot = self.slot
        if self.start is slot.outer_input:
            buffer: Any = self.start
            slot.outer_input = buffer[n_before:]
            return
        rows = self.start[n_before : n_before + slot.n_initial]
        if slot.n_initial > 1 and rows.type.shape[0] != slot.n_initial:
            # A single row would be written into all of them.
            rows = specify_shape(rows, (slot.n_initial, *rows.type.shape[1:]))
        shape = [self.start.shape[axis] for axis in range(1, self.start.type.ndim)]
        slot.outer_input = with_room(rows, [n_steps + slot.n_initial, *shape], slot.n_initial)

    def replaced(self, output: Variable) -> dict[Variable, Variable]:
        """Return replacements for the readers of the buffer, now that ``output`` holds its end."""
        before, rest = self.parts
        before.source, rest.source = self.start[: before.length.constant], output
        return {reading.variable: reading.built(0) for reading in self.readings}
