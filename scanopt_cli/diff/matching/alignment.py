"""Pairs the inputs and the outputs of two matched nodes."""

from __future__ import annotations

from dataclasses import dataclass

from pytensor.graph.basic import Apply
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from scanopt_cli.diff.matching.indexed_graph import SharedKeys
from scanopt_cli.diff.matching.pairing import Pairs, flipped, pair_up
from scanopt_cli.diff.matching.slot_pairing import pair_slots
from scanopt_cli.equivalence.operands import commutes
from scanopt_cli.ir.scan_view import is_loop
from scanopt_cli.ir.slots import SlotView


@dataclass(frozen=True, slots=True)
class Alignment:
    """The inputs and outputs of two nodes that correspond, as pairs of places.

    ``slots`` pairs the slots of two loops; it is ``None`` for all other nodes.
    """

    inputs: Pairs
    outputs: Pairs
    slots: Pairs | None = None

    def flipped(self) -> Alignment:
        """Return the same alignment with its sides swapped."""
        return Alignment(
            flipped(self.inputs),
            flipped(self.outputs),
            None if self.slots is None else flipped(self.slots),
        )


def align(ours: SharedKeys, theirs: SharedKeys, node: Apply, other: Apply) -> Alignment:
    """Align two nodes by what is matched so far."""
    is_one_op = ours.side.op_digest(node.op) == theirs.side.op_digest(other.op)
    if is_loop(node) and is_loop(other):
        slots = pair_slots(ours, theirs, node, other)
        return _of_slots(ours.side.view(node), theirs.side.view(other), slots)
    outputs = _in_order(len(node.outputs), len(other.outputs))
    if isinstance(node.op, Subtensor | IncSubtensor) and not is_one_op:
        # The index is reported as a whole; only the indexed array and the written value are paired.
        width = 2 if isinstance(node.op, IncSubtensor) else 1
        return Alignment(_in_order(width, width), outputs)
    if len(node.inputs) != len(other.inputs):
        both = node.inputs, other.inputs
        uneven = pair_up(
            [list(map(ours.token, node.inputs)), list(map(theirs.token, other.inputs))],
            [[variable.name for variable in inputs] for inputs in both],
            [[str(variable.type) for variable in inputs] for inputs in both],
            repeats=True,
        )
        return Alignment(uneven, outputs)
    inputs = _in_order(len(node.inputs), len(other.inputs))
    if is_one_op and commutes(node):
        left, right = (ours.token(variable) for variable in node.inputs[:2])
        other_left, other_right = (theirs.token(variable) for variable in other.inputs[:2])
        straight = (left == other_left) + (right == other_right)
        if (left == other_right) + (right == other_left) > straight:
            inputs = [(0, 1), (1, 0), *inputs[2:]]
    return Alignment(inputs, outputs)


def _of_slots(view: SlotView, other: SlotView, slots: Pairs) -> Alignment:
    places = {variable: place for place, variable in enumerate(view.node.outputs)}
    others = {variable: place for place, variable in enumerate(other.node.outputs)}
    outputs = [
        (places[output], others[counterpart])
        for first, second in slots
        for output, counterpart in zip(
            view.slots[first].outer_outputs, other.slots[second].outer_outputs, strict=False
        )
    ]
    counts = zip(view.counts, other.counts, strict=False)
    outputs += [(places[count], others[counterpart]) for count, counterpart in counts]
    inputs = [
        (first + 1, second + 1)
        for first, second in slots
        if view.slots[first].has_input and other.slots[second].has_input
    ]
    inputs.insert(0, (0, 0))
    return Alignment(inputs, outputs, slots)


def _in_order(count: int, other: int) -> list[tuple[int, int]]:
    return [(place, place) for place in range(min(count, other))]
