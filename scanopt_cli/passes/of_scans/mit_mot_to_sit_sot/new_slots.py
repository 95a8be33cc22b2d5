"""Builds the states, sequences and traces that replace one mit_mot in an unfrozen Scan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.scalar import basic as ps
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.analysis.accumulators import readers
from scanopt_cli.analysis.initial_buffers import InitialBuffer
from scanopt_cli.analysis.row_runs import is_positive_zero
from scanopt_cli.ir.interning import has_negative_zero
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.passes.of_scans.mit_mot_to_sit_sot.exact_form import Form, Stretch, rows_from_first
from scanopt_cli.passes.of_scans.mit_mot_to_sit_sot.parts import Part, Reading

# A constant row of more elements is not written into a body.
_LARGEST = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """How one mit_mot is replaced.

    ``trace_length`` is the outer input of a new nit_sot, its number of rows; ``axis`` is the axis
    of the rows.
    """

    slot: Slot
    form: Form
    readings: Sequence[Reading]
    initial: InitialBuffer
    trace_length: Variable
    axis: int

    def is_read(self, part: Part) -> bool:
        """Whether a reading takes rows of ``part``."""
        return any(piece.part is part for reading in self.readings for piece in reading.pieces)

    def late_addend(self) -> Variable | None:
        """The initial value of the rows that the loop adds to, if adding it later is legal.

        There must be a single write, which adds to the row that it writes, and a step must read
        each row once, ``stretch.end`` steps after it is written. The initial value may then be
        added where the row is read. It must be the same for the rows of all steps; the rows after
        those, which are written last and read by no step, must be zero initially. Only these may be
        read outside of the loop.
        """
        stretch, initial = self.form.stretches[0], self.initial
        # A row is read ahead at the latest write or behind it, so this is the only write.
        is_read_once = stretch.reads == (0,) and self.form.ahead == (stretch.end,)
        if not (is_read_once and initial.is_certain):
            return None
        for reading in self.readings:
            for piece in reading.pieces:
                if piece.part is stretch.part and not -stretch.width <= (piece.begin or 0) < 0:
                    return None
        return initial.common(0) if is_positive_zero(initial.last(stretch.end)) else None


class MitMotSlots:
    """The slots that replace one mit_mot, and the substitutes for its inner inputs.

    ``slots`` replace the mit_mot's slot. ``substitutes`` maps variables to their replacements in
    the body that computes ``outputs``. The outer outputs of states and traces are placeholders:
    they are the sources of the parts of the final buffer until a new Scan is built.

    ``adds_late`` if the value of the rows that a step adds to is added where they are read.
    ``equal_ahead`` says of the rows that are read ahead whether all are zero or just equal, so that
    no sequence is needed.
    """

    def __init__(self, plan: Plan, outputs: Sequence[Variable]) -> None:
        self.slots: list[Slot] = []
        self.substitutes: dict[Variable, Variable] = {}
        self._plan = plan
        self.equal_ahead: list[str] = []
        reads, writes = rows_from_first(plan.slot)
        self._reads: dict[int, Any] = {}
        for row, variable in zip(reads, plan.slot.inner_inputs, strict=True):
            self._reads.setdefault(row, variable)
        self._writes: dict[int, Any] = dict(zip(writes, plan.slot.inner_outputs, strict=True))
        self.adds_late = self._adds_late(outputs)
        if not self.adds_late:
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

    def _adds_late(self, outputs: Sequence[Variable]) -> bool:
        """Add the initial rows where they are read, if that is legal; return whether it is done.

        The body then reads one loop-invariant value in place of a sequence of initial rows. If the
        rows of the sequence are all equal, `_add_sequence` achieves that alone.
        """
        plan = self._plan
        (row, *_) = plan.form.ahead or (0,)
        if plan.initial.common(row) is not None or (value := plan.late_addend()) is None:
            return False
        stretch = plan.form.stretches[0]
        rest = _without_addend(self._writes[stretch.end], self._reads[row], outputs)
        if rest is None:
            return False
        addend = self._inside(value)
        if addend is None:
            return False
        read = self._reads[0]
        carried = read.type()
        self.substitutes[read] = carried + addend
        self._reads[0] = carried
        self._writes[stretch.end] = rest
        self._add_state(stretch, plan.initial.zero_state(stretch.width))
        self._reads[0] = read
        return True

    def _add_state(self, stretch: Stretch, start: Variable | None = None) -> None:
        """Add the state for one write, or the trace of a write whose stretch is empty.

        Add nothing if neither a step nor a reading takes its rows.
        """
        plan, initial, part = self._plan, self._plan.initial, stretch.part
        if not stretch.reads and not plan.is_read(part):
            return
        output = self._writes[stretch.end]
        part.source = plan.slot.output.type()
        new = Slot.of_trace(output, plan.trace_length, part.source)
        if stretch.width:
            new.outer_input = initial.state(stretch.begin, stretch.end) if start is None else start
            rows = sorted({stretch.begin, *stretch.reads})
            new.taps = tuple(row - stretch.end for row in rows)
            new.inner_inputs = [self._reads.get(row, output.type()) for row in rows]
        elif stretch.has_zeros:
            new.outer_input = initial.zeros(1)
            new.taps, new.inner_inputs = (-1,), [output.type()]
        if new.taps:
            new.kind = SlotKind.SIT_SOT if new.taps == (-1,) else SlotKind.MIT_SOT
        self.slots.append(new)

    def _add_sequence(self, row: int) -> None:
        """Give the body the rows that it reads ahead: a loop-invariant value, or a sequence."""
        plan = self._plan
        variable = self._reads[row]
        value = plan.initial.common(row)
        # The sequence may go if a state still reads the initial buffer, and so keeps its errors and
        # its batch.
        can_omit = plan.form.latest > 0 or (plan.initial.is_certain and not plan.axis)
        if value is not None and can_omit:
            filled = self._row(value, variable)
            if filled is not None:
                self.substitutes[variable] = filled
                self.equal_ahead.append("zero" if is_positive_zero(value) else "equal")
                return
        self._add_input(SlotKind.SEQ, plan.initial.sequence(row), variable)

    def _row(self, value: Any, variable: Any) -> Any:
        """A number as a row like ``variable`` in the body, computed without ``variable``."""
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
        if shape and not is_known and like is None:
            return None
        inside = self._inside(value)
        if inside is None or not shape:
            return inside
        if is_known:
            return pt.full(shape, inside, dtype=variable.type.dtype)
        return pt.full_like(like, inside)

    def _inside(self, value: Any) -> Any:
        """The body's variable for ``value``, ``None`` if it is no number, or perhaps -0.0."""
        # PyTensor takes -0.0 for 0.0 in a body.
        if value.type.ndim or has_negative_zero(value):
            return None
        if isinstance(value, Constant):
            return value
        inner = value.type()
        batch = tuple(range(self._plan.axis))
        self._add_input(SlotKind.NON_SEQ, pt.expand_dims(value, batch), inner)
        return inner

    def _add_input(self, kind: SlotKind, outer: Variable, inner: Variable) -> None:
        self.slots.append(Slot.of_input(kind, inner, outer))


def _without_addend(total: Variable, addend: Variable, outputs: Sequence[Variable]) -> Any:
    """``x``, if ``total`` is ``x + addend`` and each has one use only."""
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
