"""States that every step sets to the same, which PyTensor compiles wrongly.

Where a state's update depends on no sequence and no state, PyTensor's ``scan_push_out_non_seq``
computes it before the loop and puts a trace of it in the place of the state's buffer, without the
rows that the buffer starts with: ``xs`` is then too short. So no pass may make such a state.
"""

from __future__ import annotations

from collections.abc import Collection

from pytensor.graph.traversal import ancestors

from scanopt_cli.scans.view import STATES, ScanView, Slot, SlotKind


def stuck_without(view: ScanView, steady: Collection[Slot] = ()) -> list[Slot]:
    """Return the states that every step would set to the same if ``steady`` slots never changed."""
    moving = {
        variable
        for slot in view.of_kind(SlotKind.SEQ, *STATES)
        if slot not in steady
        for variable in slot.inner_inputs
    }
    return [
        slot
        for slot in view.of_kind(SlotKind.MIT_SOT, SlotKind.SIT_SOT)
        if slot not in steady and moving.isdisjoint(ancestors(slot.inner_outputs))
    ]


def sticks(view: ScanView, steady: Collection[Slot]) -> list[Slot]:
    """Return those of ``steady`` that some state depends on which depends on nothing that moves."""
    already = stuck_without(view)
    read = {
        variable
        for slot in stuck_without(view, steady)
        if slot not in already
        for variable in ancestors(slot.inner_outputs)
    }
    return [slot for slot in steady if not read.isdisjoint(slot.inner_inputs)]
