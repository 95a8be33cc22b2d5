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
from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property

from pytensor.graph.basic import Apply, Constant, Variable

from scanopt_cli.diff.matching.indexed_graph import SharedKeys
from scanopt_cli.diff.matching.pairing import Keys, Pairs, pair_up
from scanopt_cli.equivalence.loop_forms import StepDigests
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
        self.step = StepDigests(terms.side.sameness, view.slots, view.op.fgraph.toposort(), None)
        self.kinds = [(slot.kind, slot.taps, slot.out_taps) for slot in self.slots]
        # ``True`` for the slots that the loop only reads.
        self.are_inputs = [slot.outer_output is None or None for slot in self.slots]

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
    def shapes(self) -> list[Hashable]:
        """The kind and the types of each slot."""
        return list(zip(self.kinds, self.types, strict=True))

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

    def _evidence(self) -> Iterator[tuple[Keys, bool]]:
        """Yield keys to pair slots by, the surest first, and whether equal ones pair in order."""
        ours, theirs = self._sides
        if self._is_one_op:
            yield (ours.ports, theirs.ports), False
        are_inputs = ours.are_inputs, theirs.are_inputs
        kinds, feeds = (ours.kinds, theirs.kinds), (ours.feeds, theirs.feeds)
        names = ours.names, theirs.names
        yield self._joined(kinds, names, feeds), False
        # Inputs of one kind that are fed the same have the same values.
        yield self._joined(are_inputs, kinds, feeds), True
        yield self._joined(are_inputs, kinds, names), False
        rounds = self._rounds()
        for updates in reversed(rounds):
            yield self._joined(kinds, feeds, updates), False
        for updates in reversed(rounds):
            yield self._joined(kinds, updates), False
        yield self._joined(kinds, (ours.readers, theirs.readers)), False
        yield self._joined(kinds, feeds), False
        yield names, False
        yield self._joined(kinds, (ours.roles, theirs.roles)), True

    def _joined(self, *parts: Keys) -> Keys:
        """Return keys of several parts, ``None`` if one is; for equal loops, with the ports."""
        if self._is_one_op:
            parts = (*parts, (self._sides[0].ports, self._sides[1].ports))
        return [
            [None if None in keys else keys for keys in zip(*columns, strict=True)]
            for columns in zip(*parts, strict=True)
        ]

    def _pair(self, keys: Keys, repeats: bool) -> bool:
        """Pair slots whose key is unique on both sides; return whether there were any.

        With ``repeats``, also slots of equal keys in order.
        """
        pairs = pair_up(self._unpaired(keys), repeats=repeats)
        self._known[0].update(pairs)
        self._known[1].update((second, second) for _, second in pairs)
        return bool(pairs)

    def _pair_remaining(self) -> None:
        """Pair unpaired slots of one kind and type in order, if both Scans have as many of them."""
        shapes = self._unpaired([side.shapes for side in self._sides])
        counted = [[(shape, column.count(shape)) for shape in column] for column in shapes]
        self._pair(counted, repeats=True)

    def _unpaired(self, keys: Keys) -> list[list[Hashable]]:
        """Return keys without those of slots that are in a pair."""
        return [
            [None if place in known else key for place, key in enumerate(column)]
            for column, known in zip(keys, self._known, strict=True)
        ]

    def _rounds(self) -> list[Keys]:
        """Refine both loops from the pairs so far; return the keys of the updates in each round."""
        fed = [
            {feed for feed, is_input in zip(side.feeds, side.are_inputs, strict=True) if is_input}
            for side in self._sides
        ]
        colours = [self._colours(side, fed[0] & fed[1]) for side in (0, 1)]
        found: list[Keys] = []
        classes = 0
        while len(found) < _ROUNDS and self._walks < _WALKS:
            self._walks += 1
            updates, keys = [], []
            for side, known in zip(self._sides, colours, strict=True):
                of = side.step.digests(known).of
                updates.append([tuple(map(of, slot.inner_outputs)) or None for slot in side.slots])
                keys.append(side.step.updates(known))
            found.append((updates[0], updates[1]))
            if len({*keys[0], *keys[1]}) == classes:
                break
            classes, colours = len({*keys[0], *keys[1]}), keys
        return found

    def _colours(self, side: int, shared: set[Hashable]) -> list[bytes]:
        """Return the first colours of slots: of their pairs; of what feeds them, if ``shared``."""
        here, pairs = self._sides[side], self._known[side]
        found: list[Hashable] = list(zip(here.shapes, here.feeds, strict=True))
        for place, feed in enumerate(here.feeds):
            if here.are_inputs[place] and feed in shared:
                found[place] = here.kinds[place], feed
            elif place in pairs:
                found[place] = "pair", pairs[place]
        numbers = [self._numbers.setdefault(colour, len(self._numbers)) for colour in found]
        return [here.step.sameness.key("colour", number) for number in numbers]
