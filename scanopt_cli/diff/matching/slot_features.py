"""Evidence about the slots of one Scan, for pairing them with those of another.

All evidence consists of keys that both sides share, so it can be compared. What a step computes is
described from *colours* of the slots: the keys that they have so far.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property

from pytensor.graph.basic import Apply, Constant, Variable

from scanopt_cli.diff.matching.indexed_graph import IndexedGraph
from scanopt_cli.diff.matching.numbering import Numbers, output_mark
from scanopt_cli.diff.matching.terms import SharedTerms
from scanopt_cli.ir.naming import slot_name
from scanopt_cli.ir.scan_view import ScanView, SlotKind

# How many readers of a result are examined.
_READERS = 8


class Witness:
    """Evidence about the slots of one Scan node, by their places in its view."""

    def __init__(self, terms: SharedTerms, node: Apply) -> None:
        self._terms = terms
        self._side = terms.side
        self._view: ScanView = terms.side.view(node)
        self.slots = self._view.slots
        self.ports: Sequence[bytes] = terms.side.form(node).ports
        self._nodes = self._view.op.fgraph.toposort()

    @cached_property
    def names(self) -> list[str | None]:
        """The name of each slot without its number; ``None`` if it is only the default label."""
        names = [slot_name(slot, self._clients) for slot in self.slots]
        return [
            None if name == slot.label else name
            for name, slot in zip(names, self.slots, strict=True)
        ]

    @cached_property
    def sources(self) -> list[Hashable]:
        """The key of what feeds each slot; ``None`` for a nit_sot, whose length says nothing."""
        return [
            None if slot.kind is SlotKind.NIT_SOT else self._terms.token(slot.outer_input)
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
        side = self._side
        readers: dict[Variable, Counter[tuple[bytes, int]]] = defaultdict(Counter)
        for node in self._nodes:
            for place, variable in enumerate(node.inputs):
                if variable.owner is None:
                    readers[variable][side.op_digest(node.op), place] += 1
        return [
            (
                types,
                tuple(frozenset(readers[variable].items()) for variable in slot.inner_inputs),
                tuple(_makers(side, variable) for variable in slot.inner_outputs),
            )
            for slot, types in zip(self.slots, self.types, strict=True)
        ]

    @cached_property
    def readers(self) -> list[Hashable]:
        """The readers of each slot's result, and their readers; ``None`` if there are none."""
        return [
            None if slot.outer_output is None else self._read_by(slot.outer_output, 2)
            for slot in self.slots
        ]

    @cached_property
    def needs(self) -> list[tuple[int, ...]]:
        """The places of the slots that a step needs to compute each slot."""
        masks: dict[Variable, int] = {
            variable: 1 << place
            for place, slot in enumerate(self.slots)
            for variable in slot.inner_inputs
        }
        for node in self._nodes:
            mask = 0
            for variable in node.inputs:
                mask |= masks.get(variable, 0)
            masks.update(dict.fromkeys(node.outputs, mask))
        found = []
        for slot in self.slots:
            mask = 0
            for variable in slot.inner_outputs:
                mask |= masks.get(variable, 0)
            found.append(tuple(place for place in range(len(self.slots)) if mask >> place & 1))
        return found

    def updates(self, numbers: Numbers, colours: Sequence[Hashable]) -> list[Hashable]:
        """Return keys of what a step computes for each slot from slots of these ``colours``."""
        known: dict[Variable, Hashable] = {
            variable: (colour, tap)
            for slot, colour in zip(self.slots, colours, strict=True)
            for tap, variable in zip(slot.taps or (0,), slot.inner_inputs, strict=False)
        }
        for variable in self._constants():
            known[variable] = self._side.digest(variable)
        for node in self._nodes:
            number = numbers.number(self._side, node, [known[v] for v in node.inputs])
            for output in node.outputs:
                known[output] = number, output_mark(self._side, output)
        return [tuple(known[variable] for variable in slot.inner_outputs) for slot in self.slots]

    def _constants(self) -> Iterator[Variable]:
        computed = (variable for slot in self.slots for variable in slot.inner_outputs)
        read = (variable for node in self._nodes for variable in node.inputs)
        yield from (v for v in (*computed, *read) if isinstance(v, Constant))

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


def _makers(side: IndexedGraph, variable: Variable) -> tuple[bytes, ...]:
    """Return the digests of the Op that makes ``variable`` and of those that make its inputs."""
    node = variable.owner
    if node is None:
        return ()
    behind = [part.owner for part in node.inputs if part.owner is not None]
    return tuple(side.op_digest(maker.op) for maker in (node, *behind))
