"""The states, sequences and traces that take the place of one mit_mot in a unfrozen Scan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.scalar import basic as ps
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.analysis.accesses.parts import Part, Reading
from scanopt_cli.analysis.accumulators import readers
from scanopt_cli.analysis.initial_buffers import InitialBuffer
from scanopt_cli.analysis.mit_mots import Form, Stretch, rows_from_first
from scanopt_cli.analysis.rows import is_zero
from scanopt_cli.ir.constants import has_negative_zero
from scanopt_cli.ir.scan_view import Slot, SlotKind

# A constant row of more elements is not written into a body.
_LARGEST = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """How one mit_mot is taken apart.

    ``trace_length`` is the length of a trace as the Scan takes it; ``axis`` is that of the rows.
    """

    slot: Slot
    form: Form
    readings: Sequence[Reading]
    initial: InitialBuffer
    trace_length: Variable
    axis: int

    def is_read(self, part: Part) -> bool:
        """Whether somebody reads rows that ``part`` has."""
        return any(piece.part is part for reading in self.readings for piece in reading.pieces)

    def late_addend(self) -> Variable | None:
        """What every row that the loop adds to is before it does, if adding later is as good.

        A single write adds to the row that it writes, and each row is read once, some steps after.
        The row may then be added where it is read. The rows of the first steps are equal where
        those that are written last are zero; only the latter may be read outside.
        """
        stretch, initial = self.form.stretches[0], self.initial
        if len(self.form.stretches) > 1 or not initial.is_certain:
            return None
        if stretch.reads != (0,) or self.form.ahead != (stretch.end,):
            return None
        for reading in self.readings:
            for piece in reading.pieces:
                if piece.part is stretch.part and not -stretch.width <= (piece.begin or 0) < 0:
                    return None
        return initial.common(0) if is_zero(initial.last(stretch.end)) else None


class MitMotSlots:
    """The slots that take the place of one mit_mot, and what the body reads in place of its taps.

    ``slots`` take the place of the mit_mot's slot, and what stands in ``substitutes`` is to be
    replaced in the body of inner ``outputs``. The outer outputs of states and traces are
    placeholders: they are the sources of the parts of the final buffer until a new Scan is made.
    """

    def __init__(self, plan: Plan, outputs: Sequence[Variable]) -> None:
        self.slots: list[Slot] = []
        self.substitutes: dict[Variable, Variable] = {}
        self._plan = plan
        self._notes: list[str] = []
        reads, writes = rows_from_first(plan.slot)
        self._reads: dict[int, Any] = {}
        for row, variable in zip(reads, plan.slot.inner_inputs, strict=True):
            self._reads.setdefault(row, variable)
        self._writes: dict[int, Any] = dict(zip(writes, plan.slot.inner_outputs, strict=True))
        if not self._adds_late(outputs):
            for stretch in plan.form.stretches:
                self._add_state(stretch)
            for row in plan.form.ahead:
                self._add_sequence(row)
        for row, variable in zip(reads, plan.slot.inner_inputs, strict=True):
            if variable is not self._reads[row]:
                first = self._reads[row]
                self.substitutes[variable] = self.substitutes.get(first, first)
        rest = plan.form.rest
        if rest is not None and plan.is_read(rest):
            rest.source = plan.initial.after(rest.low)

    def told(self) -> str:
        """Return what the slots are, for a remark."""
        counts = Counter(str(slot.kind) for slot in self.slots)
        kinds = [f"{count} {kind}" for kind, count in counts.items()]
        return "; ".join([", ".join(kinds) or "nothing", *self._notes])

    def _adds_late(self, outputs: Sequence[Variable]) -> bool:
        """Make a state to which each row is added where it is read, if that makes it a constant."""
        plan = self._plan
        (row, *_) = plan.form.ahead or (0,)
        if plan.initial.common(row) is not None or (value := plan.late_addend()) is None:
            return False
        stretch = plan.form.stretches[0]
        rest = _without_addend(self._writes[stretch.end], self._reads[row], outputs)
        if rest is None:
            return False
        read = self._reads[0]
        addend = self._inside(value, read.type)
        if addend is None:
            return False
        carried = read.type()
        self.substitutes[read] = carried + addend
        self._reads[0] = carried
        self._writes[stretch.end] = rest
        self._add_state(stretch, plan.initial.zero_state(stretch.width))
        self._reads[0] = read
        self._notes.append("the rows that it adds to are all equal")
        return True

    def _add_state(self, stretch: Stretch, start: Variable | None = None) -> None:
        """The state that one write is, or the trace of a write that nothing is read before."""
        plan, initial, part = self._plan, self._plan.initial, stretch.part
        if not stretch.reads and not plan.is_read(part):
            return
        assert plan.slot.outer_output is not None
        output = self._writes[stretch.end]
        part.source = plan.slot.outer_output.type()
        new = Slot(
            kind=SlotKind.NIT_SOT,
            position=0,
            outer_input=plan.trace_length,
            out_taps=(0,),
            inner_outputs=[output],
            outer_output=part.source,
        )
        if stretch.width:
            new.outer_input = initial.state(stretch.begin, stretch.end) if start is None else start
            rows = sorted({stretch.begin, *stretch.reads})
            new.taps = tuple(row - stretch.end for row in rows)
            new.inner_inputs = [self._reads.get(row, output.type()) for row in rows]
        elif stretch.is_led:
            new.outer_input = initial.zeros(1)
            new.taps, new.inner_inputs = (-1,), [output.type()]
        if new.taps:
            new.kind = SlotKind.SIT_SOT if new.taps == (-1,) else SlotKind.MIT_SOT
        self.slots.append(new)

    def _add_sequence(self, row: int) -> None:
        """What is read of rows that are not written yet: a value that never changes, or rows."""
        plan = self._plan
        variable = self._reads[row]
        value = plan.initial.common(row)
        # A state reads what the buffer starts with; then its errors, and its batch, are not lost.
        is_needless = plan.form.latest > 0 or (plan.initial.is_certain and not plan.axis)
        if value is not None and is_needless:
            filled = self._row(value, variable)
            if filled is not None:
                self.substitutes[variable] = filled
                told = "zero" if is_zero(value) else "equal"
                self._notes.append(f"the rows that it reads ahead are all {told}")
                return
        self._add_input(SlotKind.SEQ, plan.initial.sequence(row), variable)

    def _row(self, value: Any, variable: Any) -> Any:
        """``value`` as a row like ``variable`` in the body, without reading ``variable``."""
        shape = variable.type.shape
        is_known = None not in shape and np.prod(shape) <= _LARGEST
        like: Any = next(
            (
                read
                for row, read in self._reads.items()
                if row < self._plan.form.latest and variable.type.is_super(read.type)
            ),
            None,
        )
        is_number = value.type.ndim == 0
        if is_number and shape and not is_known and like is None:
            return None
        inside = self._inside(value, variable.type)
        if inside is None or not is_number or not shape:
            return inside
        if is_known:
            return pt.full(shape, inside, dtype=variable.type.dtype)
        return pt.full_like(like, inside)

    def _inside(self, value: Any, row_type: Any) -> Any:
        """What the body reads for ``value``, a number or a row; ``None`` if the type is another."""
        axis = self._plan.axis
        if has_negative_zero(value):
            # PyTensor takes it for 0.0 in a body.
            return None
        if isinstance(value, Constant) and not value.type.ndim:
            return value
        if not value.type.ndim:
            inner = value.type()
            self._add_input(SlotKind.NON_SEQ, pt.expand_dims(value, tuple(range(axis))), inner)
            return inner
        core = value.type.clone(shape=value.type.shape[axis:])
        if not row_type.is_super(core):
            return None
        inner = row_type()
        self._add_input(SlotKind.NON_SEQ, value, inner)
        return inner

    def _add_input(self, kind: SlotKind, outer: Variable, inner: Variable) -> None:
        self.slots.append(Slot(kind=kind, position=0, outer_input=outer, inner_inputs=[inner]))


def _without_addend(total: Variable, addend: Variable, outputs: Sequence[Variable]) -> Any:
    """``x`` where ``total`` is ``x + addend``, and nothing else reads the addend or the total."""
    node = total.owner
    if node is None or not isinstance(node.op, Elemwise):
        return None
    if not isinstance(node.op.scalar_op, ps.Add) or len(node.inputs) != 2:
        return None
    rest = [part for part in node.inputs if part is not addend]
    if len(rest) != 1 or rest[0].type.dtype != total.type.dtype:
        return None
    if rest[0].type.broadcastable != total.type.broadcastable:
        return None
    reads = readers(outputs)
    return rest[0] if reads[addend] == 1 and reads[total] == 1 else None
