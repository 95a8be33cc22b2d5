"""The slots of a TracedLoop or a Loop: its index, states, traced values and constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.type import lscalar

from scanopt_cli.ir.slots import Slot, SlotKind, SlotView
from scanopt_cli.loop.body import Body

if TYPE_CHECKING:
    from scanopt_cli.loop.operator_base import LoopOperator


@dataclass(slots=True, eq=False)
class LoopView(SlotView):
    """A TracedLoop node, or a Loop node, as slots; make one with `LoopView.of`.

    A state reads its value before the step, and writes the one after it. The index is fed by the
    number of steps.
    """

    op: LoopOperator

    @classmethod
    def of(cls, node: Apply) -> LoopView:
        """View ``node``, which applies a TracedLoop or a Loop."""
        op = node.op
        n_steps, initial, constants = op.split(node.inputs)
        last, traces, traced, _ = op.split_outputs(node.outputs)
        own = iter((*initial, *constants))
        slots = [
            Slot.of(slot, next(own) if slot.has_input else n_steps) for slot in op.inner_slots()
        ]
        view = cls(node, op, n_steps, slots, op.inner_condition)
        for slot, final, trace in zip(view.of_kind(SlotKind.STATE), last, traces, strict=True):
            slot.last, slot.outer_output = final, trace
        for slot, trace in zip(view.of_kind(SlotKind.TRACED), traced, strict=True):
            slot.outer_output = trace
        return view

    @classmethod
    def of_output(cls, node: Apply, output: Variable) -> LoopView:
        """View only the slot of an output, without its inner variables; none if it is the count.

        That is enough to ask for lengths, and takes time that does not grow with the body.
        """
        op = node.op
        n_steps, initial, _ = op.split(node.inputs)
        last, traces, traced, _ = op.split_outputs(node.outputs)
        place = output.index
        slots = []
        if place < len(last) + len(traces):
            number = place % len(last)
            slots = [Slot(SlotKind.STATE, number, (-1,), (0,), outer_input=initial[number])]
            slots[0].last, slots[0].outer_output = last[number], traces[number]
        elif output in traced:
            number = place - len(last) - len(traces)
            slots = [Slot(SlotKind.TRACED, number, (), (0,), outer_input=n_steps)]
            slots[0].outer_output = output
        return cls(node, op, n_steps, slots, op.inner_condition)

    @property
    def counts(self) -> list[Variable]:
        """The outputs of the node that belong to no slot: how many steps were run."""
        return [] if self.n_done is None else [self.n_done]

    @property
    def is_traced(self) -> bool:
        """Whether the loop is a TracedLoop, not a Loop."""
        return self.n_done is not None

    @property
    def n_done(self) -> Variable | None:
        """The output of a TracedLoop that says how many steps were run."""
        *_, n_done = self.op.split_outputs(self.node.outputs)
        return n_done

    def outputs(self) -> list[Slot]:
        """Return the slots that have outputs, in the order of the inner outputs."""
        return [*self.of_kind(SlotKind.STATE), *self.of_kind(SlotKind.TRACED)]

    def body(self) -> Body:
        """Return the body that the current slots describe; the view is unfrozen."""
        index = next((s.inner_inputs[0] for s in self.of_kind(SlotKind.INDEX)), lscalar())
        states = self.of_kind(SlotKind.STATE)
        return Body(
            index=index,
            states=[slot.inner_inputs[0] for slot in states],
            constants=[slot.inner_inputs[0] for slot in self.of_kind(SlotKind.CONSTANT)],
            next_states=[slot.inner_outputs[0] for slot in states],
            traced=[slot.inner_outputs[0] for slot in self.of_kind(SlotKind.TRACED)],
            condition=self.condition,
        )

    def rebuild(self) -> dict[Variable, Variable]:
        """Apply a new loop made of the current slots; see `SlotView.rebuild`."""
        states, traced = self.of_kind(SlotKind.STATE), self.of_kind(SlotKind.TRACED)
        op = self.op
        if self.is_unfrozen:
            name = op.name if self.new_name is None else self.new_name
            op = type(op).from_body(self.body(), name=name)
        fed = [*states, *self.of_kind(SlotKind.CONSTANT)]
        op = self.kept(op, [*fed, *traced, None])
        new = op.make_node(self.n_steps, *(slot.outer_input for slot in fed)).outputs
        last, traces, values, n_done = op.split_outputs(new)
        pairs = [
            *((slot.last, v) for slot, v in zip(states, last, strict=True)),
            *((slot.outer_output, v) for slot, v in zip(states, traces, strict=True)),
            *((slot.outer_output, v) for slot, v in zip(traced, values, strict=True)),
            (self.n_done, n_done),
        ]
        return {old: made for old, made in pairs if old is not None and made is not None}
