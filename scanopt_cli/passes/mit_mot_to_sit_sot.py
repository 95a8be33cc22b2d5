"""Turn the buffers that gradients of loops write in several places into plain states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace

from scanopt_cli.analysis.accesses.parts import Readers
from scanopt_cli.analysis.count_variables import scalar_steps
from scanopt_cli.analysis.initial_buffers import InitialBuffer
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.mit_mot_slots import MitMotSlots, Plan
from scanopt_cli.analysis.mit_mots import form_of, unfit
from scanopt_cli.analysis.row_values import RowAnalysis
from scanopt_cli.ir.scan_view import ScanView, Slot, SlotKind
from scanopt_cli.pipeline.contract import PassContext, ScanPass


@dataclass(frozen=True)
class MitMotToSitSot(ScanPass):
    """Turn every mit_mot into plain states, sequences and traces that compute the same.

    A mit_mot is one buffer of which a step reads several rows and writes several; PyTensor's
    gradients are made of them, and no backend keeps less than all of it. Written as states, most of
    it is a carry of one row, which PyTensor and `save-mem` can shorten.

    Legal cases, with taps counted from the earliest row that a step reads:

    1. Each row that a step writes becomes a state of its own, as wide as the distance to the row
       written before it: a sit_sot where that is one row, else a mit_sot. It starts with rows of
       the initial buffer. A row that is written where nothing is read before becomes a nit_sot,
       if it is read outside; or a sit_sot that no step reads, where the loop may run 0 steps and
       rows have a shape, which PyTensor's nit_sots then lose.
    2. What a step reads at the last row that it writes, or after it, nobody has written yet: it
       becomes a sequence of rows of the initial buffer.
    3. Where all those rows are shown to be zero, or equal to one value, there is no sequence: the
       body has the value as a literal if it is a constant, else as a non-sequence. So it is for a
       cost on the last state, of which one row is the seed and all others zero.
    4. Where a single write adds its result to a row that is not written yet, and the rows of the
       initial buffer are one value at each step but zero in the last rows, the value is added where
       the row is read instead, and is no sequence: so it is for the sum of all states.
    5. Readers outside get the rows that they look at from the states: the last row as
       ``state[-1]``, others in slices, reversals and slices of slices. Who reads in a way that is
       not understood gets the whole buffer, joined from its parts.

    Preconditions: no stop condition (the gradient of a while loop has none and is taken). The taps
    reach from 0 or before to 0 or after, no row is written before the earliest that is read, and
    none twice in a step; the initial buffer is shown to be as long as the steps reach, since
    PyTensor's backends disagree or start again at the first row otherwise. In a batched loop
    (``Blockwise{Scan}``) every entry runs the same number of steps. Cases 3 and 4 look at the
    expression that made the initial buffer (zeros, slices, reversals, rows set or incremented at
    constant places, joins, sums); what is not shown to be zero is read.

    Values stay the same to the bit, but for the sign of zeros: what is added to a row of zeros
    outside is taken as it is, as in PyTensor's own rewrites, so -0.0 may be where 0.0 was. A zero
    that is added in the body stays there as a literal. Errors stay: a row that is set out of bounds
    (``xs[-1]`` of no steps) is still set. What only lent its shape to zeros is not computed.

    Run it after every derivative was taken, and before `save-mem`.

    Out of scope: while loops with mit_mots; case 4 for loops with several writes (of AR(2), say),
    where the order of additions would change; sequences of which only the first or last rows are
    zero.
    """

    name: ClassVar[str] = "mit-mot-to-sit-sot"

    def rewrite(self, view: ScanView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return what reads the mit_mots, from a Scan that has states in their place."""
        found = [
            plan for slot in view.of_kind(SlotKind.MIT_MOT) if (plan := _plan(view, slot, context))
        ]
        if not found or not context.budget.spend():
            return None
        names = context.names(view)
        view.unfreeze()
        substitutes: dict[Variable, Variable] = {}
        for plan in found:
            made = MitMotSlots(plan, view.inner_outputs())
            context.changed(view, f"turned mit_mot `{names[plan.slot]}` into {made.told()}")
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


def _plan(view: ScanView, slot: Slot, context: PassContext) -> Plan | None:
    """How to take ``slot`` apart; ``None``, with a remark, if it has to stay."""
    found = _plan_or_reason(view, slot, context)
    if isinstance(found, Plan):
        return found
    context.kept(view, f"mit_mot `{context.names(view)[slot]}`: {found}")
    return None


def _plan_or_reason(view: ScanView, slot: Slot, context: PassContext) -> Plan | str:
    assert slot.outer_output is not None
    if view.is_while:
        return "the loop may stop early, so its last row has no known place"
    if (reason := unfit(slot)) is not None:
        return reason
    steps = scalar_steps(view)
    if steps is None:
        return "the step count differs within the batch"
    axis = view.batch_ndim
    for lengths in (Lengths(view.n_steps), Lengths(view.n_steps, static=False)):
        length = lengths.length_of(slot.outer_input, axis)
        form = form_of(slot, length, lengths.value_of(steps), lengths)
        if form is not None:
            break
    else:
        told = lengths.value_of(steps)
        return f"its buffer is not shown to be long enough for {told} steps"
    rows = RowAnalysis(lengths, axis).of(slot.outer_input)
    readers = Readers(form.parts, axis, form.latest, context.clients, lengths)
    return Plan(
        slot=slot,
        form=form,
        readings=readers.of(slot.outer_output),
        initial=InitialBuffer(slot.outer_input, rows, steps, axis, lengths),
        trace_length=view.n_steps,
        axis=axis,
    )
