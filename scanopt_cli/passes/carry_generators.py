"""Carry a random generator from draw to draw and from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.random.type import RandomType

from scanopt_cli.facts import Fact
from scanopt_cli.ir.inner_graphs import op_name
from scanopt_cli.ir.scan_view import is_loop, view_of
from scanopt_cli.ir.slots import STATES, Slot, SlotKind, SlotView
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import AnyLoopPass
from scanopt_cli.remarks import Code, Reason, Why, because


@dataclass(frozen=True)
class CarryGenerators(AnyLoopPass):
    """Draw other random numbers in each step, and by each draw of a step.

    **It changes what is drawn**, so it is in no preset: it mends loops of which every step draws
    the same numbers, or two draws use the same random bits.

    Legal cases:

    1. A generator that is a non-sequence of a Scan becomes an untraced state, and a constant of a
       TracedLoop a state, which starts with it. The draws of a step read it one after the other,
       each the generator that the one before returns, and the step hands on what the last one
       returns.
    2. So do the draws that read a generator which is a state, if two of them read the same one, or
       the step hands on what it was given.

    A loop in the step, whose last state is the next generator, counts as a draw: its body has been
    rewritten before. What is drawn keeps its distribution, parameters and shape, and is what NumPy
    draws from the generator, call by call.

    Preconditions: nothing else in the graph reads the generator: not another loop, which may draw
    the same numbers on purpose, and not another slot of this one. Whatever reads it in the step
    draws from it, and returns the next generator, which goes to other draws or to the next step
    alone. No step works in place. (PyTensor makes no batch of a loop that reads a generator.)

    The generator after the last step is an output that nobody reads: a shared variable that shall
    go on from there needs an update by hand.

    Out of scope: generators that two loops share.
    """

    name: ClassVar[str] = "carry-generators"
    accepts_in_place: ClassVar[bool] = False

    def rewrite(self, view: SlotView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a loop that carries its generators."""
        names = context.names(view)
        found: list[Slot] = []
        for slot in view.of_kind(view.invariant_kind, SlotKind.UNTRACED, SlotKind.STATE):
            if not isinstance(slot.inner_inputs[0].type, RandomType):
                continue
            draws = _draws(view.op.fgraph.toposort(), slot.inner_inputs[0])
            if isinstance(draws, list) and not _repeats(slot, draws):
                continue
            reason = _obstacle(view, slot, draws, context)
            if reason is not None:
                context.missed(view, Code.GENERATOR_KEPT, reason, names[slot])
                continue
            code = Code.DRAWS_CHAINED if slot.kind in STATES else Code.GENERATOR_CARRIED
            context.passed(view, code, names[slot])
            found.append(slot)
        if not found:
            return None
        view.unfreeze()
        for slot in found:
            if slot.kind not in STATES:
                is_constant = slot.kind is SlotKind.CONSTANT
                slot.kind = SlotKind.STATE if is_constant else SlotKind.UNTRACED
                slot.taps, slot.out_taps = (-1,), (0,)
                slot.inner_outputs = list(slot.inner_inputs)
            _chain(view, slot)
        return view.rebuild()


@dataclass(frozen=True, slots=True)
class _Draw:
    """A node, where it reads a generator, and which of its outputs is the next one."""

    node: Apply
    place: int
    output: int

    @property
    def generator(self) -> Variable:
        variable: Variable = self.node.inputs[self.place]
        return variable

    @property
    def next(self) -> Variable:
        variable: Variable = self.node.outputs[self.output]
        return variable


def _draws(nodes: Sequence[Apply], generator: Variable) -> list[_Draw] | Reason:
    """Return what draws from a generator and from those that come of it, in topological order.

    Or why that is not known.
    """
    known, found = {generator}, []
    for node in nodes:
        places = [place for place, variable in enumerate(node.inputs) if variable in known]
        if not places:
            continue
        following = _following(node).get(places[0])
        if following is None or len(places) > 1:
            return because(Why.GENERATOR_READER, op=op_name(node.op))
        draw = _Draw(node, places[0], following)
        known.add(draw.next)
        found.append(draw)
    return found


def _following(node: Apply) -> dict[int, int]:
    """Return where a node returns the next generator, by where it reads one."""
    if hasattr(node.op, "update"):
        pairs = node.op.update(node).items()
    elif is_loop(node):
        states = view_of(node).of_kind(SlotKind.UNTRACED, SlotKind.STATE)
        pairs = [(slot.outer_input, slot.outer_outputs[0]) for slot in states]
    else:
        return {}
    return {
        node.inputs.index(read): node.outputs.index(following)
        for read, following in pairs
        if isinstance(read.type, RandomType)
    }


def _repeats(slot: Slot, draws: Sequence[_Draw]) -> bool:
    """Whether steps, or draws of a step, read the same state of a generator."""
    if not draws:
        return False
    if slot.kind not in STATES or slot.inner_outputs == slot.inner_inputs:
        return True
    return len({draw.generator for draw in draws}) < len(draws)


def _obstacle(
    view: SlotView, slot: Slot, draws: Sequence[_Draw] | Reason, context: PassContext
) -> Reason | None:
    """Return why the draws cannot be chained, ``None`` if they can."""
    if isinstance(draws, Fact):
        return draws
    if len(context.clients(slot.outer_input)) > 1:
        return because(Why.GENERATOR_SHARED)
    generators = {slot.inner_inputs[0], *(draw.next for draw in draws)}
    elsewhere = [v for other in view.slots if other is not slot for v in other.inner_outputs]
    if generators.intersection(elsewhere):
        return because(Why.GENERATOR_SHARED)
    if slot.kind in STATES and slot.inner_outputs[0] not in generators:
        return because(Why.GENERATOR_REPLACED)
    return None


def _chain(view: SlotView, slot: Slot) -> None:
    """Let each draw of a step read what the one before returns, and hand on the last one."""
    outputs = view.inner_outputs()
    nodes = io_toposort([], outputs)
    draws = _draws(nodes, slot.inner_inputs[0])
    assert isinstance(draws, list)
    by_node = {draw.node: draw for draw in draws}
    current: Variable = slot.inner_inputs[0]
    copies: dict[Variable, Variable] = {}
    for node in nodes:
        inputs = [copies.get(variable, variable) for variable in node.inputs]
        draw = by_node.get(node)
        if draw is not None:
            inputs[draw.place] = current
        if inputs != node.inputs:
            copy = node.clone_with_new_inputs(inputs, strict=False)
            copies.update(zip(node.outputs, copy.outputs, strict=True))
        if draw is not None:
            current = copies.get(draw.next, draw.next)
    view.set_inner_outputs([copies.get(output, output) for output in outputs])
    slot.inner_outputs = [current]
