"""The loop that computes what a Scan computes, and the buffers that the Scan would return."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.type import lscalar

from scanopt_cli.analysis.accesses.accesses import is_strip
from scanopt_cli.analysis.accesses.indices import read_index
from scanopt_cli.analysis.buffers import is_whole
from scanopt_cli.analysis.initial_buffers import initial_rows
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.loop_lengths import rows
from scanopt_cli.ir.graph import substituted
from scanopt_cli.ir.naming import Clients
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.ir.written import Names
from scanopt_cli.loop import Body, TracedLoop
from scanopt_cli.loop.body import negation
from scanopt_cli.loop.operator_base import as_step_count
from scanopt_cli.loop.trace_rows import row

_MOST_SHIFTED = 8
"""How many rows of a mit_sot are states of their own; of more, a ring of rows is one state."""


def looped(view: ScanView, clients: Clients | None = None) -> dict[Variable, Variable]:
    """Return what replaces the outputs of a Scan, from a TracedLoop.

    Of a buffer with several initial rows, those of its ``clients`` that read all steps or the last
    row are replaced too: the buffer is the initial rows joined to a trace, and they need no join.
    """
    return _LoopBuilder(view, Lengths(view.n_steps), clients).outputs()


@dataclass(slots=True)
class _LoopBuilder:
    """One Scan on its way to a TracedLoop."""

    view: ScanView
    lengths: Lengths
    clients: Clients | None
    index: Any = field(default_factory=lambda: lscalar("index"))
    constants: dict[Variable, Variable] = field(default_factory=dict)
    values: dict[Variable, Variable] = field(default_factory=dict)
    """What stands for inner inputs of the Scan."""
    states: list[Any] = field(default_factory=list)
    initial: list[Any] = field(default_factory=list)
    next_states: list[Any] = field(default_factory=list)
    traced: list[Any] = field(default_factory=list)
    arguments: dict[Variable, str] = field(default_factory=dict)
    """What the user's step calls states and constants of the body."""
    kinds: dict[Variable, str] = field(default_factory=dict)
    """The kinds of the slots that states and constants come from."""
    traced_kinds: list[str] = field(default_factory=list)
    place: dict[Slot, int] = field(default_factory=dict)
    """Of a slot with an output, the position of its state or traced value."""

    def outputs(self) -> dict[Variable, Variable]:
        """Return what replaces the outputs of the Scan, from a TracedLoop."""
        self.view.unfreeze()
        for slot in self.view.slots:
            n_states, n_constants = len(self.states), len(self.constants)
            n_traced = len(self.traced)
            self._add(slot)
            new = [*self.states[n_states:], *islice(self.constants, n_constants, None)]
            self.kinds |= dict.fromkeys(new, slot.kind.value)
            self.traced_kinds += [slot.kind.value] * (len(self.traced) - n_traced)
            if slot.argument:
                self.arguments |= dict.fromkeys(new, slot.argument)
        condition = self.view.condition
        computed = [*self.next_states, *self.traced]
        computed += [] if condition is None else [negation(condition)]
        computed = substituted(computed, self.values, copies_all=False)
        n = len(self.states)
        for state, following in zip(self.states, computed, strict=False):
            if isinstance(following.owner_op, SpecifyShape):  # others are added here, and go again
                self.kinds.pop(state, None)
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
        names = Names(self.view.node, self.arguments, self.kinds, self.traced_kinds)
        made = TracedLoop.over(n_steps, body, self.initial, self.constants, name=name, like=names)
        n_done: Any = made[-1] if condition is not None else n_steps
        replacements: dict[Variable, Variable] = {}
        for slot in self.view.outputs():
            place = self.place[slot]
            if slot.kind in (SlotKind.UNTRACED, SlotKind.MIT_MOT):
                buffer = made[place]
            else:
                is_traced = slot.kind is SlotKind.NIT_SOT or _is_ring(slot)
                whole: Any = made[2 * n + place] if is_traced else made[n + place]
                # The trace of a state begins with the last of the initial rows.
                before = slot.n_initial - (0 if is_traced else 1)
                if before:
                    replacements |= self._steps_of(slot, whole, slot.n_initial - before)
                    start: Any = self._initial_rows(slot)
                    whole = pt.join(0, start[:before], whole)
                buffer = kept_rows(self.view, slot, whole, n_done, self.lengths)
            replacements[slot.output] = buffer
        return replacements

    def _steps_of(self, slot: Slot, trace: Any, n_before: int) -> dict[Variable, Variable]:
        """Return what replaces readers of the steps of a slot, and of the last row.

        ``trace`` has ``n_before`` rows before the steps.
        """
        if self.clients is None or not is_whole(self.view, slot, self.lengths):
            return {}
        found: dict[Variable, Variable] = {}
        for node, position in self.clients(slot.output):
            index = read_index(node, 0) if position == 0 else None
            if is_strip(index, slot.n_initial):
                found[node.outputs[0]] = trace[n_before:] if n_before else trace
            elif index is not None and index.row == -1 and n_before:
                found[node.outputs[0]] = trace[(-1, *index.rest)]
        return found

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
                self.place[slot] = len(self.states)
                # Row 0 of the buffer is at the lowest of the taps.
                self._carry_rows(slot, slot.outer_input, None, -min(0, *slot.taps))
            case _ if _is_ring(slot):
                size, buffer = slot.n_initial, self._initial_rows(slot)
                self.place[slot] = len(self.traced)
                self.traced += slot.inner_outputs
                self._carry_rows(slot, buffer[:size], size, size)
            case _:
                self._add_shifted(slot)

    def _carry(self, state: Variable, initial: Any, following: Any) -> None:
        self.states.append(state)
        self.initial.append(state.type.filter_variable(initial, allow_convert=True))
        self.next_states.append(following)

    def _initial_rows(self, slot: Slot) -> Any:
        return initial_rows(slot.outer_input, slot.n_initial, self.lengths)

    def _add_shifted(self, slot: Slot) -> None:
        """Carry the last rows of a state, each as a state, the oldest first."""
        read = dict(zip(slot.taps, slot.inner_inputs, strict=True))
        kind = slot.inner_inputs[0].type
        taps = range(-slot.n_initial, 0)
        states = [read[tap] if tap in read else kind() for tap in taps]
        following = [*states[1:], slot.inner_outputs[0]]
        buffer = self._initial_rows(slot)
        for position, (state, new) in enumerate(zip(states, following, strict=True)):
            self._carry(state, buffer[position], new)
        self.place[slot] = len(self.states) - 1

    def _carry_rows(self, slot: Slot, start: Any, size: int | None, first: int) -> None:
        """Carry rows in one array, each at its step modulo their number, tap 0 from ``first`` on.

        ``size`` is their number, if it is known.
        """
        state: Any = start.type.clone(shape=(size, *start.type.shape[1:]))()
        length = state.shape[0] if size is None else size

        def place(tap: int) -> Any:
            return (self.index + first + tap) % length

        for tap, value in zip(slot.taps, slot.inner_inputs, strict=True):
            self.values[value] = row(state, place(tap), value.type)
        new = state
        for tap, written in zip(slot.out_taps, slot.inner_outputs, strict=True):
            new = pt.set_subtensor(new[place(tap)], written)
        self._carry(state, start, new)


def _is_ring(slot: Slot) -> bool:
    """Whether the rows of a state are carried in one array."""
    return slot.n_initial > _MOST_SHIFTED


def kept_rows(view: ScanView, slot: Slot, whole: Any, n_done: Any, lengths: Lengths) -> Any:
    """Return the rows that the buffer of a slot holds, given all of its rows."""
    if is_whole(view, slot, lengths):
        return whole
    outer: Any = slot.outer_input
    room = outer if slot.kind is SlotKind.NIT_SOT else outer.shape[0]
    n_rows = n_done + slot.n_initial
    most = lengths.steps + slot.n_initial
    kept = rows(view, slot, lengths)
    if not view.is_while and lengths.provably_le(kept, most):
        # Counted from the end, if that can be: so others see how few they are.
        is_number = kept.is_constant and kept.constant > 0
        return whole[-int(kept.constant) :] if is_number else whole[n_rows - room :]
    last = whole[pt.maximum(n_rows - room, 0) :]
    if view.is_while:
        return last
    spare = pt.zeros((pt.maximum(room - n_rows, 0), *whole.shape[1:]), dtype=whole.dtype)
    return pt.join(0, last, spare)
