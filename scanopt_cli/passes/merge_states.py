"""Merge equal states and equal outputs of a loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pytensor.graph.basic import Variable
from pytensor.tensor.type import TensorType

from scanopt_cli.analysis.buffers import is_whole
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.equivalence.loop_forms import Trajectory, trajectories
from scanopt_cli.ir.indexing import along
from scanopt_cli.ir.slots import STATES, Slot, SlotKind, SlotView
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import AnyLoopPass, duplicates, not_whole
from scanopt_cli.remarks import Code, Reason, Why, because

_VALUES = {SlotKind.NIT_SOT, SlotKind.TRACED}
"""What a step computes to be traced, that is no state."""


@dataclass(frozen=True)
class MergeStates(AnyLoopPass):
    """Merge states of a loop that are equal at every step, and equal outputs.

    It takes Scans and TracedLoops, whose states and traced values are handled like sit_sots and
    nit_sots.

    Legal cases:

    1. States of one kind with the same taps that start equal and are updated equally become one
       state (PyTensor issue 787). Updates are compared under the assumption that such states are
       equal. Partition refinement finds the largest sets of states for which this is consistent,
       including states that depend on each other in cycles.
    2. nit_sots that compute the same value become one.
    3. A nit_sot that computes the update of a sit_sot or mit_sot is read from the state's buffer
       instead.

    Preconditions: equality is exact (see ``merge-equal``). Both buffers have the same length; for
    case 3 both provably hold every step, and a nit_sot of vectors or arrays needs at least one
    step: PyTensor gives it the shape ``(0, 0)`` if there is none. In cases 1 and 2 outer types are
    equal, static lengths included. No step works in place.

    Out of scope: states that are equal from the second step on, states with the same values but
    different taps, and equal sequences (``merge-duplicates``).
    """

    name: ClassVar[str] = "merge-states"
    repeats: ClassVar[bool] = True
    accepts_in_place: ClassVar[bool] = False

    def rewrite(self, view: SlotView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a loop that keeps the first of equal slots."""
        slots = [slot for slot in view.slots if slot.kind in STATES | _VALUES]
        if len(slots) < 2:
            return None
        names = context.names(view)
        trajectory_of = trajectories(context.digests, view)
        twins = duplicates(slots, lambda slot: (trajectory_of[slot].values, slot.output.type))
        traces = _traces(view, slots, twins, trajectory_of, names, context)
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
            context.passed(view, Code.TRACE_READ_FROM_STATE, names[trace], state=names[state])
            buffer: Any = replacements[state.output]
            steps = along(view.batch_ndim, slice(state.n_initial, None))
            replacements[trace.output] = buffer[steps]
        # The kept slot may itself be a nit_sot that is now read from a state.
        for twin, first in twins.items():
            context.passed(view, Code.SLOTS_MERGED, names[twin], kind=twin.kind, into=names[first])
            for old, kept in zip(twin.outer_outputs, first.outer_outputs, strict=True):
                replacements[old] = replacements[kept]
        return replacements


def _traces(
    view: SlotView,
    slots: list[Slot],
    twins: Mapping[Slot, Slot],
    trajectory_of: Mapping[Slot, Trajectory],
    names: Mapping[Slot, str],
    context: PassContext,
) -> dict[Slot, Slot]:
    """Map each nit_sot that traces a sit_sot or mit_sot to that state."""
    states = {
        trajectory_of[slot].updates: slot
        for slot in slots
        if slot.kind in (SlotKind.MIT_SOT, SlotKind.SIT_SOT, SlotKind.STATE)
        and slot not in twins
        and isinstance(slot.output.type, TensorType)
    }
    lengths = Lengths(view.n_steps)
    traces: dict[Slot, Slot] = {}
    for slot in slots:
        state = states.get(trajectory_of[slot].updates)
        if slot.kind not in _VALUES or slot in twins or state is None:
            continue
        (entry,) = slot.inner_outputs
        short = [s for s in (slot, state) if not is_whole(view, s, lengths)]
        why: Reason | None = None
        if short:
            why = not_whole(short)
        elif slot.kind is SlotKind.NIT_SOT and entry.type.ndim and not lengths.runs():
            why = because(Why.TRACE_OF_NO_STEPS)
        if why is None:
            traces[slot] = state
        else:
            context.missed(view, Code.TRACE_KEPT, why, names[slot], state=names[state])
    return traces
