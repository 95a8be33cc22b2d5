"""Hoist the states and outputs of which the value at every step is known before the loop."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, cast

import pytensor.tensor as pt
from pytensor.conditional.op import ifelse
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import alloc, as_tensor_variable, scalar_from_tensor
from pytensor.tensor.elemwise import DimShuffle, Elemwise

from scanopt_cli.analysis.buffers import is_whole
from scanopt_cli.analysis.dependence import invariant_outputs, invariant_states, unchanged_states
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.step_rows import add_rows, invariant_inputs
from scanopt_cli.ir.declared_lengths import declaring_as
from scanopt_cli.ir.graph import substituted
from scanopt_cli.ir.slots import Slot, SlotKind, SlotView
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.loop.shapes import traced_shapes
from scanopt_cli.passes.push_out.hoisting import placeholder
from scanopt_cli.pipeline.contract import CompilationTarget, PassContext
from scanopt_cli.pipeline.loop_passes import AnyLoopPass, not_whole
from scanopt_cli.remarks import Code, Reason, Why, because


@dataclass(frozen=True)
class HoistStates(AnyLoopPass):
    """Hoist the states and outputs of a loop that every step sets to the same value.

    Legal cases, of Scans and of TracedLoops:

    1. A state whose update depends on no sequence, no index and no state (``w + 1``, a constant, a
       product with zeros that was simplified away). Its trace becomes its initial rows and, behind
       them, the invariant value repeated. Where a step reads the state, it reads that trace as a
       sequence, one sequence for each tap (a step of a TracedLoop indexes it), so the first steps
       still read the initial rows. A state that starts with that value is a constant.
    2. An output whose value depends on none of these. Its trace becomes the value repeated. With
       ``outputs=false`` it stays.
    3. A state that no step changes (``h[t] = h[t-1]``) is a constant: its initial value, or the
       last of its initial rows, repeated.

    PyTensor <version> miscompiles a state of case 1 if a Scan computes nothing else: its
    ``scan_push_out_non_seq`` drops the initial rows.

    Preconditions: no step works in place. Of a Scan, the buffer provably holds the initial rows and
    every step, and there is no stop condition and no batch. If a step of a TracedLoop reads a state
    that is no constant, there is no stop condition either, and the state provably keeps its shape.
    For case 2, and for all cases of TracedLoops, no generator decides the value. If the trip count
    may be 0 and computing the value can fail, an ``ifelse`` computes it only when there is a step;
    so it does for arrays of case 2, of which a Scan of no steps has no shape either. With
    ``guarded=false``, for backends that raise no such errors, it always is computed.

    Two errors no longer occur: that the shape of a state differs from that of its initial rows,
    where one can be broadcast to the other; and that the trip count is negative.

    Out of scope: untraced states, and states that are invariant only from the second step on.
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

    def rewrite(self, view: SlotView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a loop without the invariant states."""
        unchanged = dict.fromkeys(unchanged_states(view))
        found = unchanged | dict.fromkeys(invariant_states(view))
        if self.outputs:
            found |= dict.fromkeys(invariant_outputs(view))
        if not found:
            return None
        names, lengths = context.names(view), Lengths(view.n_steps)
        view.unfreeze()
        others = replace(view, slots=[slot for slot in view.slots if slot not in found])
        read = set(ancestors(others.inner_outputs()))
        hoisted: list[_Known] = []
        for slot in found:
            known = _known(view, slot, context)
            reason = _obstacle(view, known, lengths, is_read=not read.isdisjoint(slot.inner_inputs))
            if reason is not None:
                context.missed(view, Code.STATE_NOT_HOISTED, reason, names[slot])
                continue
            code = Code.STATE_HOISTED if slot.taps else Code.OUTPUT_HOISTED
            context.passed(view, Code.STATE_CONSTANT if slot in unchanged else code, names[slot])
            if not lengths.runs():
                known.value = _if_there_is_a_step(view, known, raises=self.guarded)
            hoisted.append(known)
        if not hoisted:
            return None
        traces = {known.slot: known.trace(view.n_steps) for known in hoisted}
        view.slots = [slot for slot in view.slots if slot not in traces]
        rows: dict[Variable, Variable] = {}
        for known in hoisted:
            rows |= _added(view, known, traces[known.slot], read)
        if rows:
            view.set_inner_outputs(graph_replace(view.inner_outputs(), rows, strict=False))
        replacements = dict.fromkeys(view.counts, view.n_steps)
        if view.outputs() or view.is_while:
            replacements = view.rebuild()
        if view.is_while:
            (n_done,) = map(replacements.get, view.counts)
            traces = {known.slot: known.trace(n_done) for known in hoisted}
        replacements |= {slot.output: trace for slot, trace in traces.items()}
        return replacements | {k.slot.last: k.last for k in hoisted if k.slot.last is not None}


@dataclass(slots=True, eq=False)
class _Known:
    """A slot of which the values at all steps are known before the loop.

    Attributes
    ----------
    initial
        The last of the initial rows of a state, else ``None``.
    value
        What every step sets the slot to.
    is_constant
        Whether a state has one initial row, and ``value`` is the same.
    """

    slot: Slot
    initial: Any
    value: Any
    is_constant: bool

    def trace(self, n_done: Any) -> Variable:
        """Return the trace of ``n_done`` steps: the initial rows, then the value repeated."""
        start: Any = self.slot.outer_input
        if self.initial is None:
            repeated: Variable = alloc.make_node(self.value, n_done, *self.value.shape).outputs[0]
            return repeated
        if self.slot.kind is SlotKind.STATE:
            start = alloc(self.initial, n_done + 1, *self.initial.shape)
        if self.is_constant and self.slot.kind is SlotKind.STATE:
            return as_tensor_variable(start)
        buffer: Variable = pt.set_subtensor(start[self.slot.n_initial :], self.value)
        return buffer

    @property
    def last(self) -> Variable:
        """The value of a state of a TracedLoop after the last step."""
        assert self.slot.last is not None
        if self.is_constant:
            return self.slot.outer_input
        is_number = isinstance(self.slot.last.type, ScalarType)
        return scalar_from_tensor(self.value) if is_number else as_tensor_variable(self.value)


def _known(view: SlotView, slot: Slot, context: PassContext) -> _Known:
    outer, initial = invariant_inputs(view), None
    is_traced_state = slot.kind is SlotKind.STATE
    if slot.taps:
        start: Any = slot.outer_input
        initial = as_tensor_variable(start) if is_traced_state else start[slot.n_initial - 1]
        taps = zip(slot.taps, slot.inner_inputs, strict=True)
        outer |= {inner: initial for tap, inner in taps if tap == -1}
    (value,) = substituted(slot.inner_outputs, outer)
    value = as_tensor_variable(value)
    is_same = value is initial or (
        is_traced_state
        and initial is not None
        and value.type == initial.type
        and context.same(value) == context.same(initial)
    )
    return _Known(slot, initial, value, is_same and slot.n_initial == 1)


def _obstacle(view: SlotView, known: _Known, lengths: Lengths, *, is_read: bool) -> Reason | None:
    slot = known.slot
    if isinstance(view, LoopView):
        if known.is_constant or not is_read:
            return None
        if not _keeps_shape(view, known, lengths):
            return because(Why.SHAPE_MAY_CHANGE)
    if view.is_while:
        return because(Why.LOOP_STOPS)
    if view.batch_ndim:
        return because(Why.LOOP_BATCHED)
    if not is_whole(view, slot, lengths):
        return not_whole([slot])
    return None


def _keeps_shape(view: LoopView, known: _Known, lengths: Lengths) -> bool:
    """Whether the value of a state provably has the shape of the initial one."""
    kept = view.op.kept_lengths[known.slot.position]
    return all(
        is_kept or lengths.length_of(known.initial, axis) == lengths.length_of(known.value, axis)
        for axis, is_kept in enumerate(kept)
    )


def _if_there_is_a_step(view: SlotView, known: _Known, *, raises: bool) -> Any:
    """Return the value, for a loop that may run no step.

    Then a state of a TracedLoop has its initial value. Others are computed without a condition,
    unless that ``raises`` errors that the loop does not.
    """
    slot, value = known.slot, known.value
    (update,) = slot.inner_outputs
    may_fail = any(map(_can_fail, io_toposort([], [update])))
    if slot.kind is SlotKind.STATE:
        is_needed = not known.is_constant
    else:
        has_shape = slot.kind is SlotKind.NIT_SOT and value.type.ndim
        is_needed = raises and (may_fail or has_shape)
    if not is_needed:
        return value
    otherwise = placeholder(value) if known.initial is None else known.initial
    if isinstance(view, LoopView) and known.initial is None:
        # A trace of no steps has the lengths that its rows would have.
        op, node = view.op, view.node
        shape = traced_shapes(op, node.inputs[1:], traces=op.split_outputs(node.outputs)[2])
        otherwise = pt.zeros(shape[slot.position], dtype=value.type.dtype)
    choose: Any = ifelse if may_fail or value.type.ndim else pt.switch
    return choose(pt.gt(view.n_steps, 0), value, otherwise)


def _added(
    view: SlotView, known: _Known, trace: Any, read: Set[Variable]
) -> dict[Variable, Variable]:
    """Let a step read what is known of a slot; return what it reads in place of inner inputs.

    Of these it may ``read`` a part.
    """
    slot, steps = known.slot, cast(Any, view.n_steps)
    taps = [pair for pair in zip(slot.taps, slot.inner_inputs, strict=True) if pair[1] in read]
    if not known.is_constant:
        first = slot.n_initial
        return {
            inner: add_rows(view, trace[first + tap : first + tap + steps], inner.type)
            for tap, inner in taps
        }
    for _, inner in taps:
        value = slot.outer_input
        if slot.kind is not SlotKind.STATE:
            value = declaring_as(inner.type.filter_variable(known.initial), inner)
        view.add_input(view.invariant_kind, inner, value)
    return {}


def _can_fail(node: Apply) -> bool:
    """Whether computing a node may raise an error, because of its inputs' values or shapes.

    Elementwise arithmetic of scalars cannot, nor can a DimShuffle that drops no axis.
    """
    if isinstance(node.op, DimShuffle):
        return bool(node.op.drop)
    return not isinstance(node.op, Elemwise) or any(v.type.ndim for v in node.inputs)
