"""Carry and compute each value of a loop once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pytensor.graph.basic import Variable

from scanopt_cli.analysis.buffers import is_whole
from scanopt_cli.analysis.lengths import AffineExpr, Lengths
from scanopt_cli.equivalence.loop_forms import Trajectory, trajectories
from scanopt_cli.ir.scan_view import STATES, ScanView, Slot, SlotKind
from scanopt_cli.pipeline.contract import PassContext, ScanPass


@dataclass(frozen=True)
class MergeStates(ScanPass):
    """Merge states of a Scan that are always equal, and outputs that compute the same.

    Legal cases:

    1. States of one kind with the same taps that start equal and are updated equally become one
       state (PyTensor issue 787). Updates are equal if they are once such states are taken for one;
       the largest such set is found by partition refinement, so states that feed each other in
       circles are found too.
    2. nit_sots that compute the same become one.
    3. A nit_sot that computes what a sit_sot or mit_sot is updated to is read from the state's
       buffer instead.

    Preconditions: equality is exact (see ``merge-equal``). Both buffers have the same length; for
    case 3 both are shown to hold every step, and a nit_sot of vectors or arrays needs at least one
    step: PyTensor gives it the shape ``(0, 0)`` if there is none. Types outside are equal, static
    lengths included. No step works in place.

    Out of scope: states that are equal from the second step on, states with the same values but
    other taps, and equal sequences (``merge-duplicates``).
    """

    name: ClassVar[str] = "merge-states"
    takes_in_place: ClassVar[bool] = False

    def rewrite(self, view: ScanView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return all outputs, on a Scan in which the first of equal slots serves for all."""
        slots = [slot for slot in view.slots if slot.kind in STATES | {SlotKind.NIT_SOT}]
        if len(slots) < 2:
            return None
        names = context.names(view)
        told = trajectories(context.digests, view)
        twins = _affordable(_twins(slots, told), context)
        traces = _affordable(_traces(view, slots, twins, told, names, context), context)
        if not twins and not traces:
            return None
        view.unfreeze(
            {
                inner: kept
                for twin, first in twins.items()
                for inner, kept in zip(twin.inner_inputs, first.inner_inputs, strict=True)
            }
        )
        view.slots = [slot for slot in view.slots if slot not in twins and slot not in traces]
        replacements = view.rebuild()
        for trace, state in traces.items():
            context.changed(view, f"read {trace.kind} `{names[trace]}` off state `{names[state]}`")
            buffer: Any = replacements[_output(state)]
            steps = (*(slice(None),) * view.batch_ndim, slice(state.n_initial, None))
            replacements[_output(trace)] = buffer[steps]
        # The first of equal slots may be such a trace itself.
        for twin, first in twins.items():
            context.changed(view, f"merged {twin.kind} `{names[twin]}` into `{names[first]}`")
            replacements[_output(twin)] = replacements[_output(first)]
        return replacements


def _twins(slots: list[Slot], told: Mapping[Slot, Trajectory]) -> dict[Slot, Slot]:
    """Map each slot that repeats an earlier one to the first of its values."""
    first: dict[object, Slot] = {}
    twins: dict[Slot, Slot] = {}
    for slot in slots:
        kept = first.setdefault((told[slot].values, _output(slot).type), slot)
        if kept is not slot:
            twins[slot] = kept
    return twins


def _traces(
    view: ScanView,
    slots: list[Slot],
    twins: Mapping[Slot, Slot],
    told: Mapping[Slot, Trajectory],
    names: Mapping[Slot, str],
    context: PassContext,
) -> dict[Slot, Slot]:
    """Map each nit_sot that is the trace of a state to the state."""
    states = {
        told[slot].updates: slot
        for slot in slots
        if slot.kind in (SlotKind.MIT_SOT, SlotKind.SIT_SOT) and slot not in twins
    }
    lengths = Lengths(view.n_steps)
    traces: dict[Slot, Slot] = {}
    for slot in slots:
        state = states.get(told[slot].updates)
        if slot.kind is not SlotKind.NIT_SOT or slot in twins or state is None:
            continue
        (entry,) = slot.inner_outputs
        why = f"nit_sot `{names[slot]}`, which is the trace of `{names[state]}`"
        if not is_whole(view, slot, lengths) or not is_whole(view, state, lengths):
            context.kept(view, f"{why}: their buffers are not shown to hold every step")
        elif entry.type.ndim and not lengths.provably_le(
            AffineExpr(1), lengths.value_of(view.n_steps)
        ):
            context.kept(view, f"{why}: of no steps at all it has another shape")
        else:
            traces[slot] = state
    return traces


def _affordable(merged: dict[Slot, Slot], context: PassContext) -> dict[Slot, Slot]:
    return {slot: kept for slot, kept in merged.items() if context.budget.spend()}


def _output(slot: Slot) -> Variable:
    assert slot.outer_output is not None
    return slot.outer_output
