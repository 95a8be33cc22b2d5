"""Hoist the states and outputs of which the value at every step is known before the loop."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, cast

import pytensor.tensor as pt
from pytensor.conditional.op import ifelse
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import alloc, as_tensor_variable, scalar_from_tensor
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import shape_tuple

from scanopt_cli.analysis.accesses.indices import read_index
from scanopt_cli.analysis.buffers import is_whole
from scanopt_cli.analysis.dependence import invariant_outputs, invariant_states, unchanged_states
from scanopt_cli.analysis.initial_buffers import initial_rows
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.step_rows import add_rows, invariant_inputs
from scanopt_cli.ir.declared_lengths import declaring_as
from scanopt_cli.ir.graph import substituted
from scanopt_cli.ir.slots import Slot, SlotKind, SlotView
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.loop.shapes import traced_shapes
from scanopt_cli.loop.trace_rows import row
from scanopt_cli.passes.push_out.hoisting import is_total, placeholder
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
       still read the initial rows. A step of a TracedLoop of unknown length reads one of two rows
       instead. A state that starts with that value is a constant.
    2. An output whose value depends on none of these. Its trace becomes the value repeated. With
       ``outputs=false`` it stays.
    3. A state that no step changes (``h[t] = h[t-1]``) is a constant: its initial value, or the
       last of its initial rows, repeated.

    PyTensor <version> miscompiles a state of case 1 if a Scan computes nothing else: its
    ``scan_push_out_non_seq`` drops the initial rows.

    Preconditions: no step works in place. Of a Scan, the buffer provably holds the initial rows and
    every step, and there is no stop condition and no batch. The state of a TracedLoop provably
    keeps its shape, if it is no constant and a step reads it. For case 2, and for all cases of
    TracedLoops, no generator decides the value. If the trip count may be 0 and computing the value
    can fail, an ``ifelse`` computes it only when there is a step; so it does for arrays of case 2,
    of which a Scan of no steps has no shape either. With ``guarded=false``, for backends that raise
    no such errors, it always is computed.

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
    unchanged: bool = True
    """whether to take case 3"""

    def adapted(self, target: CompilationTarget) -> Self:
        """Guard only what may raise."""
        return replace(self, guarded=target.raises)

    def rewrite(self, view: SlotView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a loop without the invariant states."""
        unchanged = dict.fromkeys(unchanged_states(view) if self.unchanged else ())
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
            reason, is_read = _obstacle(view, slot, lengths), not read.isdisjoint(slot.inner_inputs)
            known = _known(view, slot, lengths, context) if reason is None else None
            if known is not None and is_read and known.may_change_shape(view, lengths):
                reason = because(Why.SHAPE_MAY_CHANGE)
            if known is None or reason is not None:
                context.missed(view, Code.STATE_NOT_HOISTED, reason, names[slot])
                continue
            code = Code.STATE_HOISTED if slot.taps else Code.OUTPUT_HOISTED
            context.passed(view, Code.STATE_CONSTANT if slot in unchanged else code, names[slot])
            if not lengths.runs():
                known.allow_no_step(view, raises=self.guarded)
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
        for known in hoisted:
            slot = known.slot
            if view.is_while:
                traces[slot] = known.trace(replacements[view.counts[0]])
            replacements[slot.output] = traces[slot]
            if slot.last is not None:
                is_number = isinstance(slot.last.type, ScalarType)
                last = scalar_from_tensor(known.last) if is_number else known.last
                replacements[slot.last] = last
            for node, position in context.clients(slot.output) if slot.taps else ():
                index = read_index(node, 0) if position == 0 else None
                if index is not None and index.row == -1:
                    read_row = known.last[index.rest] if index.rest else known.last
                    replacements[node.outputs[0]] = read_row
        return replacements


@dataclass(slots=True, eq=False)
class _Known:
    """A slot of which the values at all steps are known before the loop.

    Every step sets it to ``value``. A state is ``initial`` before the first step and ``last`` after
    the last one, and ``is_constant`` if it has one initial row, which is the same.
    """

    slot: Slot
    initial: Any
    value: Any
    last: Any
    is_constant: bool

    def trace(self, n_done: Any) -> Any:
        """Return the trace of ``n_done`` steps: the initial rows, then the value repeated."""
        if self.initial is None:
            return alloc.make_node(self.value, n_done, *shape_tuple(self.value)).outputs[0]
        buffer: Any = self.slot.outer_input
        if self.is_constant or self.slot.kind is SlotKind.STATE:
            buffer = as_tensor_variable(alloc(self.initial, n_done + 1, *shape_tuple(self.initial)))
        if self.is_constant:
            return buffer
        return pt.set_subtensor(buffer[self.slot.n_initial :], self.value)

    def may_change_shape(self, view: SlotView, lengths: Lengths) -> bool:
        """Whether the state of a TracedLoop may have another shape than the initial value."""
        if self.is_constant or not isinstance(view, LoopView):
            return False
        start, value, kept = self.initial, self.value, view.op.kept_lengths[self.slot.position]
        return any(
            not is_kept and lengths.length_of(start, axis) != lengths.length_of(value, axis)
            for axis, is_kept in enumerate(kept)
        )

    def allow_no_step(self, view: SlotView, *, raises: bool) -> None:
        """Allow for a loop of no steps: the last value is the initial one then.

        The value is computed only if there is a step, if that ``raises`` errors or is of no use.
        """
        slot, value = self.slot, self.value
        may_fail = any(map(_can_fail, io_toposort([], slot.inner_outputs)))
        has_shape = slot.kind is SlotKind.NIT_SOT and value.type.ndim
        is_needed = slot.taps or (raises and (may_fail or has_shape))
        if self.is_constant or value is self.initial or not is_needed:
            return
        otherwise = placeholder(value) if self.initial is None else self.initial
        if isinstance(view, LoopView) and self.initial is None:
            # A trace of no steps has the lengths that its rows would have.
            op, node = view.op, view.node
            shapes = traced_shapes(op, node.inputs[1:], traces=op.split_outputs(node.outputs)[2])
            otherwise = pt.zeros(shapes[slot.position], dtype=value.type.dtype)
        choose: Any = ifelse if may_fail or value.type.ndim else pt.switch
        self.last = choose(pt.gt(view.n_steps, 0), value, otherwise)
        if not slot.taps or (raises and may_fail):
            self.value = self.last


def _known(view: SlotView, slot: Slot, lengths: Lengths, context: PassContext) -> _Known:
    outer, initial = invariant_inputs(view), None
    is_traced = slot.kind is SlotKind.STATE
    if slot.taps:
        start: Any = slot.outer_input
        if not is_traced:
            start = cast(Any, initial_rows(start, slot.n_initial, lengths))[slot.n_initial - 1]
        initial = as_tensor_variable(start)
        taps = zip(slot.taps, slot.inner_inputs, strict=True)
        outer |= {inner: initial for tap, inner in taps if tap == -1}
    value = as_tensor_variable(substituted(slot.inner_outputs, outer)[0])
    is_same = value is initial or (is_traced and context.same(value) == context.same(start))
    return _Known(slot, initial, value, value, is_same and slot.n_initial == 1)


def _obstacle(view: SlotView, slot: Slot, lengths: Lengths) -> Reason | None:
    if isinstance(view, LoopView):
        return None
    if view.is_while:
        return because(Why.LOOP_STOPS)
    if view.batch_ndim:
        return because(Why.LOOP_BATCHED)
    if not is_whole(view, slot, lengths):
        return not_whole([slot])
    return None


def _added(
    view: SlotView, known: _Known, trace: Any, read: Set[Variable]
) -> dict[Variable, Variable]:
    """Let a step read what is known of a slot; return what it reads in place of inner inputs.

    Of these it may ``read`` a part.
    """
    slot, rows = known.slot, {}
    is_number = isinstance(view.n_steps, Constant) and not view.is_while
    is_unknown = slot.kind is SlotKind.STATE and not is_number
    for tap, inner in zip(slot.taps, slot.inner_inputs, strict=True):
        if inner not in read:
            continue
        if is_unknown and not known.is_constant:
            both = pt.stack([known.initial, known.value])
            constant = view.add_input(SlotKind.CONSTANT, both.type(), both)
            rows[inner] = row(constant, pt.minimum(view.index, 1), inner.type)
        elif not known.is_constant:
            first = slot.n_initial + tap
            of_steps = trace[first : first + cast(Any, view.n_steps)]
            rows[inner] = add_rows(view, of_steps, inner.type)
        elif slot.kind is SlotKind.STATE:
            view.add_input(SlotKind.CONSTANT, inner, slot.outer_input)
        else:
            value = inner.type.filter_variable(known.initial)
            view.add_input(SlotKind.NON_SEQ, inner, declaring_as(value, inner))
    return rows


def _can_fail(node: Apply) -> bool:
    """Whether computing a node may raise an error, because of its inputs' values or shapes.

    Elementwise arithmetic of scalars cannot, unless an integer is divided, nor can a DimShuffle
    that drops no axis.
    """
    if isinstance(node.op, DimShuffle):
        return bool(node.op.drop)
    is_of_numbers = isinstance(node.op, Elemwise) and not any(v.type.ndim for v in node.inputs)
    return not (is_of_numbers and is_total(node))
