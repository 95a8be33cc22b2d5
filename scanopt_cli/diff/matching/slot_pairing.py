"""Pairs the slots of one Scan with those of another by partition refinement.

Both loops are refined together, as `scanopt_cli.equivalence.loop_forms` refines one: slots begin
with colours, what a step computes for them from slots of these colours splits the colours, and so
on. Slots that have a colour to themselves on their side, and the same colour, are a pair. If a body
changed, so did the colours of all slots that depend on the change, some rounds later. Therefore the
colours of every round count, those of late rounds before those of early ones. Pairs have colours of
their own, so every pair helps to distinguish the other slots.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property

from pytensor.graph.basic import Apply, Constant, Variable

from scanopt_cli.diff.matching.indexed_graph import Pairs
from scanopt_cli.diff.matching.pairing import pair_up
from scanopt_cli.diff.matching.shared_keys import SharedKeys
from scanopt_cli.equivalence.loop_forms import Step
from scanopt_cli.ir.naming import slot_name
from scanopt_cli.ir.slots import SlotKind, SlotView

# The most rounds from one set of pairs, and the most walks over the bodies in all: for many states
# that separate only one by one, the time would otherwise be quadratic.
_ROUNDS = 8
_WALKS = 50
# How many readers of a result are examined, and how many readers of readers: the steps of a state,
# their last row, and what that is for.
_READERS = 8
_DEPTH = 3

type _Key = Callable[[int, int], Hashable]
"""Returns a key for a slot, given as a side, 0 or 1, and a place; ``None`` for no key."""


def pair_slots(ours: SharedKeys, theirs: SharedKeys, node: Apply, other: Apply) -> Pairs:
    """Pair the slots of two Scans, each given by its place in the list of its view.

    If the two Scans compute the same whatever feeds them, all slots are paired, each with one that
    has the same part in the loop.
    """
    is_one_op = ours.side.op_digest(node.op) == theirs.side.op_digest(other.op)
    return _Pairing(_Slots(ours, node), _Slots(theirs, other), is_one_op=is_one_op).run()


class _Slots:
    """What is known of the slots of one Scan node, by their places in its view."""

    def __init__(self, terms: SharedKeys, node: Apply) -> None:
        self._terms = terms
        self._side = terms.side
        view: SlotView = terms.side.view(node)
        self.slots = view.slots
        self.ports: Sequence[bytes] = terms.side.form(node).ports
        self.step = Step(terms.side.sameness, view.slots, view.op.fgraph.toposort(), None)
        self.kinds = [(slot.kind, slot.taps, slot.out_taps) for slot in self.slots]

    @cached_property
    def names(self) -> list[str | None]:
        """The name of each slot without its number; ``None`` if it is only the default label."""
        names = [slot_name(slot, self._clients) for slot in self.slots]
        return [
            None if name == slot.label else name
            for name, slot in zip(names, self.slots, strict=True)
        ]

    @cached_property
    def feeds(self) -> list[Hashable]:
        """The key of what feeds each slot; ``None`` where that is a length, which says nothing."""
        return [
            self._terms.token(slot.outer_input)
            if slot.has_input and slot.kind is not SlotKind.NIT_SOT
            else None
            for slot in self.slots
        ]

    @cached_property
    def types(self) -> list[tuple[str, ...]]:
        """The types of what a step first reads of each slot and first computes for it."""
        return [
            tuple(str(v.type) for v in (*slot.inner_inputs[:1], *slot.inner_outputs[:1]))
            for slot in self.slots
        ]

    @cached_property
    def roles(self) -> list[Hashable]:
        """Which Ops of the body read each slot, and which make its next value."""
        readers: dict[Variable, Counter[tuple[bytes, int]]] = defaultdict(Counter)
        for node in self.step.nodes:
            for place, variable in enumerate(node.inputs):
                if variable.owner is None:
                    readers[variable][self._side.op_digest(node.op), place] += 1
        return [
            (
                types,
                tuple(frozenset(readers[variable].items()) for variable in slot.inner_inputs),
                tuple(map(self._makers, slot.inner_outputs)),
            )
            for slot, types in zip(self.slots, self.types, strict=True)
        ]

    def _makers(self, variable: Variable) -> tuple[bytes, ...]:
        """Return the digests of the Op that makes ``variable`` and of those behind it."""
        if variable.owner is None:
            return ()
        behind = [part.owner for part in variable.owner.inputs if part.owner is not None]
        return tuple(self._side.op_digest(maker.op) for maker in (variable.owner, *behind))

    @cached_property
    def readers(self) -> list[Hashable]:
        """The readers of each slot's result, and their readers; ``None`` if there are none."""
        return [
            None if slot.outer_output is None else self._read_by(slot.outer_output, _DEPTH)
            for slot in self.slots
        ]

    def _clients(self, variable: Variable) -> Sequence[tuple[Apply, int]]:
        return self._side.readers.get(variable, ())

    def _read_by(self, variable: Variable, depth: int) -> Hashable:
        found: set[Hashable] = {("output", place) for place in self._side.ends.get(variable, ())}
        for node, place in self._clients(variable)[:_READERS]:
            partner = self._terms.partner(node)
            if partner is not None:
                found.add((partner, place))
                continue
            others = tuple(self._side.digest(v) for v in node.inputs if isinstance(v, Constant))
            then = self._read_by(node.outputs[0], depth - 1) if depth > 1 else None
            found.add((self._side.op_digest(node.op), place, others, then))
        return frozenset(found) or None


class _Pairing:
    """The pairs so far."""

    def __init__(self, here: _Slots, there: _Slots, *, is_one_op: bool) -> None:
        self._sides = here, there
        self._is_one_op = is_one_op
        # For each side, the pair that each slot is in, identified by its place on the second side.
        self._known: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self._numbers: dict[Hashable, int] = {}
        self._walks = 0

    def run(self) -> Pairs:
        while self._is_incomplete() and any(self._pair(*one) for one in self._evidence()):
            pass
        if self._is_incomplete():
            self._pair_remaining()
        return sorted(self._known[0].items())

    def _is_incomplete(self) -> bool:
        return all(
            len(known) < len(s.slots) for known, s in zip(self._known, self._sides, strict=True)
        )

    def _evidence(self) -> Iterator[tuple[_Key, bool]]:
        """Yield keys to pair slots by, the surest first, and whether equal ones pair in order."""
        if self._is_one_op:
            yield self._port, False
        yield self._joined(self._kind, self._name, self._feed), False
        # Inputs of one kind that are fed the same have the same values.
        yield self._joined(self._is_input, self._kind, self._feed), True
        yield self._joined(self._is_input, self._kind, self._name), False
        rounds = self._rounds()
        for update in reversed(rounds):
            yield self._joined(self._kind, self._feed, update), False
        for update in reversed(rounds):
            yield self._joined(self._kind, update), False
        yield self._joined(self._kind, self._readers), False
        yield self._joined(self._kind, self._feed), False
        yield self._name, False
        yield self._joined(self._kind, self._role), True

    def _joined(self, *parts: _Key) -> _Key:
        """Return the key of several parts, ``None`` if one is; for equal loops, with the port."""

        def key(side: int, place: int) -> Hashable:
            keys = [part(side, place) for part in parts]
            return None if None in keys else (*keys, self._is_one_op and self._port(side, place))

        return key

    def _pair(self, key: _Key, repeats: bool) -> bool:
        """Pair slots whose key is unique on both sides; return whether there were any.

        With ``repeats``, also slots of equal keys in order.
        """
        unpaired, others = self._unpaired()
        pairs = pair_up(
            unpaired,
            others,
            (lambda place: key(0, place), lambda place: key(1, place)),
            repeats=repeats,
        )
        self._add([(unpaired[first], others[second]) for first, second in pairs])
        return bool(pairs)

    def _pair_remaining(self) -> None:
        """Pair unpaired slots of one kind and type in order, if both Scans have as many of them."""
        unpaired = self._unpaired()
        shapes = [[self._shape(side, place) for place in unpaired[side]] for side in (0, 1)]
        counted, others = ([(shape, known.count(shape)) for shape in known] for known in shapes)
        pairs = pair_up(counted, others, (lambda key: key, lambda key: key), repeats=True)
        self._add([(unpaired[0][first], unpaired[1][second]) for first, second in pairs])

    def _add(self, pairs: Pairs) -> None:
        self._known[0].update(pairs)
        self._known[1].update((second, second) for _, second in pairs)

    def _unpaired(self) -> tuple[list[int], list[int]]:
        first, second = (
            [place for place in range(len(side.slots)) if place not in known]
            for side, known in zip(self._sides, self._known, strict=True)
        )
        return first, second

    def _rounds(self) -> list[_Key]:
        """Refine both loops from the pairs so far; return the key of the updates in each round."""
        shared = self._fed(0) & self._fed(1)
        colours = [
            [self._colour(side, place, shared) for place in range(len(self._sides[side].slots))]
            for side in (0, 1)
        ]
        found: list[_Key] = []
        classes = 0
        while len(found) < _ROUNDS and self._walks < _WALKS:
            self._walks += 1
            updates, keys = [], []
            for side, known in zip(self._sides, colours, strict=True):
                of = side.step.digests(known).of
                updates.append([tuple(map(of, slot.inner_outputs)) or None for slot in side.slots])
                keys.append(side.step.updates(known))
            found.append(lambda side, place, updates=updates: updates[side][place])  # type: ignore[misc]
            if len({*keys[0], *keys[1]}) == classes:
                break
            classes, colours = len({*keys[0], *keys[1]}), keys
        return found

    def _fed(self, side: int) -> set[Hashable]:
        """Return what feeds the inputs of a loop."""
        places = range(len(self._sides[side].slots))
        return {self._feed(side, place) for place in places if self._is_input(side, place)}

    def _colour(self, side: int, place: int, shared: set[Hashable]) -> bytes:
        """Return the first colour of a slot: of its pair; of what feeds it, for shared inputs."""
        feed, pair = self._feed(side, place), self._known[side].get(place)
        colour: Hashable = (self._shape(side, place), feed)
        if self._is_input(side, place) and feed in shared:
            colour = self._kind(side, place), feed
        elif pair is not None:
            colour = ("pair", pair)
        number = self._numbers.setdefault(colour, len(self._numbers))
        return self._sides[side].step.sameness.key("colour", number)

    def _is_input(self, side: int, place: int) -> Hashable:
        """``True`` if the loop only reads the slot."""
        return self._sides[side].slots[place].outer_output is None or None

    def _kind(self, side: int, place: int) -> Hashable:
        return self._sides[side].kinds[place]

    def _shape(self, side: int, place: int) -> Hashable:
        return self._kind(side, place), self._sides[side].types[place]

    def _port(self, side: int, place: int) -> Hashable:
        return self._sides[side].ports[place]

    def _name(self, side: int, place: int) -> Hashable:
        return self._sides[side].names[place]

    def _role(self, side: int, place: int) -> Hashable:
        return self._sides[side].roles[place]

    def _feed(self, side: int, place: int) -> Hashable:
        return self._sides[side].feeds[place]

    def _readers(self, side: int, place: int) -> Hashable:
        return self._sides[side].readers[place]
