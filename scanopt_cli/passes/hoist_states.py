"""Hoist the states and outputs that every step sets to the same value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, cast

import pytensor.tensor as pt
from pytensor.conditional.op import ifelse
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.tensor.basic import alloc
from pytensor.tensor.elemwise import DimShuffle, Elemwise

from scanopt_cli.analysis.buffers import is_whole
from scanopt_cli.analysis.dependence import invariant_outputs, invariant_states
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.graph import substituted
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.passes.push_out.hoisting import placeholder
from scanopt_cli.pipeline.contract import CompilationTarget, PassContext
from scanopt_cli.pipeline.loop_passes import ScanPass, not_whole
from scanopt_cli.remarks import Code, Reason, Why, because


@dataclass(frozen=True)
class HoistStates(ScanPass):
    """Hoist the states and outputs of a loop that every step sets to the same value.

    Legal cases:

    1. A sit_sot or mit_sot whose update depends on no sequence and no state (``w + 1``, a constant,
       a product with zeros that was simplified away). Its buffer becomes its initial rows and,
       behind them, the invariant value repeated. Where a step reads the state, it reads that buffer
       as a sequence, one sequence for each tap, so the first steps still read the initial rows.
    2. A nit_sot whose value depends on no sequence and no state. Its buffer becomes the value
       repeated. With ``outputs=false`` it stays.

    PyTensor <version> miscompiles such a state if the loop computes nothing else: its
    ``scan_push_out_non_seq`` drops the initial rows.

    Preconditions: the buffer provably holds the initial rows and every step. The loop has no stop
    condition, is not batched, and no step works in place. For case 2 no generator decides the
    value. If the trip count may be 0 and computing the value can fail, an ``ifelse`` computes it
    only when there is a step; so it does for arrays of case 2, of which a Scan of no steps has no
    shape either. With ``guarded=false``, for backends that raise no such errors, it always is
    computed.

    Two errors no longer occur: that the shape of a state differs from that of its initial rows,
    where one can be broadcast to the other; and that the trip count is negative.

    Out of scope: untraced states, states that are invariant only from the second step on, and
    states that never change (``h[t] = h[t-1]``).
    """

    name: ClassVar[str] = "hoist-states"
    repeats: ClassVar[bool] = True
    accepts_in_place: ClassVar[bool] = False

    guarded: bool = True
    outputs: bool = True
    """whether to take case 2; PyTensor does as much by itself"""

    def adapted(self, target: CompilationTarget) -> Self:
        """Guard only what may raise."""
        return replace(self, guarded=target.raises)

    def rewrite(self, view: ScanView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a Scan without the invariant states."""
        found = [*invariant_states(view), *(invariant_outputs(view) if self.outputs else ())]
        if not found:
            return None
        names = context.names(view)
        lengths = Lengths(view.n_steps)
        hoisted = []
        for slot in found:
            reason = _obstacle(view, slot, lengths)
            if reason is not None:
                context.missed(view, Code.STATE_NOT_HOISTED, reason, names[slot])
            else:
                is_state = slot.kind is not SlotKind.NIT_SOT
                code = Code.STATE_HOISTED if is_state else Code.OUTPUT_HOISTED
                context.passed(view, code, names[slot])
                hoisted.append(slot)
        if not hoisted:
            return None
        view.unfreeze()
        is_safe = lengths.runs() or not self.guarded
        buffers = {slot: _buffer(view, slot, is_safe=is_safe) for slot in hoisted}
        for slot, buffer in buffers.items():
            place = view.slots.index(slot)
            view.slots[place : place + 1] = _sequences(view, slot, buffer)
        replacements = view.rebuild() if view.outputs() else {}
        for slot, buffer in buffers.items():
            replacements[slot.output] = buffer
        return replacements


def _obstacle(view: ScanView, slot: Slot, lengths: Lengths) -> Reason | None:
    if view.is_while:
        return because(Why.LOOP_STOPS)
    if view.batch_ndim:
        return because(Why.LOOP_BATCHED)
    if not is_whole(view, slot, lengths):
        return not_whole([slot])
    return None


def _buffer(view: ScanView, slot: Slot, *, is_safe: bool) -> Variable:
    """Return the final buffer of an invariant slot: its initial rows, then the value repeated.

    It is computed without a condition if that ``is_safe``.
    """
    initial: Any = slot.outer_input
    outer = {other.inner_inputs[0]: other.outer_input for other in view.of_kind(SlotKind.NON_SEQ)}
    (update,) = slot.inner_outputs
    value: Any = substituted([update], outer)[0]
    is_output = slot.kind is SlotKind.NIT_SOT
    may_fail = any(map(_can_fail, io_toposort([], [update])))
    if not is_safe and (may_fail or (is_output and value.type.ndim)):
        otherwise = placeholder(value) if is_output else initial[0]
        value = ifelse(pt.gt(view.n_steps, 0), value, otherwise)
    if is_output:
        repeated: Variable = alloc.make_node(value, view.n_steps, *value.shape).outputs[0]
        return repeated
    buffer: Variable = pt.set_subtensor(initial[slot.n_initial :], value)
    return buffer


def _sequences(view: ScanView, slot: Slot, buffer: Any) -> Sequence[Slot]:
    """Return a sequence over ``buffer`` for each tap of the state that a step reads."""
    first, steps = slot.n_initial, cast(Any, view.n_steps)
    read = set(ancestors(v for v in view.inner_outputs() if v not in slot.inner_outputs))
    return [
        Slot.of_input(SlotKind.SEQ, inner, buffer[first + tap : first + tap + steps])
        for tap, inner in zip(slot.taps, slot.inner_inputs, strict=True)
        if inner in read
    ]


def _can_fail(node: Apply) -> bool:
    """Whether computing a node may raise an error, because of its inputs' values or shapes.

    Elementwise arithmetic of scalars cannot, nor can a DimShuffle that drops no axis.
    """
    if isinstance(node.op, DimShuffle):
        return bool(node.op.drop)
    return not isinstance(node.op, Elemwise) or any(v.type.ndim for v in node.inputs)
