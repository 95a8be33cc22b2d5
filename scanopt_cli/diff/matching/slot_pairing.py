"""Pairs the slots of one loop with those of another by partition refinement.

Both loops are refined together, as `scanopt_cli.equivalence.loop_forms` refines one: slots begin
with colours, what a step computes for them from slots of these colours splits the colours, and so
on. Two slots of one colour are a pair if each is the only slot of that colour in its loop. If a
body changed, so did the colours of all slots that depend on the change, some rounds later.
Therefore the colours of every round count, those of late rounds before those of early ones. Pairs
have colours of their own, so every pair helps to distinguish the other slots.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping
from functools import cached_property

from pytensor.graph.basic import Apply, Variable

from scanopt_cli.diff.matching.correspondence import Matching
from scanopt_cli.diff.matching.indexed_graph import IndexedGraph
from scanopt_cli.diff.matching.pairing import Pairs, pair_up
from scanopt_cli.equivalence.loop_forms import BodyDigests
from scanopt_cli.ir.naming import slot_name
from scanopt_cli.ir.slots import Slot, SlotKind

# The most rounds from one set of pairs, and the most walks over the bodies in all: for many states
# that separate only one by one, the time would otherwise be quadratic.
_ROUNDS = 8
_WALKS = 50
# How many readers of a result are examined, and how many readers of readers: the steps of a state,
# their last row, and what that is for.
_READERS = 8
_DEPTH = 3


def pair_slots(matching: Matching, node: Apply, other: Apply) -> Pairs:
    """Pair the slots of two loops, each given by its position in the list of its view.

    If the two loops compute the same whatever feeds them, all slots are paired, each with one that
    it can be interchanged with: of the same signature.
    """
    loops = _Loop(matching, matching.before, node), _Loop(matching, matching.after, other)
    return _Pairing(*loops, is_one_op=matching.same_op(node, other)).run()


class _Loop:
    """One of the two loops."""

    def __init__(self, matching: Matching, graph: IndexedGraph, node: Apply) -> None:
        self.matching, self.graph = matching, graph
        self._view = graph.view(node)
        slots = zip(self._view.slots, graph.form(node).signatures, strict=True)
        self.slots = [_ComparedSlot(self, position, *slot) for position, slot in enumerate(slots)]

    @cached_property
    def body(self) -> BodyDigests:
        return BodyDigests.of_view(self.graph.sameness, self._view)

    @property
    def unpaired(self) -> list[_ComparedSlot]:
        return [slot for slot in self.slots if slot.partner_position is None]

    @cached_property
    def readers_inside(self) -> Mapping[Variable, Counter[tuple[bytes, int]]]:
        """Which Ops of the body read each inner input, and where."""
        readers: dict[Variable, Counter[tuple[bytes, int]]] = defaultdict(Counter)
        for node in self.body.nodes:
            for position, variable in enumerate(node.inputs):
                if variable.owner is None:
                    readers[variable][self.graph.op_digest(node.op), position] += 1
        return readers

    def makers_inside(self, variable: Variable) -> tuple[bytes, ...]:
        """Return the digests of the Op that makes an inner output and of those behind it."""
        if variable.owner is None:
            return ()
        behind = [part.owner for part in variable.owner.inputs if part.owner is not None]
        return tuple(self.graph.op_digest(maker.op) for maker in (variable.owner, *behind))

    def readers(self, variable: Variable, depth: int = _DEPTH) -> Hashable:
        """Return what reads an output of the loop, and what reads these; ``None`` if nothing."""
        graph = self.graph
        found: set[Hashable] = {
            ("output", position) for position in graph.output_positions.get(variable, ())
        }
        for node, position in graph.readers.get(variable, ())[:_READERS]:
            pair = self.matching.pairs.get(node)
            if pair is not None:
                found.add((pair.other, position))
                continue
            constants = graph.constants_read(node)
            then = self.readers(node.outputs[0], depth - 1) if depth > 1 else None
            found.add((graph.op_digest(node.op), position, constants, then))
        return frozenset(found) or None


class _ComparedSlot:
    """A slot, and what it is compared with other slots by; ``None`` says nothing.

    Slots of one ``signature`` are interchangeable. ``partner_position`` identifies the pair that it
    is in: the position of the slot after.
    """

    def __init__(self, loop: _Loop, position: int, slot: Slot, signature: bytes) -> None:
        self._loop, self.position, self.slot, self.signature = loop, position, slot, signature
        self.partner_position: int | None = None
        self.structure = slot.kind, slot.taps, slot.out_taps
        # Slots with outputs are not compared as inputs: a key with ``None`` pairs nothing.
        self.is_input = True if slot.outer_output is None else None

    @cached_property
    def shape(self) -> Hashable:
        """The kind, and the types of what a step first reads of the slot and computes for it."""
        variables = (*self.slot.inner_inputs[:1], *self.slot.inner_outputs[:1])
        return self.structure, tuple(str(variable.type) for variable in variables)

    @cached_property
    def name(self) -> str | None:
        """The name without its number, if it has a name of its own."""
        name = slot_name(self.slot, lambda v: self._loop.graph.readers.get(v, ()))
        return None if name == self.slot.label else name

    @cached_property
    def feed(self) -> Hashable:
        """The key of what feeds the slot; a length says nothing."""
        slot, matching = self.slot, self._loop.matching
        says_something = slot.has_input and slot.kind is not SlotKind.NIT_SOT
        return matching.key(self._loop.graph, slot.outer_input) if says_something else None

    @cached_property
    def role(self) -> Hashable:
        """The shape, which Ops of the body read the slot, and which make its next value."""
        readers, makers = self._loop.readers_inside, self._loop.makers_inside
        return (
            self.shape,
            tuple(frozenset(readers.get(v, {}).items()) for v in self.slot.inner_inputs),
            tuple(map(makers, self.slot.inner_outputs)),
        )

    @cached_property
    def readers(self) -> Hashable:
        """The readers of the slot's result, and their readers."""
        output = self.slot.outer_output
        return None if output is None else self._loop.readers(output)


type _Compared = Callable[[_ComparedSlot], tuple[Hashable, ...]]
type _Updates = Mapping[_ComparedSlot, Hashable]


class _Pairing:
    """Pairs slots by the surest evidence that there is, and starts again after each that helped."""

    def __init__(self, loop: _Loop, other: _Loop, *, is_one_op: bool) -> None:
        self._loops = loop, other
        self._is_one_op = is_one_op
        self._colours: dict[Hashable, int] = {}
        self._walks = 0

    def run(self) -> Pairs:
        while self._is_incomplete() and self._pair_by_surest():
            pass
        if self._is_incomplete():
            self._pair_remaining()
        return [
            (s.position, s.partner_position)
            for s in self._loops[0].slots
            if s.partner_position is not None
        ]

    def _is_incomplete(self) -> bool:
        return all(loop.unpaired for loop in self._loops)

    def _pair_by_surest(self) -> bool:
        """Pair slots by the surest evidence that pairs any; return whether there is such."""
        return (
            (self._is_one_op and self._pair(lambda slot: (slot.signature,)))
            or self._pair(lambda slot: (slot.structure, slot.name, slot.feed))
            # Inputs of one kind that are fed the same have the same values.
            or self._pair(lambda slot: (slot.is_input, slot.structure, slot.feed), in_order=True)
            or self._pair(lambda slot: (slot.is_input, slot.structure, slot.name))
            or self._pair_by_updates()
            or self._pair(lambda slot: (slot.structure, slot.readers))
            or self._pair(lambda slot: (slot.structure, slot.feed))
            or self._pair(lambda slot: (slot.name,))
            or self._pair(lambda slot: (slot.role,), in_order=True)
        )

    def _pair_by_updates(self) -> bool:
        """Pair by what a step computes, in late rounds of the refinement before early ones."""

        def pair_by(updates: _Updates, *, by_feed: bool) -> bool:
            return self._pair(lambda s: (s.structure, s.feed if by_feed else (), updates[s]))

        rounds = self._rounds()[::-1]
        return any(pair_by(updates, by_feed=True) for updates in rounds) or any(
            pair_by(updates, by_feed=False) for updates in rounds
        )

    def _pair(self, compared: _Compared, *, in_order: bool = False) -> bool:
        """Pair slots whose ``compared`` values are unique on both sides, and none of them ``None``.

        Slots of equal loops must also have the same signature. With ``in_order``, slots of equal
        values are paired in order. Return whether any are.
        """

        def key(slot: _ComparedSlot) -> Hashable:
            parts = compared(slot)
            return None if None in parts else (parts, slot.signature if self._is_one_op else None)

        loops = [loop.unpaired for loop in self._loops]
        pairs = pair_up([list(map(key, loop)) for loop in loops], repeats=in_order)
        for position, other in pairs:
            slot, partner = loops[0][position], loops[1][other]
            slot.partner_position = partner.partner_position = partner.position
        return bool(pairs)

    def _pair_remaining(self) -> None:
        """Pair unpaired slots of one kind and type in order, if both loops have as many of them."""
        counts = [Counter(slot.shape for slot in loop.unpaired) for loop in self._loops]
        common = {shape for shape, count in counts[0].items() if count == counts[1][shape]}
        self._pair(lambda s: (s.shape if s.shape in common else None,), in_order=True)

    def _rounds(self) -> list[_Updates]:
        """Refine both loops from the pairs so far; return the slots' updates in each round."""
        colours = self._first_colours()
        found: list[_Updates] = []
        n_classes = 0
        while len(found) < _ROUNDS and self._walks < _WALKS:
            self._walks += 1
            updates: dict[_ComparedSlot, Hashable] = {}
            refined = []
            for loop, known in zip(self._loops, colours, strict=True):
                of = loop.body.digests(known).of
                updates |= {s: tuple(map(of, s.slot.inner_outputs)) or None for s in loop.slots}
                refined.append(loop.body.signatures(known))
            found.append(updates)
            if len({*refined[0], *refined[1]}) == n_classes:
                break
            n_classes, colours = len({*refined[0], *refined[1]}), refined
        return found

    def _first_colours(self) -> list[list[bytes]]:
        """Return the initial colours of slots: by their pair, by a shared feed, or by type."""
        feeds = ({slot.feed for slot in loop.slots if slot.is_input} for loop in self._loops)
        shared = set.intersection(*feeds)

        def colour(slot: _ComparedSlot) -> Hashable:
            if slot.is_input and slot.feed in shared:
                return slot.structure, slot.feed
            if slot.partner_position is not None:
                return "pair", slot.partner_position
            return slot.shape, slot.feed

        def key(loop: _Loop, slot: _ComparedSlot) -> bytes:
            number = self._colours.setdefault(colour(slot), len(self._colours))
            return loop.graph.sameness.key("colour", number)

        return [[key(loop, slot) for slot in loop.slots] for loop in self._loops]
