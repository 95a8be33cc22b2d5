"""Merge sequences, non-sequences and constants of a loop that compute the same value."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from pytensor.graph.basic import Variable

from scanopt_cli.ir.slots import Slot, SlotKind, SlotView
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import AnyLoopPass, duplicates
from scanopt_cli.remarks import Code


@dataclass(frozen=True)
class MergeDuplicates(AnyLoopPass):
    """Merge equal sequences, and equal non-sequences, of a Scan, and constants of a TracedLoop.

    Legal cases:

    1. Two sequences that compute the same value become one.
    2. Two non-sequences that compute the same value become one; so do two constants.

    Preconditions: "the same value" is equality of canonical forms, so names, the order of
    construction and the order of the operands of ``+`` and ``*`` do not matter. Ops that cannot be
    compared by value (closures, user classes of a local scope) are compared by identity. The types
    must be equal, both outside and in the body, and no step may work in place.

    Out of scope: merging a sequence with a non-sequence, equal states, and equal outputs.
    """

    name: ClassVar[str] = "merge-duplicates"
    repeats: ClassVar[bool] = True
    accepts_in_place: ClassVar[bool] = False

    def rewrite(self, view: SlotView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a loop that keeps the first of equal inputs."""

        def key(slot: Slot) -> Hashable:
            (inner,) = slot.inner_inputs
            return slot.kind, context.same(slot.outer_input), slot.outer_input.type, inner.type

        twins = duplicates(view.of_kind(SlotKind.SEQ, SlotKind.NON_SEQ, SlotKind.CONSTANT), key)
        if not twins:
            return None
        names = context.names(view)
        view.unfreeze(
            {twin.inner_inputs[0]: first.inner_inputs[0] for twin, first in twins.items()},
        )
        view.slots = [slot for slot in view.slots if slot not in twins]
        for twin, first in twins.items():
            context.passed(view, Code.SLOTS_MERGED, names[twin], kind=twin.kind, into=names[first])
        return view.rebuild()
