"""Pairs the inputs and the outputs of two matched nodes."""

from __future__ import annotations

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from scanopt_cli.diff.matching.correspondence import Matching, NodePair
from scanopt_cli.diff.matching.pairing import Pairs, pair_up
from scanopt_cli.diff.matching.slot_pairing import pair_slots
from scanopt_cli.equivalence.operands import commutes
from scanopt_cli.ir.scan_view import is_loop


def align(matching: Matching, node: Apply, other: Apply) -> NodePair:
    """Return two nodes as a pair, aligned by what is matched so far."""
    if is_loop(node) and is_loop(other):
        return _by_slots(matching, node, other)
    outputs = _in_order(len(node.outputs), len(other.outputs))
    inputs = _in_order(len(node.inputs), len(other.inputs))
    is_one_op = matching.same_op(node, other)
    if isinstance(node.op, Subtensor | IncSubtensor) and not is_one_op:
        # The index is reported as a whole.
        inputs = inputs[: n_operands(node.op)]
    elif len(node.inputs) != len(other.inputs):
        sides = ((matching.before, node.inputs), (matching.after, other.inputs))
        inputs = pair_up(
            [[matching.key(graph, variable) for variable in read] for graph, read in sides],
            [[variable.name for variable in read] for _, read in sides],
            [[str(variable.type) for variable in read] for _, read in sides],
            repeats=True,
        )
    elif is_one_op and commutes(node) and _are_crossed(matching, node, other):
        inputs = [(0, 1), (1, 0), *inputs[2:]]
    return NodePair(node, other, inputs, outputs)


def n_operands(op: Op) -> int:
    """Return how many inputs of an indexing Op come before the index: the array, a new value."""
    return 2 if isinstance(op, IncSubtensor) else 1


def _are_crossed(matching: Matching, node: Apply, other: Apply) -> bool:
    """Whether more of the first two inputs correspond if those of one node are swapped."""
    left, right = (matching.key(matching.before, variable) for variable in node.inputs[:2])
    others = [matching.key(matching.after, variable) for variable in other.inputs[:2]]
    straight = (left == others[0]) + (right == others[1])
    return (left == others[1]) + (right == others[0]) > straight


def _by_slots(matching: Matching, node: Apply, other: Apply) -> NodePair:
    slots = pair_slots(matching, node, other)
    view, other_view = matching.before.view(node), matching.after.view(other)
    inputs = [(0, 0)]
    outputs: list[tuple[Variable, Variable]] = []
    for first, second in slots:
        slot, partner = view.slots[first], other_view.slots[second]
        if slot.has_input and partner.has_input:
            inputs.append((first + 1, second + 1))
        outputs += zip(slot.outer_outputs, partner.outer_outputs, strict=False)
    outputs += zip(view.counts, other_view.counts, strict=False)
    places = {v: place for side in (node, other) for place, v in enumerate(side.outputs)}
    return NodePair(node, other, inputs, [(places[v], places[w]) for v, w in outputs], slots)


def _in_order(count: int, other: int) -> Pairs:
    return [(place, place) for place in range(min(count, other))]
