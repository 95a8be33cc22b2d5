"""Move constant inputs of a loop into its body, where they can be folded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.type import TensorType

from scanopt_cli.analysis.step_rows import step_rows
from scanopt_cli.ir.interning import has_negative_zero
from scanopt_cli.ir.slots import Slot, SlotKind, SlotView
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.passes.inline_constants.small_folding import fold
from scanopt_cli.passes.inline_constants.uniform_rows import LARGEST, uniform_row
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import AnyLoopPass
from scanopt_cli.remarks import Code, Reason, Why, because


@dataclass(frozen=True)
class InlineConstants(AnyLoopPass):
    """Inline constant non-sequences and uniform sequences into the body, and fold there.

    Legal cases:

    1. A non-sequence that is a Constant moves into the body; likewise a constant of a TracedLoop.
    2. A sequence that is a Constant with equal rows, at least one, moves into the body as that row.
    3. A sequence ``alloc(v, T, ...)``, whose rows are all equal, becomes a single row. The row
       moves into the body if ``v`` is a Constant scalar and the other lengths are known; else it
       becomes a non-sequence ``alloc(v, ...)``.

    4. Cases 2 and 3 of a TracedLoop: the row of a constant at the index of the step, or a constant
       number of rows behind it.

    In cases 2 to 4 the pass looks through slices of the first axis, with any step and reversals
    included, since these keep all rows equal. If it moved anything into the body, it runs
    PyTensor's own constant folding there.

    Preconditions: rows are equal bit by bit (a NaN equals itself, ``0.0`` and ``-0.0`` differ). The
    constant has at most 4096 elements and no ``-0.0`` (PyTensor treats it as ``0.0`` in a body),
    and its type is the type that the body reads or narrower; the same type, if a step returns it.

    Replacing a sequence drops the check of its length: a uniform sequence shorter than the trip
    count no longer raises an error.

    Out of scope: batched loops (``Blockwise{Scan}``), sequences that are invariant only in part,
    and moving computation out of the loop.
    """

    name: ClassVar[str] = "inline-constants"
    repeats: ClassVar[bool] = True

    def rewrite(self, view: SlotView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a loop without constant and uniform inputs."""
        if isinstance(view, LoopView) and (made := _with_uniform_rows(view.node, context)):
            return made
        names = context.names(view)
        found = {
            slot: value
            for slot in view.slots
            if (value := _invariant_value(view, slot, names[slot], context)) is not None
        }
        if not found:
            return None
        inlined = {slot: value for slot, value in found.items() if isinstance(value, Constant)}
        view.unfreeze({slot.inner_inputs[0]: value for slot, value in inlined.items()})
        for slot, value in found.items():
            name, kind = names[slot], slot.kind
            if slot in inlined:
                context.passed(view, Code.CONSTANT_INLINED, name, kind=kind)
                continue
            context.passed(view, Code.SEQUENCE_UNIFORM, name, kind=kind, into=SlotKind.NON_SEQ)
            slot.kind, slot.outer_input = SlotKind.NON_SEQ, value
        view.slots = [slot for slot in view.slots if slot not in inlined]
        if inlined:
            fold(view)
        return view.rebuild()


def _with_uniform_rows(node: Apply, context: PassContext) -> dict[Variable, Variable] | None:
    """Return replacements for the outputs of a TracedLoop whose steps read uniform rows."""
    view = LoopView.of(node)
    rows = step_rows(view).values()
    values = {row.slot: uniform_row(row.slot.outer_input, row.inner.type) for row in rows}
    if all(value is None for value in values.values()):
        return None
    names = context.names(view)
    view.unfreeze()
    replaced = {}
    for row in step_rows(view).values():
        value = values[row.slot]
        if value is None:
            continue
        reason = _misfit(value, row.inner.type, is_output=row.inner in view.inner_outputs())
        if reason is not None:
            context.missed(view, Code.INPUT_KEPT, reason, names[row.slot], kind=row.slot.kind)
            continue
        name, kind = names[row.slot], row.slot.kind
        if isinstance(value, Constant):
            context.passed(view, Code.CONSTANT_INLINED, name, kind=kind)
        else:
            context.passed(view, Code.SEQUENCE_UNIFORM, name, kind=kind, into="row")
            value = view.add_input(SlotKind.CONSTANT, row.inner.type(), value)
        replaced[row.inner] = value
    if not replaced:
        return None
    view.set_inner_outputs(graph_replace(view.inner_outputs(), replaced, strict=False))
    read = set(ancestors(view.inner_outputs()))
    view.slots = [
        slot
        for slot in view.slots
        if slot.kind is not SlotKind.CONSTANT or not read.isdisjoint(slot.inner_inputs)
    ]
    fold(view)
    return view.rebuild()


def _invariant_value(
    view: SlotView, slot: Slot, name: str, context: PassContext
) -> Variable | None:
    """Return what may replace ``slot``: a Constant or an outer variable; ``None`` if nothing."""
    if slot.kind not in (SlotKind.SEQ, SlotKind.NON_SEQ, SlotKind.CONSTANT):
        return None
    if view.batch_ndim:
        if isinstance(slot.outer_input, Constant):
            context.missed(view, Code.INPUT_KEPT, Why.LOOP_BATCHED, name, kind=slot.kind)
        return None
    inner_type = slot.inner_inputs[0].type
    outer = slot.outer_input
    value: Variable | None
    if slot.kind is not SlotKind.SEQ:
        value = outer if isinstance(outer, Constant) else None
    else:
        value = uniform_row(outer, inner_type)
    if value is None:
        return None
    reason = _misfit(value, inner_type, is_output=slot.inner_inputs[0] in view.inner_outputs())
    if reason is not None:
        context.missed(view, Code.INPUT_KEPT, reason, name, kind=slot.kind)
        return None
    return value


def _misfit(value: Variable, inner_type: TensorType, *, is_output: bool) -> Reason | None:
    """Return why the body cannot read ``value`` as ``inner_type``, ``None`` if it can."""
    if isinstance(value, Constant):
        if has_negative_zero(value):
            return because(Why.NEGATIVE_ZERO)
        if getattr(value.data, "size", 1) > LARGEST:
            return because(Why.CONSTANT_LARGE, elements=LARGEST)
        if is_output and value.type != inner_type:
            return because(Why.CONSTANT_RETURNED)
    if not inner_type.is_super(value.type):
        return because(Why.TYPE_DIFFERS, type=str(value.type), read=str(inner_type))
    return None
