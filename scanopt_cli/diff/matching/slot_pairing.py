"""Pairs the slots of one Scan with those of another, by the strongest evidence first.

Inputs of the loop come first, since what feeds them is known. Then a state is identified by what a
step computes for it from the slots paired so far. Every new pair helps to distinguish the remaining
slots: two states with equal feeds and equal updates separate as soon as what they read does. Where
a changed body leaves no exact match, a slot is identified by its surroundings.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from pytensor.graph.basic import Apply

from scanopt_cli.diff.matching.indexed_graph import Pairs
from scanopt_cli.diff.matching.numbering import Numbers
from scanopt_cli.diff.matching.pairing import pair_up
from scanopt_cli.diff.matching.slot_features import Witness
from scanopt_cli.diff.matching.terms import SharedTerms

# The most walks over the bodies: for many states that separate only one by one, the time would
# otherwise be quadratic.
_LOOKS = 50


def pair_slots(ours: SharedTerms, theirs: SharedTerms, node: Apply, other: Apply) -> Pairs:
    """Pair the slots of two Scans, each given by its place in the list of its view.

    If the two Scans compute the same whatever feeds them, all slots are paired, each with one that
    has the same part in the loop.
    """
    is_one_op = ours.side.op_digest(node.op) == theirs.side.op_digest(other.op)
    return _Pairing(Witness(ours, node), Witness(theirs, other), is_one_op=is_one_op).run()


class _Pairing:
    """The pairs so far. In all methods a slot is a side, 0 or 1, and a place on that side."""

    def __init__(self, here: Witness, there: Witness, *, is_one_op: bool) -> None:
        self._witnesses = here, there
        self._is_one_op = is_one_op
        self._numbers = Numbers()
        self._looks = 0
        # For each side, the pair that each slot is in, identified by its place on the second side.
        self._known: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self._updates: tuple[list[Hashable], list[Hashable]] | None = None

    def run(self) -> Pairs:
        if self._is_one_op:
            self._pair(_anything)
        while self._is_incomplete() and any(
            self._pair(evidence, repeats=repeats) for evidence, repeats in _EVIDENCE
        ):
            pass
        if self._is_incomplete():
            self._pair_remaining()
        return sorted(self._known[0].items())

    def _is_incomplete(self) -> bool:
        return all(len(self._known[0]) < len(witness.slots) for witness in self._witnesses)

    def _pair(self, evidence: _Evidence, *, repeats: bool = False) -> bool:
        """Pair unpaired slots of equal ``evidence``; return whether there were any.

        The evidence has to be unique on its side, unless ``repeats`` pairs equal slots in order.
        """
        unpaired, others = self._unpaired()

        def key_on(side: int) -> Callable[[int], Hashable]:
            ports = self._witnesses[side].ports

            def of(place: int) -> Hashable:
                found = evidence(self, side, place)
                if found is None or not self._is_one_op:
                    return found
                return ports[place], found

            return of

        pairs = pair_up(unpaired, others, (key_on(0), key_on(1)), repeats=repeats)
        self._add([(unpaired[first], others[second]) for first, second in pairs])
        return bool(pairs)

    def _pair_remaining(self) -> None:
        """Pair unpaired slots of one kind and type in order, if both Scans have as many of them."""
        unpaired = self._unpaired()
        shapes = [[self.shape(side, place) for place in unpaired[side]] for side in (0, 1)]
        counted, others = ([(shape, known.count(shape)) for shape in known] for known in shapes)
        pairs = pair_up(counted, others, (lambda key: key, lambda key: key), repeats=True)
        self._add([(unpaired[0][first], unpaired[1][second]) for first, second in pairs])

    def _add(self, pairs: Pairs) -> None:
        if pairs:
            self._known[0].update(pairs)
            self._known[1].update((second, second) for _, second in pairs)
            self._updates = None

    def _unpaired(self) -> tuple[list[int], list[int]]:
        first, second = (
            [place for place in range(len(witness.slots)) if place not in known]
            for witness, known in zip(self._witnesses, self._known, strict=True)
        )
        return first, second

    def is_input(self, side: int, place: int) -> bool:
        """Whether the loop only reads the slot."""
        return self._witnesses[side].slots[place].outer_output is None

    def kind(self, side: int, place: int) -> tuple[Hashable, ...]:
        """Return the kind and taps of the slot."""
        slot = self._witnesses[side].slots[place]
        return slot.kind, slot.taps, slot.out_taps

    def shape(self, side: int, place: int) -> Hashable:
        """Return the kind, taps and types of the slot, which many slots may share."""
        return *self.kind(side, place), self._witnesses[side].types[place]

    def name(self, side: int, place: int) -> str | None:
        return self._witnesses[side].names[place]

    def source(self, side: int, place: int) -> Hashable:
        """Return the key of what feeds the slot."""
        return self._witnesses[side].sources[place]

    def role(self, side: int, place: int) -> Hashable:
        """Return the surroundings of the slot in the body."""
        return self._witnesses[side].roles[place]

    def readers(self, side: int, place: int) -> Hashable:
        """Return the readers of the slot's result."""
        return self._witnesses[side].readers[place]

    def needs(self, side: int, place: int) -> Hashable:
        """Return the pairs that a step needs to compute the slot."""
        known = self._known[side]
        return frozenset(known[p] for p in self._witnesses[side].needs[place] if p in known)

    def update(self, side: int, place: int) -> Hashable:
        """Return the key of what a step computes for the slot, from the colours of all slots."""
        if self._updates is None:
            self._looks += 1
            if self._looks > _LOOKS:
                return None
            shared = self._sources(0) & self._sources(1)
            first, second = (
                witness.updates(
                    self._numbers,
                    [self._colour(side, p, shared) for p in range(len(witness.slots))],
                )
                for side, witness in enumerate(self._witnesses)
            )
            self._updates = first, second
        return self._updates[side][place]

    def _sources(self, side: int) -> set[Hashable]:
        places = range(len(self._witnesses[side].slots))
        return {self.source(side, place) for place in places if self.is_input(side, place)}

    def _colour(self, side: int, place: int, shared: set[Hashable]) -> Hashable:
        """Return the colour of a slot: an input's feed, else its pair, else its shape and feed."""
        source = self.source(side, place)
        if self.is_input(side, place) and source in shared:
            return self.kind(side, place), source
        pair = self._known[side].get(place)
        return ("pair", pair) if pair is not None else (self.shape(side, place), source)


type _Evidence = Callable[[_Pairing, int, int], Hashable]


def _anything(*_: object) -> bool:
    return True


def _of_inputs(*parts: _Evidence) -> _Evidence:
    return _joined(parts, True)


def _of_results(*parts: _Evidence) -> _Evidence:
    return _joined(parts, False)


def _joined(parts: Sequence[_Evidence], inputs: bool) -> _Evidence:
    """Combine kinds of evidence, for inputs or for results only; ``None`` if one is ``None``."""

    def evidence(pairing: _Pairing, side: int, place: int) -> Hashable:
        if pairing.is_input(side, place) is not inputs:
            return None
        keys = [part(pairing, side, place) for part in parts]
        return None if None in keys else tuple(keys)

    return evidence


_P = _Pairing
_EVIDENCE: tuple[tuple[_Evidence, bool], ...] = (
    (_of_inputs(_P.kind, _P.name, _P.source), False),
    (_of_inputs(_P.kind, _P.source, _P.role), False),
    (_of_inputs(_P.kind, _P.source), False),
    # Inputs of one kind that are fed the same have the same values.
    (_of_inputs(_P.kind, _P.source), True),
    (_of_inputs(_P.kind, _P.name), False),
    (_of_results(_P.kind, _P.name, _P.source), False),
    (_of_results(_P.kind, _P.source, _P.update), False),
    (_of_results(_P.kind, _P.update), False),
    (_of_results(_P.kind, _P.source, _P.update, _P.readers), False),
    (_of_results(_P.kind, _P.update, _P.readers), False),
    # States with equal initial rows and equal updates, as far as the loop is known.
    (_of_results(_P.kind, _P.source, _P.update), True),
    (_of_results(_P.kind, _P.source, _P.readers), False),
    (_of_results(_P.kind, _P.source, _P.role), False),
    (_of_results(_P.kind, _P.source), False),
    (_of_results(_P.kind, _P.name), False),
    (_of_results(_P.kind, _P.role), False),
    (_of_results(_P.kind, _P.needs), False),
    (_of_inputs(_P.kind, _P.role), False),
    (_of_inputs(_P.name), False),
    (_of_results(_P.name), False),
    (_of_inputs(_P.kind, _P.role), True),
    (_of_results(_P.kind, _P.role), True),
)
"""Kinds of evidence, the strongest first, and whether each also pairs equal slots in order."""
