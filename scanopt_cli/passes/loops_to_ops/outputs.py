"""The outputs of a loop that Ops on whole arrays compute, and what replaces them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.basic import MakeVector
from pytensor.tensor.shape import Shape

from scanopt_cli.analysis.accesses.indices import read_index
from scanopt_cli.analysis.buffers import is_whole
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.loop_lengths import is_truncated
from scanopt_cli.analysis.loop_lengths import rows as kept_rows
from scanopt_cli.ir.declared_lengths import declaring_as
from scanopt_cli.ir.inner_graphs import core_op, op_name
from scanopt_cli.ir.slots import Slot, SlotKind, SlotView
from scanopt_cli.passes.loops_to_ops.known_steps import KnownSteps, StepValues
from scanopt_cli.passes.loops_to_ops.running_states import STATE_KINDS, Running
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.remarks import Code, Reason, Why, because


def outputs_of_ops(view: SlotView, known: KnownSteps, context: PassContext) -> list[Slot]:
    """Return the slots with outputs that Ops can compute."""
    leaving, lengths = [], Lengths(view.n_steps)
    running = known.running
    for slot in view.outputs():
        if slot.kind in STATE_KINDS:
            is_last = _is_last_alone(slot, context)
            is_there = _ends_with_last_step(view, slot, lengths) if is_last else False
            state = running.get(slot)
            is_read = is_there or not (state and state.writes)
            if state and is_read and (is_there or is_whole(view, slot, lengths)):
                leaving.append(slot)
        elif slot.kind in (SlotKind.NIT_SOT, SlotKind.TRACED):
            varies = slot.inner_outputs[0] in known.varying
            if varies and is_whole(view, slot, lengths):
                leaving.append(slot)
    leaving = [slot for slot in leaving if _has_room(slot, known, context)]
    group = known.groups()
    staying = {group(slot) for slot in view.outputs() if slot not in leaving}
    return [slot for slot in leaving if group(slot) not in staying]


def tell_what_is_in_the_way(
    view: SlotView, names: Mapping[Slot, str], context: PassContext
) -> None:
    """Remark which Ops keep the outputs that would leave a loop if they had one for all steps."""
    known = KnownSteps.of(view, as_if=True)
    if not known.in_the_way:
        return
    leaving = outputs_of_ops(view, known, context)
    needed = known.needed(v for slot in leaving for v in _wanted(slot, known, context))
    nodes = [node for node in known.in_the_way if not needed.isdisjoint(node.outputs)]
    if nodes:
        ops = tuple(dict.fromkeys(op_name(core_op(node.op)) for node in nodes))
        reason = because(Why.NO_OP_FOR_STEPS, ops=ops)
        context.missed(view, Code.LOOP_NEEDED, reason, *(names[slot] for slot in leaving))


def _has_room(slot: Slot, known: KnownSteps, context: PassContext) -> bool:
    """Whether no array of all steps is far larger than what the loop keeps."""
    wanted = set(slot.inner_outputs)
    if slot.kind in STATE_KINDS:
        wanted = set(known.running[slot].parts)
    wide = known.wide & known.needed(wanted)
    if slot.kind in STATE_KINDS and _is_last_alone(slot, context):
        return not wide
    ndim = getattr(slot.inner_outputs[0].type, "ndim", 0)
    return all(getattr(v.type, "ndim", 0) <= ndim for v in wide)


def _is_last_alone(slot: Slot, context: PassContext) -> bool:
    """Whether only the last value of a state is read."""
    if slot.kind is SlotKind.UNTRACED:
        return True
    return len(_last_rows(slot, context)) == len(context.clients(slot.outer_output))


def _ends_with_last_step(view: SlotView, slot: Slot, lengths: Lengths) -> bool:
    """Whether the last row of a state is that of the last step: no row is left over behind it."""
    if slot.kind is not SlotKind.SIT_SOT:
        return True
    return lengths.provably_le(kept_rows(view, slot, lengths), lengths.steps + slot.n_initial)


def _last_rows(slot: Slot, context: PassContext) -> list[Variable]:
    """Return what reads the last row of a trace."""
    reads = [(n, read_index(n, 0)) for n, at in context.clients(slot.outer_output) if not at]
    return [
        node.outputs[0] for node, index in reads if index and index.row == -1 and not index.rest
    ]


def unfit(
    view: SlotView, known: KnownSteps, leaving: list[Slot], context: PassContext
) -> Reason | None:
    """Return why Ops cannot compute outputs, ``None`` if they can."""
    lengths = Lengths(view.n_steps)
    if is_truncated(view, lengths):
        return because(Why.TRUNCATION_LOST)
    wanted = known.needed(v for slot in leaving for v in _wanted(slot, known, context))
    rows = [row for inner, row in known.rows.items() if inner in wanted]
    if not all(row.is_there_alone(lengths) for row in rows):
        return because(Why.SEQUENCE_LENGTH)
    if not all(row.keeps_shape(lengths) for row in rows):
        return because(Why.TRACE_OF_NO_STEPS)
    return None


def _wanted(slot: Slot, known: KnownSteps, context: PassContext) -> list[Variable]:
    """Return what has to be known at all steps for the outputs of a slot."""
    state = known.running.get(slot)
    if state is not None and state.how is not Running.LATEST and _is_last_alone(slot, context):
        return state.parts
    return slot.inner_outputs


def replaced(
    view: SlotView, known: KnownSteps, leaving: list[Slot], context: PassContext
) -> dict[Variable, Variable]:
    """Return replacements for all outputs, and for reads of last values."""
    needed = known.needed(v for slot in leaving for v in _wanted(slot, known, context))
    values = known.computed(needed)
    made: dict[Variable, Variable] = {}
    lengths = Lengths(view.n_steps)
    for slot in leaving:
        if slot.kind in STATE_KINDS:
            made |= _of_state(slot, known, values, context)
        else:
            rows = values.varying[slot.inner_outputs[0]]
            made[slot.output] = declaring_as(rows, slot.output)
        if slot.output in made and slot.kind is not SlotKind.UNTRACED:
            made |= _shapes(slot.output, made[slot.output], lengths, context)
    view.slots = [slot for slot in view.slots if slot not in leaving]
    if view.outputs():
        return made | view.rebuild()
    return made | dict.fromkeys(view.counts, view.n_steps)


def _shapes(old: Any, new: Any, lengths: Lengths, context: PassContext) -> dict[Variable, Variable]:
    """Return replacements for the shapes of ``old``, if that has a length that ``new`` lacks.

    Their readers declare it. PyTensor finds how many rows a buffer has, and not how many there are
    of rows that Ops compute: a node that declares what its inputs do not say cannot be loaded.
    """
    length = lengths.length_of(old)
    if not length.is_constant or new.type.shape[0] is not None:
        return {}
    readers = [node for node, _ in context.clients(old) if isinstance(node.op, Shape)]
    rest = [new.shape[i] if n is None else n for i, n in enumerate(new.type.shape[1:], 1)]
    whole = [length.constant, *rest]
    known = [pt.constant(n, dtype="int64") if isinstance(n, int) else n for n in whole]
    shape: Any = MakeVector("int64")(*known)
    return {node.outputs[0]: shape for node in readers}


def _of_state(
    slot: Slot, known: KnownSteps, values: StepValues, context: PassContext
) -> dict[Variable, Variable]:
    """Return replacements for the trace and the last value of a state."""
    state, trace = known.running[slot], values.traces.get(slot)
    lasts = [v for v in (slot.last,) if v is not None]
    if slot.kind is SlotKind.UNTRACED:
        lasts.append(slot.output)
    if trace is None:
        lasts += _last_rows(slot, context)
        last = values.last(state)
        return {v: declaring_as(last, v) for v in lasts}
    found: dict[Variable, Variable] = {v: declaring_as(trace[-1], v) for v in lasts}
    if slot.kind is not SlotKind.UNTRACED:
        found[slot.output] = declaring_as(pt.as_tensor_variable(trace), slot.output)
    return found
