"""Whether a loop may run fewer steps, and its cut to the first steps if only these are read."""

from __future__ import annotations

from pytensor.graph.basic import Variable

from scanopt_cli.analysis.accesses.accesses import Accesses
from scanopt_cli.analysis.buffers import is_whole
from scanopt_cli.analysis.count_variables import scalar_steps
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.shortening import capped, with_steps
from scanopt_cli.analysis.step_rows import has_rows_for_steps
from scanopt_cli.ir.slots import SlotKind, SlotView
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import not_whole
from scanopt_cli.remarks import Code, Reason, Why, because


def why_every_step(view: SlotView, lengths: Lengths, context: PassContext) -> Reason | None:
    """Return why a loop must run every step, whatever is read of it; ``None`` if it need not.

    Sequences must provably be long enough, since a loop with a sequence that is too short raises.
    """
    if view.of_kind(SlotKind.MIT_MOT):
        return because(Why.MIT_MOT)
    if any(context.clients(slot.outer_output) for slot in view.of_kind(SlotKind.UNTRACED)):
        return because(Why.UNTRACED_READ)
    lasts = [slot.last for slot in view.slots]
    if any(context.clients(end) for end in (*lasts, *view.counts)):
        return because(Why.END_READ)
    if short := [slot for slot in view.slots if not is_whole(view, slot, lengths)]:
        return not_whole(short)
    counts = [view.n_steps, *(slot.outer_input for slot in view.of_kind(SlotKind.NIT_SOT))]
    if view.batch_ndim and not all(all(count.type.broadcastable) for count in counts):
        return because(Why.STEPS_DIFFER_IN_BATCH)
    if scalar_steps(view) is None:
        return because(Why.STEPS_DIFFER_IN_BATCH)
    return None if has_rows_for_steps(view, lengths) else because(Why.SEQUENCE_SHORT)


def cut_to_first(
    view: SlotView, found: Accesses, lengths: Lengths, context: PassContext
) -> dict[Variable, Variable] | None:
    """Return the outputs of a loop that runs only first steps, if every reader reads only these."""
    every = [access for accesses in found.values() for access in accesses]
    heads = [access.head for access in every if access.head is not None]
    if not every or len(heads) < len(every):
        return None
    # A loop of no steps would differ: in the error for a negative trip count, and in its shapes.
    head = max(1, *heads)
    if lengths.provably_le(lengths.steps, head):
        return None
    reason = why_every_step(view, lengths, context)
    if reason is not None:
        context.missed(view, Code.STEPS_KEPT, reason, steps=str(lengths.steps))
        return None
    context.passed(view, Code.FIRST_STEPS_RUN, steps=head)
    return with_steps(view, capped(head, scalar_steps(view), lengths), lengths)
