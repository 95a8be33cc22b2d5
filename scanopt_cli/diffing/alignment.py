"""Which input and output of a node is which of the node that it is matched with."""

from __future__ import annotations

from dataclasses import dataclass

from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from scanopt_cli.diffing.pairing import pair_up
from scanopt_cli.diffing.sides import Pairs, Side
from scanopt_cli.diffing.slots import Token, pair_slots
from scanopt_cli.identity.operands import commutes
from scanopt_cli.scans.view import ScanView, scan_op


@dataclass(frozen=True, slots=True)
class Alignment:
    """Places of the inputs and outputs of two nodes that belong together.

    ``slots`` pairs the slots of two Scans; it is ``None`` for all other nodes.
    """

    inputs: Pairs
    outputs: Pairs
    slots: Pairs | None = None

    def flipped(self) -> Alignment:
        """Return the alignment as seen from the other side."""
        return Alignment(
            _flipped(self.inputs),
            _flipped(self.outputs),
            None if self.slots is None else _flipped(self.slots),
        )


def align(
    side: Side, node: Apply, other: Side, other_node: Apply, token: Token, other_token: Token
) -> Alignment:
    """Align two nodes; ``token`` tells what is known of the variables so far."""
    if side.op_digest(node.op) == other.op_digest(other_node.op):
        return _of_one_op(node, other_node, token, other_token)
    if scan_op(node) is not None and scan_op(other_node) is not None:
        slots = pair_slots(side, node, other, other_node, token, other_token)
        return _of_slots(side.view(node), other.view(other_node), slots)
    outputs = _in_order(len(node.outputs), len(other_node.outputs))
    inputs, others = node.inputs, other_node.inputs
    if isinstance(node.op, Subtensor | IncSubtensor):
        # The index is told as one; only what is indexed, and what is written, has a counterpart.
        width = 2 if isinstance(node.op, IncSubtensor) else 1
        return Alignment(_in_order(width, width), outputs)
    if len(inputs) != len(others):
        return Alignment(_uneven(inputs, others, token, other_token), outputs)
    return Alignment(_in_order(len(inputs), len(others)), outputs)


def _of_one_op(node: Apply, other: Apply, token: Token, other_token: Token) -> Alignment:
    """Align by place, but for two operands that were swapped without a difference."""
    outputs = _in_order(len(node.outputs), len(other.outputs))
    if len(node.inputs) != len(other.inputs):
        return Alignment(_uneven(node.inputs, other.inputs, token, other_token), outputs)
    inputs = _in_order(len(node.inputs), len(other.inputs))
    if is_swappable(node):
        left, right = (token(variable) for variable in node.inputs[:2])
        other_left, other_right = (other_token(variable) for variable in other.inputs[:2])
        straight = (left == other_left) + (right == other_right)
        if (left == other_right) + (right == other_left) > straight:
            inputs = [(0, 1), (1, 0), *inputs[2:]]
    slots = None if scan_op(node) is None else [(i - 1, j - 1) for i, j in inputs[1:]]
    return Alignment(inputs, outputs, slots)


def _uneven(
    inputs: list[Variable], others: list[Variable], token: Token, other_token: Token
) -> Pairs:
    return pair_up(
        inputs,
        others,
        (token, other_token),
        (lambda variable: variable.name, lambda variable: variable.name),
        (lambda variable: str(variable.type), lambda variable: str(variable.type)),
        repeats=True,
    )


def is_swappable(node: Apply) -> bool:
    """Whether the first two inputs of ``node`` may change places."""
    return len(node.inputs) > 1 and commutes(node)


def _of_slots(view: ScanView, other: ScanView, slots: Pairs) -> Alignment:
    places = {variable: place for place, variable in enumerate(view.node.outputs)}
    others = {variable: place for place, variable in enumerate(other.node.outputs)}
    outputs = [
        (places[output], others[counterpart])
        for first, second in slots
        if (output := view.slots[first].outer_output) is not None
        and (counterpart := other.slots[second].outer_output) is not None
    ]
    inputs = [(0, 0), *((first + 1, second + 1) for first, second in slots)]
    return Alignment(inputs, outputs, slots)


def _in_order(count: int, other: int) -> list[tuple[int, int]]:
    return [(place, place) for place in range(min(count, other))]


def _flipped(pairs: Pairs) -> Pairs:
    return sorted((second, first) for first, second in pairs)
