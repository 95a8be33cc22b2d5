"""Compute once what several loops compute without their data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar, cast

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable

from scanopt_cli.analysis.closed_recursions import ClosedPart, closed_recursions
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.equivalence.loop_forms import BodyDigests, recursion_key
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.loop import TracedLoop
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.passes.merge_scans.trip_counts import loop_free
from scanopt_cli.passes.split_states.parts import OwnLoop, reading_loop
from scanopt_cli.pipeline.contract import Pass, PassContext, Rewrite
from scanopt_cli.pipeline.loop_passes import works_in_place
from scanopt_cli.remarks import Code, Reason, Why, because

_TRACED_IN_SCAN = (SlotKind.SIT_SOT, SlotKind.MIT_SOT)


@dataclass(frozen=True)
class SplitStates(Pass):
    """Compute once the states of several loops that read no data, such as covariances of filters.

    It takes TracedLoops. Two filters with the same matrices have the same covariances, whatever
    their series are, and however long these are. (Of loops with equal trip counts ``merge-scans``
    and ``merge-states`` make one before.)

    Legal cases:

    1. States that depend on each other and on constants alone, in at least two loops that start
       them equally and update them equally, go to a loop of their own. It runs as many steps as the
       longest of these; the steps of each read the row of its trace.
    2. What a step computes of such states and of constants that the first of the loops has too (the
       gain of a filter, the logarithm of a variance) goes with them, where the first loop computes
       it as well.
    3. So does what is traced of such states.

    Preconditions: equality is exact (see ``merge-equal``). One of the states is an array: a number
    takes no longer to compute than to read. An update reads no index, so no sequence; no state that
    reads data; and draws no random numbers. No condition may end the loops, and no step works in
    place. Each loop is always computed: a loop that only a branch of an IfElse reads would run
    otherwise where it did not before. How many steps they run depends on no loop. The states
    provably keep their shapes, or are traced already, as all states of Scans are.

    Values are those of the separate loops, and so are errors if all outputs are computed.

    Out of scope: states of one loop alone, and states of Scans; of a batched Scan,
    ``scan-to-loop`` computes once what is the same for the whole batch. The gradients of several
    loops by what they share stay apart: each pulls back other data. Take gradients after this pass
    to have one.
    """

    name: ClassVar[str] = "split-states"

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        """Yield a rewrite for each loop that shares a recursion with others."""
        nodes = context.fgraph.toposort()
        views = [LoopView.of(node) for node in nodes if isinstance(node.op, TracedLoop)]
        by_key: dict[Hashable, list[_Recursion]] = defaultdict(list)
        free = loop_free(nodes)
        for view in views:
            for states in closed_recursions(view):
                found = _Recursion.of(view, states, context)
                reason = _obstacle(found, free, context)
                if reason is not None:
                    found.remark(reason, context)
                else:
                    by_key[found.key].append(found)
        done: set[Apply] = set()
        for group in by_key.values():
            if len({one.view.node for one in group}) < 2:
                for one in group:
                    one.remark(because(Why.LOOP_ALONE), context)
            elif done.isdisjoint(one.view.node for one in group):
                done.update(one.view.node for one in group)
                yield from _shared(_of_each_loop(group), context)


@dataclass(slots=True, eq=False)
class _Recursion:
    """States of a loop that read no data; those of other loops with one key are the same.

    Each of the states and of the loop's constants has a key of its values.
    """

    view: LoopView
    states: list[Slot]
    key: bytes
    colours: dict[Slot, bytes]
    constants: dict[Slot, bytes]
    names: list[str]

    @classmethod
    def of(cls, view: LoopView, states: Sequence[Slot], context: PassContext) -> _Recursion:
        """Return a recursion of a view that is not yet unfrozen."""
        key, colours = recursion_key(context.digests, view, states)
        names = context.names(view)
        # States of one colour have equal values, so their order does not matter.
        ordered = sorted(states, key=lambda slot: colours[slot])
        constants = {s: context.same(s.outer_input) for s in view.of_kind(SlotKind.CONSTANT)}
        return cls(view, ordered, key, colours, constants, [names[slot] for slot in ordered])

    def remark(self, reason: Reason, context: PassContext) -> None:
        """Remark why the states stay in their loop, unless that has no others."""
        if len(self.states) < len(self.view.of_kind(SlotKind.STATE)):
            context.missed(self.view, Code.STATES_KEPT, reason, *self.names)

    def renew(self) -> None:
        """Unfreeze the view, and read the inputs of the node, which a rewrite may have changed."""
        self.view.unfreeze()
        fresh = LoopView.of(self.view.node)
        self.view.n_steps = fresh.n_steps
        for slot, new in zip(self.view.slots, fresh.slots, strict=True):
            slot.outer_input = new.outer_input

    def part(self, fed: Set[bytes], context: PassContext) -> dict[Variable, bytes]:
        """Return a key for each variable that a step computes of the states and of ``fed``.

        Variables of two loops that have one key have equal values in each step that both run.
        """
        colours = {slot: key for slot, key in self.constants.items() if key in fed}
        colours |= {slot: self.colours[slot] for slot in self.states}
        nodes = ClosedPart.of(self.view, self.states, self._fed(fed)).nodes
        body = BodyDigests(context.digests.sameness, list(colours), nodes, None)
        digests = body.digests(list(colours.values()))
        olds = [slot.inner_inputs[0] for slot in self.states]
        return {v: digests.of(v) for v in (*olds, *(v for node in nodes for v in node.outputs))}

    def read(
        self, fed: Set[bytes], known: Mapping[bytes, Variable], keys: Mapping[Variable, bytes]
    ) -> dict[Variable, Variable]:
        """Map what the rest of the step reads to the variable of another loop that is ``known``."""
        part = ClosedPart.of(
            self.view, self.states, self._fed(fed), lambda variable: keys[variable] in known
        )
        return {variable: known[keys[variable]] for variable in part.read}

    def _fed(self, fed: Set[bytes]) -> list[Slot]:
        return [slot for slot, key in self.constants.items() if key in fed]


def _obstacle(found: _Recursion, free: set[Apply], context: PassContext) -> Reason | None:
    """Return why a recursion stays in its loop, ``None`` if it may be shared."""
    view = found.view
    if not any(getattr(slot.inner_inputs[0].type, "ndim", 0) for slot in found.states):
        return because(Why.NO_ARRAYS)
    if view.is_while:
        return because(Why.LOOP_STOPS)
    if works_in_place(view):
        return because(Why.IN_PLACE, what="a step")
    if context.is_conditional(view.node):
        return because(Why.UNTAKEN_BRANCH)
    if not (view.n_steps.owner is None or view.n_steps.owner in free):
        return because(Why.STEPS_COMPUTED)
    kept = view.op.kept_lengths
    for slot in found.states:
        is_traced = slot.former in _TRACED_IN_SCAN or context.clients(slot.output)
        if not is_traced and not all(kept[slot.position]):
            return because(Why.SHAPE_MAY_CHANGE)
    return None


def _of_each_loop(group: Sequence[_Recursion]) -> list[_Recursion]:
    """Return one recursion of each loop; equal states of one loop are left to merge-states."""
    return list({one.view.node: one for one in reversed(group)}.values())[::-1]


def _shared(group: Sequence[_Recursion], context: PassContext) -> Iterator[Rewrite]:
    """Yield what makes each loop read the traces of one that they share."""
    first = group[0]
    for one in group:
        one.renew()
    fed = set(first.constants.values())
    whole = [one.part(fed, context) for one in group]
    known = {key: v for v, key in whole[0].items()}
    parts = [one.read(fed, known, keys) for one, keys in zip(group, whole, strict=True)]
    read = dict.fromkeys(v for part in parts for v in part.values())
    steps = _longest([one.view.n_steps for one in group], context)
    own = OwnLoop(first.view, first.states, list(read), steps)
    for one, own_read in zip(group, parts, strict=True):
        context.passed(one.view, Code.STATES_SPLIT, *one.names, count=len(group))
        pairs = zip(one.states, first.states, strict=True)
        states = {slot: other.inner_inputs[0] for slot, other in pairs}
        yield Rewrite(reading_loop(one.view, own, states, own_read, (), _own_row))


def _own_row(index: Any, _: bool) -> Any:
    return index


def _longest(counts: Sequence[Variable], context: PassContext) -> Any:
    """Return the largest of several trip counts, or a negative one, which is an error."""
    different = list({context.same(count): count for count in counts}.values())
    if len(different) == 1:
        return different[0]
    if all(isinstance(count, Constant) for count in different):
        return max(different, key=lambda count: int(cast(Any, count).data))
    longest = reduce(pt.maximum, different)
    lengths = Lengths()
    unsure = [v for v in different if not lengths.provably_le(0, lengths.value_of(v))]
    if not unsure:
        return longest
    least = reduce(pt.minimum, unsure)
    return pt.switch(pt.lt(least, 0), least, longest)
