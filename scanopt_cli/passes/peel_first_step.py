"""Compute the row of the first step outside of a loop, so that no buffer is kept for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import applys_between

from scanopt_cli.analysis.accesses.accesses import Access, accesses_of_outputs
from scanopt_cli.analysis.buffers import is_whole
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.step_rows import has_rows_for_steps
from scanopt_cli.ir.dtypes import is_numeric
from scanopt_cli.ir.indexing import along
from scanopt_cli.ir.inner_graphs import inner_graphs
from scanopt_cli.ir.slots import WITH_ROWS, Slot, SlotKind, SlotView
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import AnyLoopPass
from scanopt_cli.remarks import Code, Reason, Why, because

# One step more for each 64 steps takes no noticeable time, nor do 100 more nodes to compile.
_STEPS = 64
_NODES = 100


@dataclass(frozen=True)
class PeelFirstStep(AnyLoopPass):
    """Compute the row of the first step outside of the loop, where only it keeps a long buffer.

    Legal cases:

    1. Every reader of a loop's outputs reads last rows or ``xs[0]``: one more application of the
       body, outside the loop, computes the row of the first step. (A state that records the row
       costs a copy in every step; this costs one step, and none if PyTensor can fold it.)

    Preconditions, of a Scan or a TracedLoop: buffers provably hold every step. The loop provably
    runs a step, and not provably at most 64 steps more than are kept. It has no stop condition, no
    states but traced ones, and is no batched Scan; its sequences, or what a TracedLoop reads at the
    number of the step, are provably long enough. A step has at most 100 operations, with no inner
    graph and nothing random.

    The row may differ in the last bits, since PyTensor compiles it differently.

    Out of scope: rows of other steps beside last ones, and batched Scans.
    """

    name: ClassVar[str] = "peel-first-step"

    def rewrite(self, view: SlotView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for reads of the first step's row."""
        lengths = Lengths(view.n_steps)
        accesses = accesses_of_outputs(view, context.clients)
        found: dict[Slot, list[Access]] = {}
        for slot in view.of_kind(*WITH_ROWS):
            firsts = _reads_of_first_row(view, slot, accesses[slot], lengths)
            if firsts:
                found[slot] = firsts
        if not found:
            return None
        names = context.names(view)
        listed = [names[slot] for slot in found]
        if (reason := _obstacle(view, list(found), lengths)) is not None:
            context.missed(view, Code.FIRST_ROW_KEPT, reason, *listed)
            return None
        context.passed(view, Code.FIRST_ROW_COMPUTED, *listed)
        outputs = view.op.fgraph.bind(_inputs_of_first_step(view))
        rows = dict(zip(view.op.fgraph.outputs, outputs, strict=True))
        replaced: dict[Variable, Variable] = {}
        for slot, firsts in found.items():
            row: Any = rows[slot.inner_outputs[0]]
            for access in firsts:
                rest = access.index.rest if access.index is not None else ()
                replaced[access.result] = row[along(access.axis, *rest)] if rest else row
        return replaced


def _reads_of_first_row(
    view: SlotView, slot: Slot, accesses: Sequence[Access], lengths: Lengths
) -> list[Access]:
    """Return the reads of the first step's row, if nothing else keeps ``slot`` from trimming."""
    if view.batch_ndim or not is_whole(view, slot, lengths):
        return []
    firsts = [
        access
        for access in accesses
        if access.is_plain and not access.n_initial
        if access.index is not None and access.index.row == 0
    ]
    kept = max((access.tail for access in accesses if access.tail is not None), default=0)
    # Every other reader must read from the end.
    unbounded = sum(access.tail is None for access in accesses)
    is_few = lengths.provably_le(lengths.steps, kept + _STEPS)
    return firsts if firsts and unbounded == len(firsts) and not is_few else []


def _obstacle(view: SlotView, slots: Sequence[Slot], lengths: Lengths) -> Reason | None:
    """Return why the first step can't be computed outside the loop, ``None`` if it can."""
    if view.is_while:
        return because(Why.LOOP_STOPS)
    if view.of_kind(SlotKind.MIT_MOT, SlotKind.UNTRACED):
        return because(Why.STATE_UNTRACED)
    if not lengths.runs():
        return because(Why.NO_STEPS, steps=str(lengths.steps))
    if not has_rows_for_steps(view, lengths):
        return because(Why.SEQUENCE_SHORT)
    if not all(map(is_numeric, view.op.fgraph.inputs)):
        return because(Why.NO_TENSORS)
    outputs = [slot.inner_outputs[0] for slot in slots]
    nodes = applys_between(view.op.fgraph.inputs, outputs)
    for count, node in enumerate(nodes, start=1):
        if count > _NODES:
            return because(Why.STEP_LARGE, operations=_NODES)
        if inner_graphs(node.op):
            return because(Why.STEP_HOLDS_GRAPH)
        if node.op.destroy_map or not all(map(is_numeric, node.outputs)):
            return because(Why.STEP_OP, op=str(node.op))
    return None


def _inputs_of_first_step(view: SlotView) -> dict[Variable, Variable]:
    """Return the value of each inner input at the first step."""
    read: dict[Variable, Variable] = {}
    for slot in view.slots:
        outer: Any = slot.outer_input
        for place, inner in enumerate(slot.inner_inputs):
            if slot.kind is SlotKind.INDEX:
                value = pt.constant(0, dtype="int64")
            elif slot.kind in (SlotKind.NON_SEQ, SlotKind.STATE, SlotKind.CONSTANT):
                value = outer
            else:
                value = outer[slot.n_initial + slot.taps[place] if slot.taps else 0]
            read[inner] = inner.type.filter_variable(value)
    return read
