"""Which slot of one Scan is which slot of another."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable

from pytensor.graph.basic import Apply, Variable

from scanopt_cli.diffing.pairing import pair_up
from scanopt_cli.diffing.sides import Pairs, Side
from scanopt_cli.scans.view import ScanView, Slot, SlotKind

type Token = Callable[[Variable], Hashable]
"""What a variable is known as on both sides."""


def pair_slots(
    side: Side, node: Apply, other: Side, other_node: Apply, token: Token, other_token: Token
) -> Pairs:
    """Pair the slots of two Scans: by what feeds them, by name, and by what the body does.

    Slots are told by their places in the lists of their views.
    """
    here = _Witness(side, node, token)
    there = _Witness(other, other_node, other_token)
    pairs = pair_up(
        here.slots,
        there.slots,
        (here.name_and_source, there.name_and_source),
        (here.source_and_role, there.source_and_role),
        (here.source, there.source),
        (here.name, there.name),
        (here.role, there.role),
        (here.name_and_group, there.name_and_group),
        (here.role, there.role),
        repeats=True,
    )
    return sorted([*pairs, *_left_over(here, there, pairs)])


def _left_over(here: _Witness, there: _Witness, pairs: Pairs) -> Pairs:
    """Pair in order what is left, where both Scans have as many slots of a kind and type left."""
    paired = {first for first, _ in pairs}, {second for _, second in pairs}
    left, other_left = (
        [place for place in range(len(witness.slots)) if place not in known]
        for witness, known in zip((here, there), paired, strict=True)
    )
    shapes = [here.shape(place) for place in left]
    others = [there.shape(place) for place in other_left]
    found = pair_up(
        [(shape, shapes.count(shape)) for shape in shapes],
        [(shape, others.count(shape)) for shape in others],
        (lambda told: told, lambda told: told),
        repeats=True,
    )
    return [(left[first], other_left[second]) for first, second in found]


def inner_inputs(view: ScanView, other: ScanView, pairs: Pairs) -> list[tuple[int, int]]:
    """Return the places of inner inputs that belong together: of one slot, at the same tap."""
    places = _input_places(view)
    others = _input_places(other)
    return [
        (place, others[second][tap])
        for first, second in pairs
        for tap, place in places[first].items()
        if tap in others[second]
    ]


def inner_outputs(view: ScanView, other: ScanView, pairs: Pairs) -> list[tuple[int, int]]:
    """Return the places of inner outputs that belong together, the stop condition included."""
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


def output_places(view: ScanView) -> list[dict[int, int]]:
    """For each slot, the place of its inner output by out-tap."""
    places: dict[Slot, dict[int, int]] = {}
    count = 0
    for slot in view.outputs():
        places[slot] = {tap: count + rank for rank, tap in enumerate(slot.out_taps)}
        count += len(slot.out_taps)
    return [places.get(slot, {}) for slot in view.slots]


def _input_places(view: ScanView) -> list[dict[int, int]]:
    """For each slot, the place of its inner input by tap; one without taps counts as tap 0."""
    position = {variable: place for place, variable in enumerate(view.op.fgraph.inputs)}
    return [
        {
            tap: position[variable]
            for tap, variable in zip(slot.taps or (0,), slot.inner_inputs, strict=False)
        }
        for slot in view.slots
    ]


class _Witness:
    """What is known of the slots of one Scan, as evidence for pairing them."""

    def __init__(self, side: Side, node: Apply, token: Token) -> None:
        self._view = side.view(node)
        self.slots = self._view.slots
        self._names = side.slot_names(node)
        self._token = token
        self._roles = _roles(side, self._view)

    def name_and_source(self, slot: Slot) -> Hashable | None:
        name, source = self.name(slot), self.source(slot)
        return None if name is None or source is None else (name, source)

    def source_and_role(self, slot: Slot) -> Hashable | None:
        source = self.source(slot)
        return None if source is None else (source, self._roles[slot])

    def source(self, slot: Slot) -> Hashable | None:
        """What feeds a slot; the length of a traced output says nothing."""
        if slot.kind is SlotKind.NIT_SOT:
            return None
        return slot.kind, self._token(slot.outer_input)

    def name(self, slot: Slot) -> Hashable | None:
        name = self.name_alone(slot)
        return None if name is None else (slot.kind, name)

    def name_alone(self, slot: Slot) -> Hashable | None:
        name = self._names[slot]
        return None if name.endswith((slot.label, f"({slot.label})")) else name

    def name_and_group(self, slot: Slot) -> Hashable | None:
        """The name, for a slot that became another kind of result, or of input."""
        name = self.name_alone(slot)
        return None if name is None else (slot.outer_output is None, name)

    def shape(self, place: int) -> Hashable:
        """The kind and types of a slot, without anything that is particular to it."""
        slot = self.slots[place]
        return slot.kind, slot.taps, slot.out_taps, self._roles[slot][0]

    def role(self, slot: Slot) -> Hashable | None:
        return slot.kind, slot.taps, self._roles[slot]


def _roles(side: Side, view: ScanView) -> dict[Slot, tuple[Hashable, ...]]:
    """What the body does with each slot: which Ops read it, and which make what it computes."""
    body = view.op.fgraph
    readers: dict[Variable, Counter[tuple[bytes, int]]] = defaultdict(Counter)
    for node in body.toposort():
        for place, variable in enumerate(node.inputs):
            if variable.owner is None:
                readers[variable][side.op_digest(node.op), place] += 1
    return {
        slot: (
            tuple(str(v.type) for v in (*slot.inner_inputs[:1], *slot.inner_outputs[:1])),
            tuple(frozenset(readers[variable].items()) for variable in slot.inner_inputs),
            tuple(_makers(side, variable) for variable in slot.inner_outputs),
        )
        for slot in view.slots
    }


def _makers(side: Side, variable: Variable) -> tuple[bytes, ...]:
    """The Op that makes ``variable``, and those that make its inputs."""
    node = variable.owner
    if node is None:
        return ()
    behind = [part.owner for part in node.inputs if part.owner is not None]
    return tuple(side.op_digest(maker.op) for maker in (node, *behind))
