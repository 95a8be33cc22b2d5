"""The canonical form of a loop: its slots told by what they are, not by where they stand.

Slots start with a colour (their kind, taps and types, and what feeds them). A round looks at what
a step computes for each slot from inputs of these colours; slots of one colour that are updated
otherwise get colours of their own. When a round tells nothing apart any more, slots of one colour
start equal and are updated equally, so they have equal values at every step, as in the partition
refinement that minimises automata (Hopcroft, 1971). Two loops with equal sets of colours are a
bijection of such slots.

`loop_form` does this for the loop alone, where nothing feeds the slots. There a slot is also told
by who reads it, so that in most loops no two slots have one colour, and an order by colours is the
canonical order of the slots, whatever they are fed. Only where slots remain that nothing but their
feeds can tell apart, a loop is looked into again where it is applied.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import io_toposort
from pytensor.scan.op import Scan

from scanopt_cli.equivalence.uses import Uses
from scanopt_cli.ir.scan_view import InnerSlot, ScanView, Slot, inner_condition, inner_slots

if TYPE_CHECKING:
    from scanopt_cli.equivalence.canonical import Digests
    from scanopt_cli.equivalence.sameness import Sameness

# How many nodes of a body the rounds look at together, and how many rounds there are at least.
_LOOKED_AT = 10_000
_FEW_ROUNDS = 16
# So many rounds count as one look at a loop: most loops need no more.
_FREE_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class LoopForm:
    """The canonical form of a loop that is not applied to anything.

    Attributes
    ----------
    key
        What the loop computes from whatever it is fed.
    ports
        What tells each slot from the others, in the view's order of slots.
    ranks
        The place of each slot in the canonical order.
    has_ties
        Whether some slots have one port: only what feeds them can tell them apart.
    size
        The number of nodes in the body.
    """

    key: bytes
    ports: tuple[bytes, ...]
    ranks: tuple[int, ...]
    has_ties: bool
    size: int


@dataclass(frozen=True, slots=True)
class Trajectory:
    """What a slot of an applied loop is, step by step.

    Slots with equal ``values`` are of one kind, are fed equally and have equal values at every
    step; those with equal ``updates`` compute the same in every step, whatever they start with.
    """

    values: bytes
    updates: tuple[bytes, ...]


class Step:
    """What a step of a loop computes from inputs of given colours."""

    def __init__(
        self,
        sameness: Sameness,
        slots: Sequence[InnerSlot],
        nodes: Sequence[Apply],
        stop: Variable | None,
    ) -> None:
        self.sameness, self.slots, self.nodes, self.stop = sameness, slots, nodes, stop
        self._last: tuple[list[bytes], Digests] | None = None

    def digests(self, colours: Sequence[bytes]) -> Digests:
        """Tell everything that a step computes."""
        from scanopt_cli.equivalence.canonical import Digests

        if self._last is not None and self._last[0] == colours:
            return self._last[1]
        key = self.sameness.key
        given = {
            variable: key("tap", colour, tap)
            for slot, colour in zip(self.slots, colours, strict=True)
            for tap, variable in enumerate(slot.inner_inputs)
        }
        digests = Digests.given(self.sameness, given)
        self.sameness.depth += 1
        for node in self.nodes:
            digests.add(node)
        self.sameness.depth -= 1
        self._last = (list(colours), digests)
        return digests

    def updates(self, colours: Sequence[bytes]) -> list[bytes]:
        """Tell each slot by its colour and by what a step computes for it."""
        digests = self.digests(colours)
        return [
            self.sameness.key("slot", colour, [digests.of(v) for v in slot.inner_outputs])
            for slot, colour in zip(self.slots, colours, strict=True)
        ]

    def condition(self, colours: Sequence[bytes]) -> bytes | None:
        """Tell when the loop stops."""
        return None if self.stop is None else self.digests(colours).of(self.stop)


def loop_form(sameness: Sameness, op: Scan) -> LoopForm:
    """Return the canonical form of ``op``."""
    slots = inner_slots(op)
    step = Step(sameness, slots, op.fgraph.toposort(), inner_condition(op))
    uses = Uses(step)
    patience = _Patience(step)
    starts = [sameness.key("slot", *_shape(slot)) for slot in slots]
    colours, told = _refine(step, uses.of_slots, starts, patience)
    ports = tuple(told)
    while repeated := [colour for colour, count in Counter(colours).items() if count > 1]:
        # Nothing tells them apart, so it does not matter which of them comes first.
        chosen, number = {min(repeated)} if patience.lasts() else set(repeated), 0
        for place, colour in enumerate(colours):
            if colour in chosen:
                colours[place] = sameness.key("told apart", colour, number)
                number += 1
        colours, told = _refine(step, uses.of_slots, colours, patience)
    order = sorted(range(len(slots)), key=told.__getitem__)
    rank = {place: rank for rank, place in enumerate(order)}
    return LoopForm(
        key=sameness.key("loop", *_frame(op), step.condition(colours), sorted(told)),
        ports=ports,
        ranks=tuple(rank[place] for place in range(len(slots))),
        has_ties=len(set(ports)) < len(ports),
        size=len(step.nodes),
    )


def output_keys(digests: Digests, view: ScanView) -> dict[Variable, bytes]:
    """Tell each output of an applied loop."""
    sameness = digests.sameness
    key, form = sameness.key, sameness.form(view.op)
    told: Sequence[object] = form.ranks
    feeds: object = [digests.of(view.slots[place].outer_input) for place in _places(form.ranks)]
    if form.has_ties and (not sameness.depth or sameness.may_look_into(form.size)):
        step, colours, told = _refined(digests, view)
        feeds = (step.condition(colours), sorted(told))
    whole = key(
        "applied loop",
        form.key if told is form.ranks else _frame(view.op),
        view.op.name if sameness.names else None,
        view.batch_ndim,
        digests.of(view.n_steps),
        feeds,
    )
    return {
        slot.outer_output: key("output", whole, mark)
        for slot, mark in zip(view.slots, told, strict=True)
        if slot.outer_output is not None
    }


def trajectories(digests: Digests, view: ScanView) -> dict[Slot, Trajectory]:
    """Tell every slot of an applied loop by the values that it has, step by step."""
    step, colours, told = _refined(digests, view)
    inside = step.digests(colours)
    return {
        slot: Trajectory(values, tuple(inside.of(variable) for variable in slot.inner_outputs))
        for slot, values in zip(view.slots, told, strict=True)
    }


def condition_key(digests: Digests, view: ScanView) -> bytes:
    """Tell when an applied while-loop stops: a loop of the slots that its condition needs."""
    assert view.condition is not None
    slots, nodes = _needed(view, view.condition)
    step = Step(digests.sameness, slots, nodes, view.condition)
    colours, told = _refine(step, step.updates, _starts(digests, slots))
    return digests.sameness.key("stop", view.batch_ndim, step.condition(colours), sorted(told))


def _refined(digests: Digests, view: ScanView) -> tuple[Step, list[bytes], list[bytes]]:
    step = Step(digests.sameness, view.slots, view.op.fgraph.toposort(), view.condition)
    return step, *_refine(step, step.updates, _starts(digests, view.slots))


class _Patience:
    """How often a body is looked at before slots are told apart by their places.

    A body with many slots that come apart one by one would take time that grows with its square.
    To tell by places says too often that things differ, never that they do not.
    """

    def __init__(self, step: Step) -> None:
        # To tell a slot costs as much as a few nodes.
        self._sameness, self._size = step.sameness, len(step.nodes) + 4 * len(step.slots) + 1
        self._rounds = max(_FEW_ROUNDS, _LOOKED_AT // self._size)
        self._free = _FREE_ROUNDS

    def lasts(self) -> bool:
        """Take one round; whether there is another one."""
        self._rounds -= 1
        self._free -= 1
        return self._rounds > 0 and (self._free >= 0 or self._sameness.may_look_into(self._size))


def _refine(
    step: Step,
    look: Callable[[Sequence[bytes]], list[bytes]],
    colours: list[bytes],
    patience: _Patience | None = None,
) -> tuple[list[bytes], list[bytes]]:
    """Split colours until ``look`` tells nothing apart any more; return them, and what it told.

    Each round but the last makes one more colour at least, so it ends.
    """
    patience = patience or _Patience(step)
    while True:
        told = look(colours)
        seen: dict[bytes, set[bytes]] = defaultdict(set)
        for colour, mark in zip(colours, told, strict=True):
            seen[colour].add(mark)
        if all(len(marks) == 1 for marks in seen.values()):
            return colours, told
        if patience.lasts():
            colours = [
                mark if len(seen[colour]) > 1 else colour
                for colour, mark in zip(colours, told, strict=True)
            ]
        else:
            colours = [
                step.sameness.key("place", colour, place) for place, colour in enumerate(colours)
            ]


def _starts(digests: Digests, slots: Sequence[Slot]) -> list[bytes]:
    key = digests.sameness.key
    return [key("fed slot", *_shape(slot), digests.of(slot.outer_input)) for slot in slots]


def _shape(slot: InnerSlot) -> tuple[object, ...]:
    types = [variable.type for variable in (*slot.inner_inputs, *slot.inner_outputs)]
    return slot.kind.value, slot.taps, slot.out_taps, types


def _frame(op: Scan) -> tuple[object, ...]:
    """What a Scan is besides its slots and its body."""
    return op.truncate_gradient, op.destroy_map, op.info.as_while


def _places(ranks: Sequence[int]) -> list[int]:
    return sorted(range(len(ranks)), key=ranks.__getitem__)


def _needed(view: ScanView, target: Variable) -> tuple[list[Slot], list[Apply]]:
    """Return the slots and the nodes of a body that ``target`` needs, from step to step."""
    body = view.op.fgraph
    reader = {variable: slot for slot in view.slots for variable in slot.inner_inputs}
    needed: dict[Slot, None] = {}
    outputs, nodes = [target], io_toposort(body.inputs, [target])
    while True:
        read = [v for node in nodes for v in node.inputs] + outputs
        found = dict.fromkeys(reader[variable] for variable in read if variable in reader)
        if found.keys() <= needed.keys():
            return [slot for slot in view.slots if slot in needed], nodes
        needed.update(found)
        outputs = [target, *(v for slot in needed for v in slot.inner_outputs)]
        nodes = io_toposort(body.inputs, outputs)
