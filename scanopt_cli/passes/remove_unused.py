"""Remove the dead slots of a loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pytensor.graph.basic import Variable
from pytensor.graph.traversal import walk

from scanopt_cli.ir.slots import Slot, SlotKind, SlotView
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import AnyLoopPass
from scanopt_cli.remarks import Code, Why


@dataclass(frozen=True)
class RemoveUnused(AnyLoopPass):
    """Remove the dead outputs of a loop, then the sequences and non-sequences that nothing reads.

    It takes Scans and TracedLoops: what is said of nit_sots holds for traced values, and of
    non-sequences for constants. A trace of a state that nothing reads costs nothing.

    Legal cases:

    1. A nit_sot is removed if nothing outside reads it.
    2. A state (mit_mot, mit_sot, sit_sot, untraced) is removed if nothing outside reads it and no
       live slot reads any of its taps.
    3. States that depend only on each other, or on themselves, are removed together.
    4. A sequence or a non-sequence is removed if no live slot reads it.

    Preconditions: the stop condition of a while loop always counts as read. In a batched loop
    (``Blockwise{Scan}``) an input that alone carries a batch dimension stays, since the results
    would lose that dimension.

    Removing a sequence drops the check of its length: a dead sequence shorter than the trip count
    no longer raises an error.

    Out of scope: single taps of a state (a state is removed as a whole or stays), and the unused
    inputs and outputs of an OpFromGraph (``clean-ofg``).
    """

    name: ClassVar[str] = "remove-unused"
    repeats: ClassVar[bool] = True
    from_the_end: ClassVar[bool] = True

    def rewrite(self, view: SlotView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for the live outputs, from a loop without the dead slots."""
        live = _live_slots(view, context)
        dead = [s for s in view.slots if s not in live and s.kind is not SlotKind.INDEX]
        needed = _batch_carriers(view, dead)
        dead = [slot for slot in dead if slot not in needed]
        names = context.names(view)
        for slot in needed:
            context.missed(view, Code.UNUSED_KEPT, Why.CARRIES_BATCH, names[slot], kind=slot.kind)
        if not dead:
            return None
        removed = set(dead)
        view.unfreeze()
        view.slots = [slot for slot in view.slots if slot not in removed]
        for slot in dead:
            context.passed(view, Code.SLOT_REMOVED, names[slot], kind=slot.kind)
        return view.rebuild()


def _live_slots(view: SlotView, context: PassContext) -> set[Slot]:
    """Return the slots that are read outside, by a live slot or by the stop condition."""
    reads = {variable: slot for slot in view.slots for variable in slot.inner_inputs}
    live = {slot for slot in view.outputs() if any(map(context.clients, slot.outer_outputs))}
    needed: list[Variable] = [output for slot in live for output in slot.inner_outputs]
    if view.condition is not None:
        needed.append(view.condition)

    def before(variable: Variable) -> Sequence[Variable]:
        if variable in reads:
            return reads[variable].inner_outputs
        return () if variable.owner is None else variable.owner.inputs

    return live.union(reads[variable] for variable in walk(needed, before) if variable in reads)


def _batch_carriers(view: SlotView, dead: Iterable[Slot]) -> list[Slot]:
    """Return the dead slots of a batched loop that must stay to keep the batch shape."""
    dead = list(dead)
    staying = [view.n_steps] + [slot.outer_input for slot in view.slots if slot not in set(dead)]
    carriers = []
    for axis in range(view.batch_ndim):
        if any(not variable.type.broadcastable[axis] for variable in staying):
            continue
        for slot in dead:
            if not slot.outer_input.type.broadcastable[axis]:
                carriers.append(slot)
                staying.append(slot.outer_input)
                break
    # A state cannot stay without the slots that it reads: keep inputs only, or everything.
    if any(slot.kind not in (SlotKind.SEQ, SlotKind.NON_SEQ) for slot in carriers):
        return dead
    return carriers
