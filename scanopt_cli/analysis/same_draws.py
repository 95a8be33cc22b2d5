"""Loops that draw the same random numbers in every step, which is seldom what was meant.

A generator is drawn from where it is read; the generator after the draw is another value. A step
that reads a generator as a constant of the loop, and does not carry the one after the draw, draws
from the same state each time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.tensor.random.type import RandomType

from scanopt_cli.analysis.named_loops import named_loops
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.ir.slots import Slot, SlotKind, SlotView
from scanopt_cli.remarks import Code, Remark, RemarkKind

SAME_DRAWS = "every step draws the same numbers from {generators}; carry the generator as a state"
"""What to tell, of the names of generators."""


def same_draws(fgraph: AbstractFunctionGraph) -> tuple[Remark, ...]:
    """Return a remark on each loop of which every step draws the same numbers.

    The loops of bodies are among them, each distinct body once.
    """
    return tuple(_same_draws(fgraph))


def told(remark: Remark) -> str:
    """Return the remark as a sentence."""
    return f"{remark.scan}: {SAME_DRAWS.format(generators=', '.join(remark.slots))}"


def _same_draws(fgraph: AbstractFunctionGraph) -> Iterator[Remark]:
    for loop in named_loops(fgraph):
        generators = [slot for slot in loop.view.slots if is_fixed_generator(loop.view, slot)]
        if generators:
            yield Remark(
                pass_name="scanopt",
                code=Code.SAME_DRAWS,
                kind=RemarkKind.WARNING,
                scan=loop.title,
                slots=tuple(loop.names[slot] for slot in generators),
                place=loop.place,
            )


def draws_of(view: SlotView) -> dict[Variable, list[Apply]]:
    """Return what draws from each generator of a step, in topological order."""
    found: dict[Variable, list[Apply]] = defaultdict(list)
    for node in view.op.fgraph.toposort():
        if _is_draw(node):
            for variable in node.inputs:
                if isinstance(variable.type, RandomType):
                    found[variable].append(node)
    return found


def is_fixed_generator(view: SlotView, slot: Slot) -> bool:
    """Whether a slot is a generator that a step reads, and that is the same in every step."""
    return (
        slot.kind in (SlotKind.NON_SEQ, SlotKind.CONSTANT)
        and isinstance(slot.inner_inputs[0].type, RandomType)
        and bool(view.op.fgraph.clients.get(slot.inner_inputs[0]))
    )


def is_handed_on(view: SlotView, slot: Slot) -> bool:
    """Whether a slot is a generator that a step draws from, and passes on as it was given."""
    if slot.kind not in (SlotKind.UNTRACED, SlotKind.STATE):
        return False
    (generator,) = slot.inner_inputs
    return slot.inner_outputs == [generator] and generator in draws_of(view)


def _is_draw(node: Apply) -> bool:
    return hasattr(core_op(node.op), "update") and any(
        isinstance(v.type, RandomType) for v in node.outputs
    )
