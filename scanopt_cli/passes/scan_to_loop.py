"""Turn PyTensor's Scans into the loops of `scanopt_cli.loop`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.tensor.type import lscalar

from scanopt_cli.analysis.affine import AffineExpr
from scanopt_cli.analysis.buffers import is_whole
from scanopt_cli.analysis.count_variables import as_count, scalar_steps
from scanopt_cli.analysis.initial_buffers import initial_rows, with_room
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.scan_lengths import gradient_limit, rows
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.loop import Body, TracedLoop
from scanopt_cli.loop.batching import batch_lengths, with_batch
from scanopt_cli.loop.body import negation
from scanopt_cli.loop.operator_base import as_step_count
from scanopt_cli.loop.trace_rows import has_buffer, row
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import ScanPass
from scanopt_cli.remarks import Code, Why, because

_LINKERS = ("any", "numba", "jax", "c")
"""The linkers by which loops are faster than Scans."""
_MOST_SHIFTED = 8
"""How many rows of a mit_sot are states of their own; of more, a ring of rows is one state."""


@dataclass(frozen=True)
class ScanToLoop(ScanPass):
    """Turn a Scan into a TracedLoop, which has states and traces, but no taps and no buffers.

    Legal cases, one for each kind of slot:

    1. A sequence or non-sequence becomes a constant of the loop; a step indexes the sequence.
    2. A sit_sot becomes a state, whose trace is the buffer.
    3. A mit_sot of up to 8 rows becomes as many states, which a step shifts; of more, a ring of
       rows in one state. Its buffer is the initial rows and a trace.
    4. An untraced state (a random generator, say) becomes a state.
    5. A nit_sot becomes a traced value.
    6. A mit_mot becomes a state that is the whole buffer, of which a step reads and writes rows.
       Run ``mit-mot-to-sit-sot`` first, which needs no buffer for most.
    7. A stop condition becomes a condition to go on.

    A buffer that does not provably hold every step keeps the rows that PyTensor would keep: the
    last ones, and zeros behind them if there is more room than steps.

    A batched Scan (in a Blockwise) becomes one TracedLoop whose states have the batch dimensions.

    A Scan whose gradient is truncated after ``k`` steps becomes two TracedLoops. No gradient passes
    from the second, which runs the last ``k`` steps, to the first, which runs those before.

    Preconditions: no step works in place. A Scan whose gradient is truncated has no mit_mot and no
    stop condition. A batched Scan has no untraced state, and every entry of the batch is given the
    same number of steps. Entries may stop by themselves after different numbers of steps, unless
    rows of all steps are read; PyTensor raises an error for such a Scan, whatever is read.

    Loops are faster than Scans by Numba and JAX, and where PyTensor compiles C. If the graph is
    compiled by another linker, which is said by the option, all Scans stay.
    """

    name: ClassVar[str] = "scan-to-loop"
    starts_phase: ClassVar[bool] = True
    accepts_in_place: ClassVar[bool] = False
    linker: str = "any"
    """what the graph is compiled by: any, numba, jax, c, or the class of another linker"""

    def rewrite(self, view: ScanView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a TracedLoop."""
        if self.linker not in _LINKERS:
            context.missed(view, Code.SCAN_KEPT, because(Why.LINKER, linker=self.linker))
            return None
        try:
            made = _batched(view) if view.batch_ndim else _converted(view)
        except NotImplementedError:  # a step cannot be vectorized
            made = Why.LOOP_BATCHED
        if isinstance(made, Why):
            context.missed(view, Code.SCAN_KEPT, made)
            return None
        context.passed(view, Code.SCAN_TURNED)
        return made


def _converted(view: ScanView) -> dict[Variable, Variable] | Why:
    """Return what replaces the outputs of a Scan, or why nothing does."""
    limit = gradient_limit(view, Lengths(view.n_steps))
    return _LoopBuilder(view).outputs() if limit is None else _truncated(view, limit)


def _batched(view: ScanView) -> dict[Variable, Variable] | Why:
    """Return what replaces the outputs of a batched Scan, or why nothing does.

    The loop of one entry of the batch is vectorized.
    """
    if view.of_kind(SlotKind.UNTRACED):
        return Why.STATE_UNTRACED
    lengths = Lengths(view.n_steps)
    one: list[Any] = [scalar_steps(view)]
    batched: dict[Variable, Variable] = {}
    for slot in view.slots:
        outer: Any = slot.outer_input
        if slot.kind is SlotKind.NIT_SOT:
            one.append(as_count(lengths.value_of(outer)))
        else:
            one.append(outer[(0,) * view.batch_ndim])
            batched[one[-1]] = outer
    if any(part is None for part in one):
        return Why.STEPS_DIFFER_IN_BATCH
    core = ScanView.of(view.op.make_node(*one))
    made = _converted(core)
    if isinstance(made, Why):
        return made
    found = vectorize_graph([made[output] for output in core.node.outputs], batched)
    batch = batch_lengths(view.node.inputs, view.batch_ndim)
    return {
        before: with_batch(new, before.type, batch)
        for before, new in zip(view.node.outputs, found, strict=True)
    }


def _truncated(view: ScanView, limit: int) -> dict[Variable, Variable] | Why:
    """Return what replaces the outputs of a Scan whose gradient is truncated, or why nothing does.

    As in PyTensor, initial rows that the last ``limit`` steps read have a gradient.
    """
    if view.is_while or view.of_kind(SlotKind.MIT_MOT):
        return Why.GRADIENT_TRUNCATED
    lengths = Lengths(view.n_steps)
    n_steps: Any = as_step_count(view.n_steps)
    n_before: Any = pt.maximum(n_steps - limit, 0)
    starts: dict[Slot, Any] = {}
    for slot in view.slots:
        if slot.n_initial:
            start: Any = initial_rows(slot.outer_input, slot.n_initial, lengths)
            starts[slot] = start[: slot.n_initial]
        elif slot.kind is SlotKind.UNTRACED:
            starts[slot] = slot.outer_input
    before = {
        slot: pt.join(0, starts[slot], _without_gradient(buffer[slot.n_initial :]))
        if slot.n_initial
        else _without_gradient(buffer)
        for slot, buffer in _steps(view, starts, 0, n_before).items()
    }
    starts = {slot: before[slot][n_before:] if slot.n_initial else before[slot] for slot in starts}
    last = _steps(view, starts, n_before, pt.minimum(n_steps, limit))
    replacements = {}
    for slot in view.outputs():
        made = last[slot]
        if slot.kind is not SlotKind.UNTRACED:
            whole = pt.join(0, before[slot], made[slot.n_initial :])
            made = _kept(view, slot, whole, n_steps, lengths)
        replacements[slot.output] = made
    return replacements


def _steps(view: ScanView, starts: Mapping[Slot, Any], first: Any, count: Any) -> dict[Slot, Any]:
    """Run ``count`` steps of a Scan from step ``first`` on, and return its buffers."""
    inputs = [count]
    for slot in view.slots:
        outer: Any = slot.outer_input
        if slot.kind is SlotKind.SEQ:
            outer = outer[first:]
        elif slot.kind is SlotKind.NIT_SOT:
            outer = count
        elif slot.n_initial:
            lengths = [outer.shape[axis] for axis in range(1, outer.type.ndim)]
            outer = with_room(starts[slot], [slot.n_initial + count, *lengths], slot.n_initial)
        elif slot in starts:
            outer = starts[slot]
        inputs.append(outer)
    part = ScanView.of(view.op.make_node(*inputs))
    made = _LoopBuilder(part).outputs()
    return {
        slot: made[output] for slot, output in zip(view.outputs(), part.node.outputs, strict=True)
    }


def _without_gradient(values: Any) -> Any:
    """Return values whose gradient is not taken."""
    return disconnected_grad(values) if has_buffer(values.type) else values


@dataclass(slots=True)
class _LoopBuilder:
    """One Scan on its way to a TracedLoop."""

    view: ScanView
    index: Any = field(default_factory=lambda: lscalar("index"))
    constants: dict[Variable, Variable] = field(default_factory=dict)
    values: dict[Variable, Variable] = field(default_factory=dict)
    """What stands for inner inputs of the Scan."""
    states: list[Any] = field(default_factory=list)
    initial: list[Any] = field(default_factory=list)
    next_states: list[Any] = field(default_factory=list)
    traced: list[Any] = field(default_factory=list)
    place: dict[Slot, int] = field(default_factory=dict)
    """Of a slot with an output, the position of its state or traced value."""

    def outputs(self) -> dict[Variable, Variable]:
        """Return what replaces the outputs of the Scan, from a TracedLoop."""
        self.view.unfreeze()
        for slot in self.view.slots:
            self._add(slot)
        condition = self.view.condition
        computed = [*self.next_states, *self.traced]
        computed += [] if condition is None else [negation(condition)]
        computed = graph_replace(computed, self.values, strict=False)
        n = len(self.states)
        body = Body(
            index=self.index,
            states=self.states,
            next_states=[
                old.type.filter_variable(new, allow_convert=True)
                for old, new in zip(self.states, computed, strict=False)
            ],
            traced=computed[n : n + len(self.traced)],
            condition=None if condition is None else computed[-1],
        )
        n_steps = as_step_count(self.view.n_steps)
        name = self.view.op.name
        made = TracedLoop.over(n_steps, body, self.initial, self.constants, name=name)
        n_done: Any = made[-1] if condition is not None else n_steps
        lengths = Lengths(self.view.n_steps)
        replacements = {}
        for slot in self.view.outputs():
            place = self.place[slot]
            if slot.kind in (SlotKind.UNTRACED, SlotKind.MIT_MOT):
                buffer = made[place]
            elif slot.kind is SlotKind.NIT_SOT:
                buffer = _kept(self.view, slot, made[2 * n + place], n_done, lengths)
            else:
                is_ring = slot.n_initial > _MOST_SHIFTED
                trace: Any = made[2 * n + place] if is_ring else made[n + place]
                # The trace of a state begins with the last of the initial rows.
                before = slot.n_initial - (0 if is_ring else 1)
                start: Any = self._initial_rows(slot)
                whole = pt.join(0, start[:before], trace) if before else trace
                buffer = _kept(self.view, slot, whole, n_done, lengths)
            replacements[slot.output] = buffer
        return replacements

    def _add(self, slot: Slot) -> None:
        match slot.kind:
            case SlotKind.SEQ:
                (value,) = slot.inner_inputs
                rows: Any = slot.outer_input.type()
                self.constants[rows] = slot.outer_input
                self.values[value] = row(rows, self.index, value.type)
            case SlotKind.NON_SEQ:
                self.constants[slot.inner_inputs[0]] = slot.outer_input
            case SlotKind.NIT_SOT:
                self.place[slot] = len(self.traced)
                self.traced += slot.inner_outputs
            case SlotKind.UNTRACED:
                self.place[slot] = len(self.states)
                self._carry(slot.inner_inputs[0], slot.outer_input, slot.inner_outputs[0])
            case SlotKind.MIT_MOT:
                self._add_buffer(slot)
            case _ if slot.n_initial <= _MOST_SHIFTED:
                self._add_shifted(slot)
            case _:
                self._add_ring(slot)

    def _carry(self, state: Variable, initial: Any, following: Any) -> None:
        self.states.append(state)
        self.initial.append(state.type.filter_variable(initial, allow_convert=True))
        self.next_states.append(following)

    def _initial_rows(self, slot: Slot) -> Variable:
        return initial_rows(slot.outer_input, slot.n_initial, Lengths(self.view.n_steps))

    def _add_shifted(self, slot: Slot) -> None:
        """Carry the last rows of a state, each as a state, the oldest first."""
        read = dict(zip(slot.taps, slot.inner_inputs, strict=True))
        kind = slot.inner_inputs[0].type
        taps = range(-slot.n_initial, 0)
        states = [read[tap] if tap in read else kind() for tap in taps]
        following = [*states[1:], slot.inner_outputs[0]]
        buffer: Any = self._initial_rows(slot)
        for position, (state, new) in enumerate(zip(states, following, strict=True)):
            self._carry(state, buffer[position], new)
        self.place[slot] = len(self.states) - 1

    def _add_ring(self, slot: Slot) -> None:
        """Carry the last rows of a state in one array, each at its step modulo their number."""
        size = slot.n_initial
        buffer: Any = self._initial_rows(slot)
        start = buffer[:size]
        ring: Any = start.type.clone(shape=(size, *start.type.shape[1:]))()
        for tap, value in zip(slot.taps, slot.inner_inputs, strict=True):
            self.values[value] = row(ring, (self.index + size + tap) % size, value.type)
        (new,) = slot.inner_outputs
        self._carry(ring, start, pt.set_subtensor(ring[self.index % size], new))
        self.place[slot] = len(self.traced)
        self.traced.append(new)

    def _add_buffer(self, slot: Slot) -> None:
        """Carry the buffer of a mit_mot, whose row 0 is at the lowest of the taps."""
        kind: Any = slot.outer_input.type
        state: Any = kind.clone(shape=(None, *kind.shape[1:]))()
        first = -min(0, *slot.taps)
        for tap, value in zip(slot.taps, slot.inner_inputs, strict=True):
            self.values[value] = row(state, (self.index + first + tap) % state.shape[0], value.type)
        new = state
        for tap, written in zip(slot.out_taps, slot.inner_outputs, strict=True):
            new = pt.set_subtensor(new[(self.index + first + tap) % state.shape[0]], written)
        self.place[slot] = len(self.states)
        self._carry(state, slot.outer_input, new)


def _kept(view: ScanView, slot: Slot, whole: Any, n_done: Any, lengths: Lengths) -> Any:
    """Return the rows that the buffer of a slot holds, given all of its rows."""
    if is_whole(view, slot, lengths):
        return whole
    outer: Any = slot.outer_input
    room = outer if slot.kind is SlotKind.NIT_SOT else outer.shape[0]
    n_rows = n_done + slot.n_initial
    most = lengths.steps + AffineExpr(slot.n_initial)
    if not view.is_while and lengths.provably_le(rows(view, slot, lengths), most):
        return whole[n_rows - room :]
    kept = whole[pt.maximum(n_rows - room, 0) :]
    if view.is_while:
        return kept
    spare = pt.zeros((pt.maximum(room - n_rows, 0), *whole.shape[1:]), dtype=whole.dtype)
    return pt.join(0, kept, spare)
