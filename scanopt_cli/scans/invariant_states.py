"""States that every step sets to the same value."""

from __future__ import annotations

from pytensor.graph.traversal import ancestors

from scanopt_cli.scans.view import STATES, ScanView, Slot, SlotKind


def invariant_states(view: ScanView) -> list[Slot]:
    """Return the sit_sots and mit_sots whose update depends on no sequence and on no state."""
    varying = {
        variable for slot in view.of_kind(SlotKind.SEQ, *STATES) for variable in slot.inner_inputs
    }
    return [
        slot
        for slot in view.of_kind(SlotKind.MIT_SOT, SlotKind.SIT_SOT)
        if varying.isdisjoint(ancestors(slot.inner_outputs))
    ]
