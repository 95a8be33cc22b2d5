"""Move constant inputs of a loop into its body, where they can be folded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph, Output
from pytensor.graph.op import HasMultipleInnerGraph
from pytensor.graph.rewriting.basic import NodeProcessingGraphRewriter, in2out, node_rewriter
from pytensor.tensor.basic import Alloc
from pytensor.tensor.basic import alloc as alloc_tensor
from pytensor.tensor.rewriting.basic import constant_folding
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorConstant

from scanopt_cli.ir.indexing import indices_of
from scanopt_cli.ir.inner_graphs import inner_graphs
from scanopt_cli.ir.interning import has_negative_zero
from scanopt_cli.ir.slots import Slot, SlotKind, SlotView
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import AnyLoopPass
from scanopt_cli.remarks import Code, Reason, Why, because

# A constant of more elements stays an input, to keep megabytes of literals out of bodies.
_LARGEST = 4096


@dataclass(frozen=True)
class InlineConstants(AnyLoopPass):
    """Inline constant non-sequences and uniform sequences into the body, and fold there.

    Legal cases:

    1. A non-sequence that is a Constant moves into the body; likewise a constant of a TracedLoop.
    2. A sequence that is a Constant with equal rows, at least one, moves into the body as that row.
    3. A sequence ``alloc(v, T, ...)``, whose rows are all equal, becomes a single row. The row
       moves into the body if ``v`` is a Constant scalar and the other lengths are known; else it
       becomes a non-sequence ``alloc(v, ...)``.

    In cases 2 and 3 the pass looks through slices of the first axis, with any step and reversals
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

    def rewrite(self, view: SlotView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a loop without constant and uniform inputs."""
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
            context.passed(view, Code.SEQUENCE_UNIFORM, name, kind=kind)
            slot.kind, slot.outer_input = SlotKind.NON_SEQ, value
        view.slots = [slot for slot in view.slots if slot not in inlined]
        if inlined:
            _fold(view)
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
        value = _uniform_row(outer, inner_type)
    if value is None:
        return None
    reason = _misfit(value, inner_type, is_output=slot.inner_inputs[0] in view.inner_outputs())
    if reason is not None:
        context.missed(view, Code.INPUT_KEPT, reason, name, kind=slot.kind)
        return None
    return value


def _uniform_row(sequence: Variable, inner_type: TensorType) -> Any:
    """Return the value of every row of ``sequence``, ``None`` unless rows are provably equal."""
    sequence = _unsliced(sequence)
    if isinstance(sequence, TensorConstant):
        rows = sequence.data
        if not rows.shape[0] or any(row.tobytes() != rows[0].tobytes() for row in rows[1:]):
            return None
        return TensorConstant(inner_type.clone(shape=rows.shape[1:]), rows[0])
    node = sequence.owner
    if node is None or not isinstance(node.op, Alloc):
        return None
    value, _, *row_lengths = node.inputs
    if value.type.ndim > len(row_lengths):
        if not value.type.broadcastable[0]:
            return None
        value = value[0]
    if value.type.ndim == 0 and isinstance(value, TensorConstant):
        lengths = [length.data for length in row_lengths if isinstance(length, Constant)]
        if len(lengths) == len(row_lengths) and np.prod(lengths, dtype=float) <= _LARGEST:
            data = np.full([int(length) for length in lengths], value.data, value.data.dtype)
            return TensorConstant(inner_type.clone(shape=data.shape), data)
    return alloc_tensor(value, *row_lengths) if row_lengths else value


def _unsliced(sequence: Variable) -> Variable:
    """Look through slices of the first axis alone, which leave each row unchanged."""
    while sequence.owner is not None and isinstance(sequence.owner.op, Subtensor):
        indices = indices_of(sequence.owner)
        if len(indices) != 1 or not isinstance(indices[0], slice):
            break
        sequence = sequence.owner.inputs[0]
    return sequence


def _misfit(value: Variable, inner_type: TensorType, *, is_output: bool) -> Reason | None:
    """Return why the body cannot read ``value`` as ``inner_type``, ``None`` if it can."""
    if isinstance(value, Constant):
        if has_negative_zero(value):
            return because(Why.NEGATIVE_ZERO)
        if getattr(value.data, "size", 1) > _LARGEST:
            return because(Why.CONSTANT_LARGE, elements=_LARGEST)
        if is_output and value.type != inner_type:
            return because(Why.CONSTANT_RETURNED)
    if not inner_type.is_super(value.type):
        return because(Why.TYPE_DIFFERS, type=str(value.type), read=str(inner_type))
    return None


def _fold(view: SlotView) -> None:
    """Fold constants in the unfrozen body, in place."""
    inputs = [variable for slot in view.slots for variable in slot.inner_inputs]
    body = FunctionGraph(inputs, view.inner_outputs(), clone=False)
    _folding.rewrite(body)
    view.set_inner_outputs(list(body.outputs))


@node_rewriter(None)  # type: ignore[untyped-decorator]
def _fold_small(fgraph: FunctionGraph, node: Apply) -> Any:
    """Apply PyTensor's constant folding if the result is small and not an output of the body.

    A folded output would have a narrower type than the state that it updates.
    """
    # Evaluating an inner graph may cost any amount of time, so it is left to run time.
    scalar_op = getattr(node.op, "scalar_op", None)
    if inner_graphs(node.op) or isinstance(scalar_op, HasMultipleInnerGraph):
        return False
    for output in node.outputs:
        shape = getattr(output.type, "shape", ())
        if None in shape or np.prod(shape, dtype=float) > _LARGEST:
            return False
        if any(isinstance(reader.op, Output) for reader, _ in fgraph.clients[output]):
            return False
    folded = constant_folding.transform(fgraph, node)
    return False if folded and any(map(has_negative_zero, folded)) else folded


_folding = in2out(
    _fold_small,
    ignore_newtrees=True,
    # A node that raises (an index out of range, say) stays: it may only raise if the loop runs.
    failure_callback=NodeProcessingGraphRewriter.warn_ignore,
)
