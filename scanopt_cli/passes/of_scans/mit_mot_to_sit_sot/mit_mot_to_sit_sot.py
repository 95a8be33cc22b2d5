"""Replace mit_mots, which gradients of loops use, by states, sequences and traces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace

from scanopt_cli.analysis.count_variables import scalar_steps
from scanopt_cli.analysis.initial_buffers import InitialBuffer
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.row_values import RowAnalysis
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.passes.of_scans.mit_mot_to_sit_sot.exact_form import form_of, unfit
from scanopt_cli.passes.of_scans.mit_mot_to_sit_sot.new_slots import MitMotSlots, Plan
from scanopt_cli.passes.of_scans.mit_mot_to_sit_sot.parts import Readers
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import ScanPass
from scanopt_cli.remarks import Code, Reason, Why, because


@dataclass(frozen=True)
class MitMotToSitSot(ScanPass):
    """Replace every mit_mot by states, sequences and traces that compute the same buffer.

    A mit_mot is one buffer of which a step reads several rows and writes several. PyTensor's
    gradients of loops use them, and every backend keeps the whole buffer. Rewritten as states, most
    of a mit_mot is a carry of one row, whose buffer PyTensor and `save-mem` can trim.

    Legal cases, with taps counted from the earliest row that a step reads:

    1. Each row that a step writes becomes a state. It has as many initial rows as the distance to
       the row written before it (for the first, to the earliest read), and takes them from the
       initial buffer: a sit_sot if that is one row, else a mit_sot. If the distance is 0, the write
       becomes a nit_sot if it is read outside; or, if the loop may run no step and the rows are not
       scalars, a sit_sot that no step reads, since PyTensor's nit_sots then lose the rows' shape.
    2. A read at the latest row that a step writes, or after it, reads a row that no step has
       written yet: it becomes a sequence of rows of the initial buffer.
    3. If all rows of such a sequence are provably zero, or equal to one number, there is no
       sequence: the body reads it as a literal if it is a constant, else as a non-sequence.
       The gradient of a cost on the last state is an example: one row is the seed, all others zero.
    4. If a single write adds its result to a row that is not written yet, and the rows of the
       initial buffer equal one number at each step but are zero in the last rows, it is added
       where the row is read instead, and there is no sequence. The gradient of the sum of all
       states is an example.
    5. Outside, reads of single rows, slices, reversals and slices of slices read the states
       instead; the last row is ``state[-1]``. A reader whose access is not understood reads the
       whole buffer, joined from its parts.

    Preconditions: the loop has no stop condition (the gradient of a while loop has none and
    qualifies). The taps reach from 0 or before to 0 or after; no row is written before the earliest
    that is read, and none twice in a step; the initial buffer is provably as long as the steps
    reach. Otherwise PyTensor's backends disagree or wrap around to the first row. In a batched loop
    (``Blockwise{Scan}``) every batch entry has the same trip count. Cases 3 and 4 analyse the
    expression that made the initial buffer (zeros, slices, reversals, rows set or incremented at
    constant places, joins, sums); rows whose values it does not prove are read.

    Values stay the same to the bit, but for the sign of zeros: a value that is added to a row of
    zeros outside is used as it is, as in PyTensor's own rewrites, so -0.0 may replace 0.0. A zero
    that is added in the body stays there as a literal. Errors stay: a row that is set out of bounds
    (``xs[-1]`` of no steps) is still set. A value that only gave zeros their shape is no longer
    computed.

    Run the pass after all differentiation and before `save-mem`.

    Out of scope: while loops with mit_mots; case 4 for loops with several writes (of AR(2), say),
    where the order of additions would change; sequences of which only the first or last rows are
    zero.
    """

    name: ClassVar[str] = "mit-mot-to-sit-sot"

    def rewrite(self, view: ScanView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for readers of the mit_mots, and for all other outputs."""
        found = []
        for slot in view.of_kind(SlotKind.MIT_MOT):
            plan = _plan(view, slot, context)
            if isinstance(plan, Plan):
                found.append(plan)
            else:
                context.missed(view, Code.MIT_MOT_KEPT, plan, context.names(view)[slot])
        if not found:
            return None
        names = context.names(view)
        view.unfreeze()
        substitutes: dict[Variable, Variable] = {}
        for plan in found:
            made = MitMotSlots(plan, view.inner_outputs())
            name, kinds = names[plan.slot], tuple(str(slot.kind) for slot in made.slots)
            context.passed(view, Code.MIT_MOT_REPLACED, name, into=kinds)
            if made.adds_late:
                context.passed(view, Code.ADDEND_MOVED, name)
            for value in made.equal_ahead:
                context.passed(view, Code.ROWS_AHEAD_EQUAL, name, value=value)
            place = view.slots.index(plan.slot)
            view.slots[place : place + 1] = made.slots
            substitutes |= made.substitutes
        if substitutes:
            view.set_inner_outputs(clone_replace(view.inner_outputs(), substitutes))
        results = view.rebuild()
        replacements: dict[Variable, Variable] = {}
        for plan in found:
            for part in plan.form.parts:
                part.source = results.pop(part.source, part.source)
            for reading in plan.readings:
                replacements[reading.variable] = reading.built(view.batch_ndim)
        return replacements | results


def _plan(view: ScanView, slot: Slot, context: PassContext) -> Plan | Reason:
    """Return how to split ``slot`` into parts, or why it has to stay."""
    if view.is_while:
        return because(Why.LOOP_STOPS)
    if (reason := unfit(slot)) is not None:
        return reason
    steps = scalar_steps(view)
    if steps is None:
        return because(Why.STEPS_DIFFER_IN_BATCH)
    axis = view.batch_ndim
    for lengths in (Lengths(view.n_steps), Lengths(view.n_steps, static=False)):
        length = lengths.length_of(slot.outer_input, axis)
        form = form_of(slot, length, lengths.value_of(steps), lengths)
        if form is not None:
            break
    else:
        return because(Why.BUFFER_SHORT, steps=str(lengths.value_of(steps)))
    rows = RowAnalysis(lengths, axis).of(slot.outer_input)
    readers = Readers(form.parts, axis, form.latest, context.clients, lengths)
    return Plan(
        slot=slot,
        form=form,
        readings=readers.of(slot.output),
        initial=InitialBuffer(slot.outer_input, rows, steps, axis, lengths),
        trace_length=view.n_steps,
        axis=axis,
    )
