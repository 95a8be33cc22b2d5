"""The canonical form of a loop, which does not depend on the order of its slots.

The form comes from partition refinement, as in the minimisation of automata (Hopcroft, 1971). Each
slot starts with a *colour*: its kind, taps, types and, in a loop that is applied, its outer input.
A round digests what a step computes for each slot from inputs of these colours: that is its
*signature*. A colour whose slots have different signatures is split. For the step ``p = p + x``,
``q = q + x``, ``r = r * q``::

    colours at the start      x: a    p: b    q: b    r: b      three states of one type
    signatures                x: a    p: b+a  q: b+a  r: b*b
    colours after a round     x: a    p: c    q: c    r: d
    signatures                x: a    p: c+a  q: c+a  r: d*c    no colour is split any more

At this fixpoint, slots of one colour start equal and are updated equally, so they have equal values
at every step. If two loops have equal multisets of colours, there is a bijection between their
slots that preserves these values.

`loop_form` refines the Op alone, without the outer inputs of its slots. There a signature also has
the slot's readers in the body (``r`` reads ``q``, and not ``p``), so that in most loops no two
slots share a colour, and sorting by signature gives the canonical order of the slots, whatever
their outer inputs. A loop is refined again where it is applied only if some of its slots differ in
nothing but outer inputs.

If a body applies such a loop, each round would refine that one, and twice as many rounds be made a
level. So a loop is refined at a glance first, where an applied loop counts as what it is fed: that
takes no rounds, and tells no slots apart that are equal. One exact round is left, if the glance
found all there is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import io_toposort

from scanopt_cli.equivalence.definition import Definition, LoopForm
from scanopt_cli.equivalence.digests import Digests
from scanopt_cli.equivalence.operands import commutes
from scanopt_cli.ir.scan_view import inner_condition, inner_slots, loop_op
from scanopt_cli.ir.slots import HasSlots, InnerSlot, Slot, SlotView

# The nodes that all rounds on one body may visit together, and the rounds that any body has.
_LOOKED_AT = 10_000
_FEW_ROUNDS = 16
# Rounds that do not count in `Sameness.may_look_into`: most loops need no more.
_FREE_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Trajectory:
    """Keys of the values and the updates of a slot of an applied loop.

    Slots with equal ``values`` are of one kind and have equal outer inputs and equal values at
    every step; those with equal ``updates`` compute the same in every step, whatever they start
    with.
    """

    values: bytes
    updates: tuple[bytes, ...]


class BodyDigests:
    """Digests what a step of a loop computes from inputs of given colours."""

    def __init__(
        self,
        sameness: Definition,
        slots: Sequence[InnerSlot],
        nodes: Sequence[Apply],
        stop: Variable | None,
    ) -> None:
        self.sameness, self.slots, self.nodes, self.stop = sameness, slots, nodes, stop
        self.at_a_glance = False
        """Whether a loop in the body counts as what it is fed."""
        self._last: tuple[tuple[list[bytes], bool], Digests] | None = None

    @classmethod
    def of_view(cls, sameness: Definition, view: SlotView) -> BodyDigests:
        """Return those of the whole body of a loop."""
        return cls(sameness, view.slots, view.op.fgraph.toposort(), view.condition)

    def digests(self, colours: Sequence[bytes]) -> Digests:
        """Return the digests of everything that a step computes."""
        asked = list(colours), self.at_a_glance
        if self._last is not None and self._last[0] == asked:
            return self._last[1]
        key = self.sameness.key
        given = {
            variable: key("tap", colour, tap)
            for slot, colour in zip(self.slots, colours, strict=True)
            for tap, variable in enumerate(slot.inner_inputs)
        }
        digests = Digests.given(self.sameness, given, at_a_glance=self.at_a_glance)
        self.sameness.depth += 1
        for node in self.nodes:
            digests.add(node)
        self.sameness.depth -= 1
        self._last = (asked, digests)
        return digests

    def signatures(self, colours: Sequence[bytes]) -> list[bytes]:
        """Return a key for each slot: of its colour and of what a step computes for it."""
        digests = self.digests(colours)
        return [
            self.sameness.key("slot", colour, [digests.of(v) for v in slot.inner_outputs])
            for slot, colour in zip(self.slots, colours, strict=True)
        ]

    def refines_loops(self) -> bool:
        """Whether loops in the body are refined where they are applied."""
        loops = (loop for node in self.nodes if (loop := loop_op(node)) is not None)
        return any(self.sameness.form(loop).has_ties for loop in loops)

    def condition(self, colours: Sequence[bytes]) -> bytes | None:
        """Return the digest of the stop condition, ``None`` if there is none."""
        return None if self.stop is None else self.digests(colours).of(self.stop)


def loop_form(sameness: Definition, op: Any) -> LoopForm:
    """Return the canonical form of ``op``."""
    slots = inner_slots(op)
    body = BodyDigests(sameness, slots, op.fgraph.toposort(), inner_condition(op))
    if sameness.in_order:
        return _form_in_order(body, op)
    readers = _SlotReaders(body)
    budget = _RoundBudget(body)
    starts = [sameness.key("slot", *_shape(sameness, slot)) for slot in slots]
    found = _refine(body, starts, readers.signatures, budget)
    signatures = found.signatures
    while repeated := [colour for colour, count in Counter(found.colours).items() if count > 1]:
        # Nothing distinguishes slots of one colour, so it does not matter which comes first.
        chosen, number = {min(repeated)} if budget.lasts() else set(repeated), 0
        for place, colour in enumerate(colours := list(found.colours)):
            if colour in chosen:
                colours[place] = sameness.key("told apart", colour, number)
                number += 1
        found = _refine(body, colours, readers.signatures, budget)
    order = sorted(range(len(slots)), key=found.signatures.__getitem__)
    rank = {place: rank for rank, place in enumerate(order)}
    return LoopForm(
        key=sameness.key("loop", *_frame(op), *found.whole),
        signatures=tuple(signatures),
        ranks=tuple(rank[place] for place in range(len(slots))),
        has_ties=len(set(signatures)) < len(signatures),
        size=len(body.nodes),
    )


def _form_in_order(body: BodyDigests, op: Any) -> LoopForm:
    """Return the form of ``op`` in which its slots are told apart by their places."""
    sameness, key = body.sameness, body.sameness.key
    shapes = [_shape(sameness, slot) for slot in body.slots]
    colours = [key("place", place, *shape) for place, shape in enumerate(shapes)]
    signatures = tuple(body.signatures(colours))
    return LoopForm(
        key=key("loop", *_frame(op), body.condition(colours), signatures),
        signatures=signatures,
        ranks=tuple(range(len(signatures))),
        has_ties=False,
        size=len(body.nodes),
    )


def output_keys(
    sameness: Definition, of: Callable[[Variable], bytes], view: SlotView
) -> dict[Variable, bytes]:
    """Return the key of each output of an applied loop; ``of`` returns those of its inputs."""
    key, form = sameness.key, sameness.form(view.op)
    loop: object
    feeds: object
    marks: Sequence[object]
    if form.has_ties and (not sameness.depth or sameness.may_look_into(form.size)):
        refined = _refined(sameness, of, view)
        loop, feeds, marks = _frame(view.op), refined.whole, refined.signatures
    else:
        outer_inputs = [view.slots[place].outer_input for place in form.order]
        loop, feeds, marks = form.key, list(map(of, outer_inputs)), form.ranks
    whole = key(
        "applied loop",
        loop,
        view.op.name if sameness.names else None,
        view.batch_ndim,
        of(view.n_steps),
        feeds,
    )
    return _of_outputs(sameness, view, whole, marks)


def keys_at_a_glance(
    sameness: Definition, of: Callable[[Variable], bytes], view: SlotView
) -> dict[Variable, bytes]:
    """Return a key of each output of an applied loop, by what its slots are and are fed alone.

    Outputs of different keys have different ones in `output_keys` as well.
    """
    starts, frame = _starts(sameness, of, view.slots), _frame(view.op)
    fed = sameness.key("fed loop", *frame, view.batch_ndim, of(view.n_steps), sorted(starts))
    return _of_outputs(sameness, view, fed, starts)


def _of_outputs(
    sameness: Definition, view: SlotView, whole: bytes, marks: Sequence[object]
) -> dict[Variable, bytes]:
    """Return the key of each output of a loop whose key is ``whole``; ``marks`` are of slots."""
    key = sameness.key
    found = {variable: key("count", whole) for variable in view.counts}
    for slot, mark in zip(view.slots, marks, strict=True):
        if slot.outer_output is not None:
            found[slot.outer_output] = key("output", whole, mark)
        if slot.last is not None:
            found[slot.last] = key("last", whole, mark)
    return found


def trajectories(digests: Digests, view: SlotView) -> dict[Slot, Trajectory]:
    """Return the trajectory of every slot of an applied loop."""
    refined = _refined(digests.sameness, digests.of, view)
    inside = refined.body.digests(refined.colours)
    return {
        slot: Trajectory(values, tuple(map(inside.of, slot.inner_outputs)))
        for slot, values in zip(view.slots, refined.signatures, strict=True)
    }


def condition_key(digests: Digests, view: SlotView) -> bytes:
    """Return the key of when an applied while-loop stops.

    It covers only the slots that the condition needs.
    """
    assert view.condition is not None
    slots, nodes = _needed(view, [view.condition])
    body = BodyDigests(digests.sameness, slots, nodes, view.condition)
    refined = _refine(body, _starts(digests.sameness, digests.of, slots), body.signatures)
    return digests.sameness.key("stop", view.batch_ndim, *refined.whole)


def recursion_key(
    digests: Digests, view: SlotView, states: Sequence[Slot]
) -> tuple[bytes, dict[Slot, bytes]]:
    """Return the key of the values that ``states`` have in each step, and that of each slot.

    It covers only the slots that their updates need, over all steps. In loops with one key, states
    of one key have equal values in each step that both run; of a constant, it is that of what it
    is fed.
    """
    slots, nodes = _needed(view, [v for slot in states for v in slot.inner_outputs])
    body = BodyDigests(digests.sameness, slots, nodes, None)
    refined = _refine(body, _starts(digests.sameness, digests.of, slots), body.signatures)
    key = digests.sameness.key("recursion", view.batch_ndim, *refined.whole)
    return key, dict(zip(slots, refined.signatures, strict=True))


def _refined(sameness: Definition, of: Callable[[Variable], bytes], view: SlotView) -> _Refined:
    """Refine a loop as it is applied."""
    body = BodyDigests.of_view(sameness, view)
    return _refine(body, _starts(sameness, of, view.slots), body.signatures)


class _SlotReaders:
    """Distinguishes the slots of a loop by what a step computes for them and by their readers.

    Readers that compute the same count as one reader, however often the body repeats them.
    """

    def __init__(self, body: BodyDigests) -> None:
        self._body = body
        key = body.sameness.key
        # Slots are identified by place, so only repetitions of one node have equal digests.
        digests = body.digests([key("place", place) for place in range(len(body.slots))])
        self._once = digests.of
        distinct: dict[tuple[bytes, ...], Apply] = {}
        for node in body.nodes:
            # Sorted, since two copies of a loop may list their outputs in different orders.
            distinct.setdefault(tuple(sorted(map(self._once, node.outputs))), node)
        self._nodes = list(distinct.values())

    def signatures(self, colours: Sequence[bytes]) -> list[bytes]:
        """Return a key for each slot: of its colour, its updates and its readers."""
        body, once = self._body, self._once
        key, digests = body.sameness.key, body.digests(colours)
        readers: dict[bytes, set[bytes]] = defaultdict(set)
        for slot, colour in zip(body.slots, colours, strict=True):
            for tap, variable in enumerate(slot.inner_outputs):
                readers[once(variable)].add(key("result", colour, tap))
        if body.stop is not None:
            readers[once(body.stop)].add(key("condition"))
        for node in reversed(self._nodes):
            read = [(digests.of(v), sorted(readers[once(v)])) for v in node.outputs]
            whole = key("readers", sorted(read))
            for mark, variable in zip(_marks(body.sameness, node), node.inputs, strict=True):
                if not isinstance(variable, Constant):
                    readers[once(variable)].add(key("reader", mark, whole))
        return [
            key(
                "slot",
                colour,
                [digests.of(variable) for variable in slot.inner_outputs],
                [sorted(readers[once(variable)]) for variable in slot.inner_inputs],
            )
            for slot, colour in zip(body.slots, colours, strict=True)
        ]


def _marks(sameness: Definition, node: Apply) -> Sequence[object]:
    """Return a mark for each input of ``node``, equal for inputs that may be swapped."""
    loop = loop_op(node)
    if loop is not None:
        slots = zip(inner_slots(loop), sameness.form(loop).signatures, strict=True)
        return ("steps", *(signature for slot, signature in slots if slot.has_input))
    if commutes(node):
        return (0, 0, *range(2, len(node.inputs)))
    return range(len(node.inputs))


class _RoundBudget:
    """The rounds that a body gets before its slots are distinguished by their places.

    Without it, a body with many slots that split off one by one would take quadratic time. Keys of
    places may make equal things look different, never the reverse.
    """

    def __init__(self, body: BodyDigests) -> None:
        # The signature of a slot costs as much as a few nodes.
        self._sameness, self._size = body.sameness, len(body.nodes) + 4 * len(body.slots) + 1
        self._rounds = max(_FEW_ROUNDS, _LOOKED_AT // self._size)
        self._free = _FREE_ROUNDS

    def lasts(self) -> bool:
        """Use up one round; return whether another one is allowed."""
        self._rounds -= 1
        self._free -= 1
        return self._rounds > 0 and (self._free >= 0 or self._sameness.may_look_into(self._size))


@dataclass(frozen=True, slots=True)
class _Refined:
    """The colours of the slots of a loop when none is split any more, and the signatures."""

    body: BodyDigests
    colours: Sequence[bytes]
    signatures: Sequence[bytes]

    @property
    def whole(self) -> tuple[bytes | None, list[bytes]]:
        """What identifies the loop, in whatever order its slots are."""
        return self.body.condition(self.colours), sorted(self.signatures)


def _refine(
    body: BodyDigests,
    colours: Sequence[bytes],
    signatures_of: Callable[[Sequence[bytes]], list[bytes]],
    budget: _RoundBudget | None = None,
) -> _Refined:
    """Split colours until slots of one colour have one signature.

    Each round but the last adds at least one colour, so the refinement ends.
    """
    # Hashes are written to files, and depend on the rounds that they come from.
    if body.sameness.exact and body.refines_loops():
        body.at_a_glance = True
        for _ in range(_FEW_ROUNDS):
            split = _split(colours, signatures_of(colours))
            if split is None:
                break
            colours = split
        body.at_a_glance = False
    budget = budget or _RoundBudget(body)
    while True:
        signatures = signatures_of(colours)
        split = _split(colours, signatures)
        if split is None:
            return _Refined(body, colours, signatures)
        if budget.lasts():
            colours = split
        else:
            colours = [
                body.sameness.key("place", colour, place) for place, colour in enumerate(colours)
            ]


def _split(colours: Sequence[bytes], signatures: Sequence[bytes]) -> list[bytes] | None:
    """Split the colours whose slots have different signatures; ``None`` if there are none."""
    seen: dict[bytes, set[bytes]] = defaultdict(set)
    for colour, signature in zip(colours, signatures, strict=True):
        seen[colour].add(signature)
    if all(len(found) == 1 for found in seen.values()):
        return None
    return [
        signature if len(seen[colour]) > 1 else colour
        for colour, signature in zip(colours, signatures, strict=True)
    ]


def _starts(
    sameness: Definition, of: Callable[[Variable], bytes], slots: Sequence[Slot]
) -> list[bytes]:
    key = sameness.key
    return [key("fed slot", *_shape(sameness, slot), of(slot.outer_input)) for slot in slots]


def _shape(sameness: Definition, slot: InnerSlot) -> tuple[object, ...]:
    types = [variable.type for variable in (*slot.inner_inputs, *slot.inner_outputs)]
    # Slots of two kinds of a Scan compute the same, but become different slots of a Scan again.
    former = slot.former.value if sameness.exact and slot.former is not None else None
    return slot.kind.value, slot.taps, slot.out_taps, types, *([former] if former else [])


def _frame(op: Any) -> tuple[object, ...]:
    """Return the properties of a loop other than its slots and its body."""
    if isinstance(op, HasSlots):
        return type(op), op.inner_condition is not None
    return op.truncate_gradient, op.destroy_map, op.info.as_while


def _needed(view: SlotView, targets: Sequence[Variable]) -> tuple[list[Slot], list[Apply]]:
    """Return the slots and the nodes of a body that ``targets`` depend on, over all steps."""
    body = view.op.fgraph
    reader = {variable: slot for slot in view.slots for variable in slot.inner_inputs}
    needed: dict[Slot, None] = {}
    outputs, nodes = list(targets), io_toposort(body.inputs, targets)
    while True:
        read = [v for node in nodes for v in node.inputs] + outputs
        found = dict.fromkeys(reader[variable] for variable in read if variable in reader)
        if found.keys() <= needed.keys():
            return [slot for slot in view.slots if slot in needed], nodes
        needed.update(found)
        outputs = [*targets, *(v for slot in needed for v in slot.inner_outputs)]
        nodes = io_toposort(body.inputs, outputs)
