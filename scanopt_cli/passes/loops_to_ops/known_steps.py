"""Which values of a step are known at all steps without running the loop, and what they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.analysis.accumulators import readers
from scanopt_cli.analysis.initial_buffers import initial_rows
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.step_rows import StepRow, invariant_inputs, step_rows
from scanopt_cli.ir.disjoint_sets import DisjointSets
from scanopt_cli.ir.levels import always_computed
from scanopt_cli.ir.slots import Slot, SlotKind, SlotView
from scanopt_cli.passes.loops_to_ops.all_steps import (
    has_op_for_all_steps,
    invariant_shape,
    ops_for_all_steps,
    takes_more_room,
)
from scanopt_cli.passes.loops_to_ops.branches import Always
from scanopt_cli.passes.loops_to_ops.entries import (
    added_entries,
    has_entries_for_all_steps,
    reads_within,
)
from scanopt_cli.passes.loops_to_ops.outside import Outside
from scanopt_cli.passes.loops_to_ops.running_states import (
    STATE_KINDS,
    RunningState,
    running_state,
)
from scanopt_cli.passes.push_out.hoisting import is_numeric, is_total


@dataclass(slots=True)
class KnownSteps:
    """What is known at all steps of an unfrozen loop.

    Attributes
    ----------
    view
        The loop.
    rows
        The rows that a step reads of arrays outside.
    varying
        The variables of the body whose values at all steps are known, and are not all the same.
    invariant
        Those whose value is the same in each step.
    order
        The nodes and states that they come from, in an order in which they can be computed.
    wide
        The variables that no sum is to be made of: an array of all of them is far larger than what
        they are made of.
    in_the_way
        The nodes without an Op for all steps, if these are taken as if there was one; else
        ``None``.
    """

    view: SlotView
    rows: dict[Variable, StepRow]
    varying: set[Variable]
    invariant: set[Variable]
    order: list[Apply | RunningState] = field(default_factory=list)
    wide: set[Variable] = field(default_factory=set)
    in_the_way: list[Apply] | None = None
    _always: Always = field(default_factory=Always)

    @classmethod
    def of(cls, view: SlotView, *, as_if: bool = False) -> KnownSteps:
        """Find out what is known of the steps of a loop, or ``as_if`` there was an Op for each."""
        rows = step_rows(view)
        found = cls(view, rows, set(rows), set(invariant_inputs(view)))
        found.in_the_way = [] if as_if else None
        found.varying.update(v for slot in view.of_kind(SlotKind.INDEX) for v in slot.inner_inputs)
        found._find()
        return found

    def is_known(self, variable: Variable) -> bool:
        """Whether the value of a variable at all steps is known."""
        known = variable in self.varying or variable in self.invariant
        return known or isinstance(variable, Constant)

    @property
    def running(self) -> dict[Slot, RunningState]:
        """The states whose values follow from what is known of each step."""
        return {found.slot: found for found in self.order if isinstance(found, RunningState)}

    def _find(self) -> None:
        outputs = self.view.inner_outputs()
        counts = readers(outputs)
        self._always = self._computed_always(outputs)
        nodes = list(io_toposort([], outputs))
        states = self.view.of_kind(*STATE_KINDS)
        while True:
            nodes = [n for n in nodes if n.outputs[0] not in self.varying and not self._takes(n)]
            known = self.varying | self.invariant
            found = [state for s in states if (state := running_state(s, known, counts))]
            if not found:
                return
            self.order += found
            for state in found:
                states.remove(state.slot)
                if state.writes:  # what it is after each step is not known
                    continue
                self.varying.update((*state.slot.inner_inputs, *state.slot.inner_outputs))

    def _computed_always(self, outputs: list[Variable]) -> Always:
        """Return what each step computes, and rows, which can be read even if no step does."""
        nodes = always_computed(outputs) | {v.owner for v in self.rows if v.owner}
        first = {v: cast(Any, row.slot.outer_input)[0] for v, row in self.rows.items()}
        lengths = Lengths(self.view.n_steps)
        return Always(nodes, {**invariant_inputs(self.view), **first}, lengths)

    def _takes(self, node: Apply) -> bool:
        """Whether the values of a node are known, from what is known so far."""
        is_array = is_numeric(node) or isinstance(node.op, SpecifyShape)
        if not is_array or not all(map(self.is_known, node.inputs)):
            return False
        if invariant_shape(node, self.varying) is not None or (
            self.varying.isdisjoint(node.inputs) and (is_total(node) or _is_guarded(node))
        ):
            self.invariant.update(node.outputs)
        elif has_op_for_all_steps(node, self.varying, self._always):
            is_larger = takes_more_room(node, self.varying, self.rows)
            if is_larger or not self.wide.isdisjoint(node.inputs):
                self.wide.update(node.outputs)
            self.varying.update(node.outputs)
        elif self.in_the_way is not None:
            self.in_the_way.append(node)
            self.varying.update(node.outputs)
        else:
            return False
        self.order.append(node)
        return True

    def groups(self) -> Callable[[Slot], object]:
        """Return what is equal for outputs of which one reads what is computed for the other.

        What no step changes, and what a step reads, belongs to none: reading it twice is free.
        """
        groups: DisjointSets[object] = DisjointSets()
        members: dict[Variable, object] = {}
        for slot in self.view.outputs():
            members.update(dict.fromkeys(slot.inner_inputs, slot))
        for node in io_toposort([], self.view.inner_outputs()):
            read = [members[v] for v in node.inputs if v in members]
            if not self.rows.keys().isdisjoint(node.outputs) or (
                not read and isinstance(node.op, DimShuffle)
            ):
                continue
            if self.invariant.isdisjoint(node.outputs):
                members.update(dict.fromkeys(node.outputs, node))
                for one in read:
                    groups.unite(node, one)
        for slot in self.view.outputs():
            for variable in slot.inner_outputs:
                groups.unite(slot, members.get(variable, slot))
        return groups.find

    def needed(self, wanted: Iterable[Variable]) -> set[Variable]:
        """Return what has to be known for ``wanted`` to be known, with these."""
        found = set(wanted)
        for item in reversed(self.order):
            if isinstance(item, Apply):
                if not found.isdisjoint(item.outputs):
                    found.update(item.inputs)
            elif not found.isdisjoint((*item.slot.inner_inputs, *item.slot.inner_outputs)):
                found.update(item.parts)
        return found

    def computed(self, needed: set[Variable]) -> StepValues:
        """Compute what is ``needed`` at all steps."""
        view, lengths = self.view, Lengths(self.view.n_steps)
        values = StepValues(view, lengths, invariant_inputs(view))
        for inner, row in self.rows.items():
            if inner in needed:
                values.varying[inner] = row.at_all_steps(view, lengths)
        for slot in view.of_kind(SlotKind.INDEX):
            (index,) = slot.inner_inputs
            if index in needed:
                values.varying[index] = pt.arange(view.n_steps, dtype="int64")
        for item in self.order:
            if isinstance(item, RunningState):
                values.take_state(item, needed)
            elif not needed.isdisjoint(item.outputs):
                values.take_node(item)
        return values


@dataclass(slots=True)
class StepValues:
    """The values of a step's variables outside of the loop.

    ``varying`` has a row for each step; ``traces`` are those of states, with the initial row.
    """

    view: SlotView
    lengths: Lengths
    invariant: dict[Variable, Any]
    varying: dict[Variable, Any] = field(default_factory=dict)
    traces: dict[Slot, Any] = field(default_factory=dict)

    @property
    def outside(self) -> Outside:
        """What is known outside of the loop."""
        n_steps, runs = self.view.n_steps, self.lengths.runs()
        return Outside(self.varying, self.invariant, n_steps, runs)

    def take_node(self, node: Apply) -> None:
        """Compute what a node of the body computes."""
        shape = invariant_shape(node, self.varying)
        if shape is not None:
            self.invariant[node.outputs[0]] = shape(self.varying[node.inputs[0]])
        elif not self.varying.keys().isdisjoint(node.inputs):
            values = ops_for_all_steps(node, self.outside)
            self.varying.update(zip(node.outputs, values, strict=True))
        else:
            inputs = [self.invariant.get(v, v) for v in node.inputs]
            values = node.clone_with_new_inputs(inputs, strict=False).outputs
            if not (is_total(node) or reads_within(node)):
                values = self.outside.if_there_is_a_step(values)
            self.invariant.update(zip(node.outputs, values, strict=True))

    def take_state(self, state: RunningState, needed: set[Variable]) -> None:
        """Compute what a state is before and after each step, if either is needed."""
        (before,), (after,) = state.slot.inner_inputs, state.slot.inner_outputs
        if after in self.varying:  # it is what each step computes
            trace = state.trace(self.start(state.slot), self.varying[after])
        elif before in needed or after in needed:
            trace = state.trace(self.start(state.slot), self.addends(state))
            self.varying[after] = trace[1:]
        else:
            return
        self.traces[state.slot] = trace
        self.varying[before] = trace[:-1]

    def start(self, slot: Slot) -> Any:
        """Return the initial value of a state."""
        start: Any = slot.outer_input
        if slot.kind is SlotKind.SIT_SOT:
            rows: Any = initial_rows(start, 1, self.lengths)
            start = rows[0]
        return start

    def last(self, state: RunningState) -> Any:
        """Return the value of a state after the last step, of what is known of each step."""
        start = self.start(state.slot)
        for node in state.writes:
            start = added_entries(node, start, self.outside)
        return start if state.writes else state.last(start, self.addends(state))

    def addends(self, state: RunningState) -> Any:
        """Return what the steps add to a state, or multiply it by, one row for each."""
        rows = self.outside.rows
        terms = [
            -rows(term.value) if term.is_negative else rows(term.value) for term in state.terms
        ]
        return terms[0] if len(terms) == 1 else pt.add(*terms)


def _is_guarded(node: Apply) -> bool:
    """Whether a node may raise an error, and is computed only if there is a step.

    Such a node reads of an array, by index, or divides integers.
    """
    if isinstance(node.op, Elemwise):
        return len(node.outputs) == 1
    return isinstance(node.op, Subtensor) and has_entries_for_all_steps(node, set())
