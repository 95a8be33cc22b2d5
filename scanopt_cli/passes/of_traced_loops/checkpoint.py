"""Run a loop in blocks, so that its gradient keeps the states before each block only."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isqrt
from typing import Any, ClassVar

import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.tensor.type import DenseTensorType, lscalar

from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.ir.written import Names
from scanopt_cli.loop import Body, TracedLoop
from scanopt_cli.loop.costs import MEBIBYTE, array_bytes
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.pipeline.contract import PassContext, check_from_zero
from scanopt_cli.pipeline.loop_passes import TracedLoopPass
from scanopt_cli.remarks import Code, Why, because


@dataclass(frozen=True)
class Checkpoint(TracedLoopPass):
    """Run a TracedLoop in blocks of steps, so that its gradient needs less memory.

    The gradient of a loop of n steps keeps the states before each step. In blocks of k steps it
    keeps those before each block, and computes those of one block at a time again: n / k + k rows
    rather than n, and one more run of the loop. Differentiate after this pass.

    Legal cases:

    1. A loop of which only last values are read becomes a loop over blocks; a step of it is a loop
       of ``steps`` steps, or of what is left. The default is the square root of n.

    Preconditions: no trace is read (run ``trace-to-last`` first, or ``carry-reductions`` before
    ``scan-to-loop``), no condition may end the loop, all states are arrays, and the loop is in no
    other loop. With ``memory``, a loop stays of which a gradient would keep no more than so many
    MiB; where that is not known, the loop is split.

    Out of scope: blocks of blocks.
    """

    name: ClassVar[str] = "checkpoint"
    steps: int = 0
    """how many steps a block has; 0 for the square root of all"""
    memory: int = 0
    """how many MiB the gradient of a loop may keep before the loop is split"""

    def __post_init__(self) -> None:
        """Check the options."""
        check_from_zero(steps=self.steps, memory=self.memory)

    def rewrite(self, view: LoopView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for the last values, from a loop over blocks."""
        if context.path or _is_split(view):
            return None
        why = self._obstacle(view, context)
        if why is not None:
            context.missed(view, Code.LOOP_LEFT, why)
            return None
        count = view.n_steps.data.item() if isinstance(view.n_steps, Constant) else None
        if count is not None and count < 1:
            return None
        n_steps: Any = view.n_steps
        length: Any = self.steps
        if count is not None:
            length = length or isqrt(count - 1) + 1
            kept = ceil(count / length) + length
            if kept >= count:
                return None
            context.passed(view, Code.LOOP_SPLIT, steps=length, rows=kept, all=count)
        else:
            kept = f"n/{length}+{length}" if length else "2*sqrt(n)"
            context.passed(view, Code.LOOP_SPLIT, steps=length or "sqrt(n)", rows=kept, all="n")
            length = length or pt.maximum(pt.ceil(pt.sqrt(n_steps)), 1)
        return _split(view, pt.cast(length, "int64"))

    def _obstacle(self, view: LoopView, context: PassContext) -> Any:
        """Return why a loop is not split, ``None`` if it is."""
        if view.is_while:
            return because(Why.LOOP_STOPS)
        states = [slot.inner_inputs[0].type for slot in view.of_kind(SlotKind.STATE)]
        if not all(isinstance(kind, DenseTensorType) for kind in states):
            return because(Why.STATE_UNTRACED)
        if any(context.clients(slot.outer_output) for slot in view.outputs()):
            return because(Why.TRACES_READ)
        if self.memory and isinstance(view.n_steps, Constant):
            sizes = [n_bytes for kind in states if (n_bytes := array_bytes(kind)) is not None]
            kept = sum(sizes) * int(view.n_steps.data)
            if len(sizes) == len(states) and kept <= self.memory * MEBIBYTE:
                return because(Why.FITS_MEMORY, memory=ceil(kept / MEBIBYTE))
        return None


def _is_split(view: LoopView) -> bool:
    """Whether a step is a loop that computes all states, of a number of steps that differs."""
    makers = {slot.inner_outputs[0].owner for slot in view.of_kind(SlotKind.STATE)}
    return len(makers) == 1 and all(
        node is not None and isinstance(node.op, TracedLoop) and node.inputs[0].owner is not None
        for node in makers
    )


def _split(view: LoopView, length: Any) -> dict[Variable, Variable]:
    """Return what replaces the outputs of a loop, from a loop over blocks of ``length`` steps."""
    op, n_steps = view.op, view.n_steps
    body = op.body
    _, initial, given = op.split(view.node.inputs)
    # Within a block, the index counts from its first step.
    first, inside = lscalar("first"), lscalar("index")
    outputs = graph_replace(body.outputs, {body.index: first + inside}, strict=False)
    step = Body(index=inside, states=body.states, next_states=outputs[: op.n_states])
    block = lscalar("block")
    states = [v.type() for v in body.states]
    constants = {v.type(): outer for v, outer in zip(body.constants, given, strict=True)}
    length_inside, n_inside = lscalar("length"), lscalar("n_steps")
    start: Any = block * length_inside
    made = TracedLoop.over(
        pt.minimum(length_inside, n_inside - start),
        step,
        states,
        {first: start, **dict(zip(body.constants, constants, strict=True))},
        name=op.name,
        like=Names(view.node),
    )
    blocks = Body(index=block, states=states, next_states=made[: op.n_states])
    last = TracedLoop.over(
        (n_steps + length - 1) // length,
        blocks,
        initial,
        {length_inside: length, n_inside: n_steps, **constants},
        name=op.name and f"blocks_of_{op.name}",
        like=Names(view.node),
    )
    slots = view.of_kind(SlotKind.STATE)
    replacements = {
        slot.last: v for slot, v in zip(slots, last, strict=False) if slot.last is not None
    }
    if view.n_done is not None:
        replacements[view.n_done] = n_steps
    return replacements
