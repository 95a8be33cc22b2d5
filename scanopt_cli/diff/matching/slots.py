"""Pairs the inputs and the outputs of two bodies by their paired slots."""

from __future__ import annotations

from scanopt_cli.diff.matching.indexed_graph import Pairs
from scanopt_cli.ir.slots import Slot, SlotView


def inner_inputs(view: SlotView, other: SlotView, pairs: Pairs) -> list[tuple[int, int]]:
    """Return pairs of places of inner inputs: of paired slots, at the same tap."""
    places = _input_places(view)
    others = _input_places(other)
    return [
        (place, others[second][tap])
        for first, second in pairs
        for tap, place in places[first].items()
        if tap in others[second]
    ]


def inner_outputs(view: SlotView, other: SlotView, pairs: Pairs) -> list[tuple[int, int]]:
    """Return pairs of places of inner outputs: of paired slots, and the stop conditions."""
    places = output_places(view)
    others = output_places(other)
    found = [
        (place, others[second][tap])
        for first, second in pairs
        for tap, place in places[first].items()
        if tap in others[second]
    ]
    if view.condition is not None and other.condition is not None:
        found.append((len(view.op.fgraph.outputs) - 1, len(other.op.fgraph.outputs) - 1))
    return found


def output_places(view: SlotView) -> list[dict[int, int]]:
    """Return, for each slot, the place of its inner output by out-tap."""
    places: dict[Slot, dict[int, int]] = {}
    count = 0
    for slot in view.outputs():
        places[slot] = {tap: count + rank for rank, tap in enumerate(slot.out_taps)}
        count += len(slot.out_taps)
    return [places.get(slot, {}) for slot in view.slots]


def _input_places(view: SlotView) -> list[dict[int, int]]:
    """Return, for each slot, the place of its inner input by tap; no taps count as tap 0."""
    position = {variable: place for place, variable in enumerate(view.op.fgraph.inputs)}
    return [
        {
            tap: position[variable]
            for tap, variable in zip(slot.taps or (0,), slot.inner_inputs, strict=False)
        }
        for slot in view.slots
    ]
