"""The Scan that computes what a TracedLoop computes."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import scalar_from_tensor, tensor_from_scalar
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.type import TensorType

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.step_rows import StepRow, step_rows
from scanopt_cli.ir.graph import substituted
from scanopt_cli.ir.indexing import number
from scanopt_cli.ir.naming import Clients
from scanopt_cli.ir.scan_view import new_scan
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.loop.body import negation
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.loop.shapes import traced_shapes
from scanopt_cli.loop.trace_rows import is_continuous
from scanopt_cli.passes.loop_to_scan.initial_buffers import buffer_of, first_rows_of, rows_of
from scanopt_cli.passes.loop_to_scan.rings import Ring
from scanopt_cli.passes.loop_to_scan.shifted_states import readers_of, starts_with

_IN_BUFFERS = frozenset({SlotKind.MIT_SOT, SlotKind.SIT_SOT})


@dataclass(slots=True)
class ScanBuilder:
    """One TracedLoop on its way to a Scan."""

    view: LoopView
    lengths: Lengths
    index: Variable
    has_room: bool
    """Whether there may be memory for a row of every step."""
    clients: Clients
    values: dict[Variable, Variable] = field(default_factory=dict)
    """What stands for variables of the body of the TracedLoop."""
    slots: list[Slot] = field(default_factory=list)
    origin: dict[Slot, Slot] = field(default_factory=dict)
    """The slot of the TracedLoop that a slot with an output comes from."""
    chains: dict[Slot, list[Slot]] = field(default_factory=dict)
    """The chains of states that have a buffer, by the newest state."""
    traced: dict[Slot, Slot | None] = field(default_factory=dict)
    """The slots that trace what is written into rings, by mit_sots made of these, if any do."""
    sums: dict[int, Variable] = field(default_factory=dict)
    rows: dict[Slot, list[StepRow]] = field(init=False, default_factory=lambda: defaultdict(list))
    """The rows that steps read of each constant."""
    reads: Counter[Variable] = field(init=False, default_factory=Counter)
    """How often the body, or what it returns, reads a variable."""

    def __post_init__(self) -> None:
        """Look up how steps read constants."""
        outputs = self.view.inner_outputs()
        self.reads.update(outputs)
        self.reads.update(v for node in io_toposort([], outputs) for v in node.inputs)
        for row in step_rows(self.view).values():
            self.rows[row.slot].append(row)

    def add_state(self, chain: list[Slot], *, is_traced: bool, keeps_shape: bool) -> None:
        """Add a mit_sot or sit_sot, or untraced states, of a chain of states: `chains_of`."""
        newest = chain[-1]
        (old,), formers = newest.inner_inputs, {slot.former for slot in chain}
        was_one = bool(formers & _IN_BUFFERS)
        is_for_buffer = was_one or (is_continuous(old) and keeps_shape)
        is_untraced = SlotKind.UNTRACED in formers or not self.has_room
        if not is_traced and (is_untraced or not is_for_buffer):
            for slot in chain:
                self._add_untraced(slot)
            return
        read = [
            (place - len(chain), slot.inner_inputs[0])
            for place, slot in enumerate(chain)
            if not place or self.reads[slot.inner_inputs[0]] > 1
        ]
        inner = [self._inside(variable) for _, variable in read]
        rows = rows_of([_as_tensor(slot.outer_input) for slot in chain])
        outer = self._buffer(rows, len(chain), inner[0], was_one=was_one)
        kind = SlotKind.SIT_SOT if len(chain) == 1 else SlotKind.MIT_SOT
        taps, new = tuple(tap for tap, _ in read), [_as_tensor(newest.inner_outputs[0])]
        self._add(Slot(kind, 0, taps, (0,), inner, new, outer_input=outer), newest)
        self.chains[newest] = chain

    def add_mit_mot(self, ring: Ring) -> None:
        """Add a mit_mot, whose taps are the offsets of a ring."""
        made = self._of_ring(SlotKind.MIT_MOT, ring, dict(ring.reads))
        made.out_taps = tuple(offset for offset, _ in ring.writes)

    def add_ring(self, ring: Ring, traced: Slot | None) -> None:
        """Add a mit_sot of the rows of a ring, which is traced by the slot ``traced`` if any."""
        size, start = ring.size, ring.slot.outer_input
        taps = {row: offset % size - size for row, offset in ring.reads.items()}
        made = self._of_ring(SlotKind.MIT_SOT, ring, taps)
        whole = first_rows_of(start, size)
        rows = start if whole is None else whole
        was_one = ring.slot.former is SlotKind.MIT_SOT
        made.outer_input = self._buffer(rows, size, made.inner_inputs[0], was_one=was_one)
        self.traced[made] = traced

    def _of_ring(self, kind: SlotKind, ring: Ring, taps: dict[Variable, int]) -> Slot:
        """Add a slot that reads rows of a ring at ``taps``, and give what it reads its names."""
        inner = {tap: row.type() for row, tap in sorted(taps.items(), key=lambda pair: pair[1])}
        self.values |= {row: inner[tap] for row, tap in taps.items()}
        new = [_as_tensor(value) for _, value in ring.writes]
        outer = ring.slot.outer_input
        made = Slot(kind, 0, tuple(inner), (0,), list(inner.values()), new, outer_input=outer)
        self._add(made, ring.slot)
        return made

    def _buffer(self, rows: Any, count: int, inner: Any, *, was_one: bool) -> Variable:
        return buffer_of(
            rows, count, inner.type, self.lengths, self._rows_and_steps, was_one=was_one
        )

    def _add_untraced(self, slot: Slot) -> None:
        inner = self._inside(slot.inner_inputs[0])
        outer = inner.type.filter_variable(_as_tensor(slot.outer_input))
        new = [_as_tensor(slot.inner_outputs[0])]
        self._add(Slot(SlotKind.UNTRACED, 0, (-1,), (0,), [inner], new, outer_input=outer), slot)

    def was_traced(self, slot: Slot) -> bool:
        """Whether a state was a nit_sot, whose last value is carried, and there is a last value."""
        is_state = slot.kind is SlotKind.STATE and slot.former is SlotKind.NIT_SOT
        return is_state and not self.reads[slot.inner_inputs[0]] and self.lengths.runs()

    def add_traced(self, slot: Slot) -> None:
        """Add a nit_sot, of a traced value or of a state that was one."""
        value = _as_tensor(slot.inner_outputs[0])
        self._add(Slot.of_trace(value, self.view.n_steps), slot)

    def add_constant(self, slot: Slot) -> None:
        """Add sequences or a non-sequence."""
        inner: Any
        outer: Any
        (inner,), outer = slot.inner_inputs, _as_tensor(slot.outer_input)
        reads = self._rows_of(slot)
        if not reads:
            self._add_input(SlotKind.NON_SEQ, self._inside(inner), outer, slot)
            return
        n_steps: Any = self.view.n_steps
        for ahead in sorted(set(reads.values())):
            is_whole = not ahead and self.lengths.length_of(outer) == self.lengths.steps
            is_whole |= not ahead and slot.former is SlotKind.SEQ
            sequence = outer if is_whole else outer[ahead : n_steps + ahead]
            value = sequence.type.clone(shape=sequence.type.shape[1:])()
            self._add_input(SlotKind.SEQ, value, sequence, slot)
            for read, offset in reads.items():
                if offset == ahead:
                    self.values[read] = read.type.filter_variable(value, allow_convert=True)

    def _rows_of(self, slot: Slot) -> dict[Variable, int]:
        """Return the rows that steps read of a constant, by how far they are ahead.

        There are none if it is read otherwise, too, or may be too short, unless it was a sequence.
        """
        rows = self.rows.get(slot, [])
        if len(rows) != self.reads[slot.inner_inputs[0]]:
            return {}
        if not all(row.is_there(self.lengths) or _was_sequence(row) for row in rows):
            return {}
        return {row.inner: row.ahead for row in rows}

    def outputs(self, *, counts: bool) -> dict[Variable, Variable]:
        """Return what replaces the outputs of the TracedLoop."""
        view = self.view
        computed = [v for slot in self.slots for v in slot.inner_outputs]
        computed += [] if view.condition is None else [negation(view.condition)]
        computed = substituted(computed, self.values, copies_all=False)
        condition = computed[-1] if view.is_while else None
        body = iter(computed)
        for slot in self.slots:
            made = [next(body) for _ in slot.inner_outputs]
            slot.inner_outputs = [self._next(slot, new) for new in made]
        counter = self._index(counts=counts, read=computed)
        found = new_scan(view, self.slots, condition)
        replacements: dict[Variable, Variable] = {}
        if counts and view.n_done is not None:
            replacements[view.n_done] = view.n_steps if counter is None else found[counter]
        for slot, old in self.origin.items():
            new: Any = found[slot]
            if slot.kind is SlotKind.UNTRACED:
                assert old.last is not None
                is_number = isinstance(old.last.type, ScalarType)
                replacements[old.last] = scalar_from_tensor(new) if is_number else new
            elif slot.kind is SlotKind.NIT_SOT and old.last is not None:
                replacements[old.last] = new[-1]
            elif slot.kind is SlotKind.NIT_SOT:
                replacements[old.output] = self._with_row_shape(new, old)
            elif slot.kind is SlotKind.MIT_MOT:
                assert old.last is not None
                replacements[old.last] = new
            elif slot in self.traced:
                replacements |= self._rows_of_ring(slot, old, new)
            else:
                replacements |= self._rows_of_buffer(self.chains[old], new)
        return replacements

    def _rows_of_buffer(self, chain: list[Slot], buffer: Any) -> dict[Variable, Variable]:
        """Return what replaces the outputs of the states of a chain, and some of their readers."""
        found: dict[Variable, Variable] = {}
        behind = len(chain)
        for place, slot in enumerate(chain):
            behind -= 1
            if slot.last is not None:
                last = buffer[-1 - behind]
                is_number = isinstance(slot.last.type, ScalarType)
                found[slot.last] = scalar_from_tensor(last) if is_number else last
            if slot.outer_output is not None:
                is_part = place or behind
                rows = buffer[place or None : -behind if behind else None] if is_part else buffer
                found[slot.outer_output] = rows
        trace = chain[-1].outer_output
        if len(chain) > 1 and trace is not None:
            is_start = partial(starts_with, chain)
            found |= readers_of(trace, len(chain) - 1, buffer, self.clients, is_start)
        return found

    def _rows_of_ring(self, slot: Slot, state: Slot, buffer: Any) -> dict[Variable, Variable]:
        """Return what replaces the trace of what is written into a ring, and its readers."""
        traced, size = self.traced[slot], slot.n_initial
        if traced is None:
            return {}

        def is_start(variable: Variable) -> bool:
            rows, start = first_rows_of(variable, size), state.outer_input
            return variable is start or (rows is not None and rows is first_rows_of(start, size))

        runs = self.lengths.runs()
        found = readers_of(traced.output, size, buffer, self.clients, is_start, has_row=runs)
        return {traced.output: buffer[size:]} | found

    def _next(self, slot: Slot, new: Any) -> Variable:
        """Return what a step computes for a slot, of the type that it must have."""
        if slot.kind in (SlotKind.NIT_SOT, SlotKind.MIT_MOT):
            return new  # type: ignore[no-any-return]
        wanted = slot.inner_inputs[0].type
        if self.origin[slot].former in _IN_BUFFERS:
            # A Scan need not know that each step keeps the lengths, and `scan-to-loop` says so.
            given = new.owner.inputs[0] if isinstance(new.owner_op, SpecifyShape) else new
            if (given.type.dtype, given.type.broadcastable) == (wanted.dtype, wanted.broadcastable):
                return given  # type: ignore[no-any-return]
        made: Variable = wanted.filter_variable(new, allow_convert=True)
        return made

    def _index(self, *, counts: bool, read: list[Variable]) -> Slot | None:
        """Add what the index is read from; return the state that counts the steps, if any."""
        is_read = self.index in ancestors(read)
        if self.view.is_while and (counts or is_read):
            following: Any = self.index
            start = pt.constant(0, dtype="int64")
            new = [following + 1]
            slot = Slot(SlotKind.UNTRACED, 0, (-1,), (0,), [self.index], new, outer_input=start)
            self.slots.append(slot)
            return slot
        if is_read:
            steps = pt.arange(self.view.n_steps, dtype="int64")
            self.slots.append(Slot.of_input(SlotKind.SEQ, self.index, steps))
        return None

    def _add_input(self, kind: SlotKind, inner: Variable, outer: Variable, origin: Slot) -> None:
        slot = Slot.of_input(kind, inner, outer)
        slot.argument = origin.argument
        self.slots.append(slot)

    def _add(self, slot: Slot, origin: Slot) -> None:
        slot.argument = origin.argument
        self.slots.append(slot)
        self.origin[slot] = origin

    def _inside(self, old: Variable) -> Variable:
        """Return a new tensor of the body, which is read where the TracedLoop reads ``old``."""
        kind = old.type
        is_number = isinstance(kind, ScalarType)
        inner: Variable = TensorType(kind.dtype, shape=())() if is_number else kind()
        self.values[old] = scalar_from_tensor(inner) if is_number else inner
        return inner

    def _rows_and_steps(self, count: int) -> Any:
        """Return ``count`` more than the number of steps."""
        if count not in self.sums:
            n_steps: Any = self.view.n_steps
            node = n_steps.owner
            if isinstance(n_steps, Constant):
                self.sums[count] = pt.constant(int(n_steps.data) + count, dtype="int64")
            elif node is not None and node.op == pt.sub and number(node.inputs[1]) == count:
                self.sums[count] = node.inputs[0]
            else:
                self.sums[count] = n_steps + pt.constant(count, dtype="int64")
        return self.sums[count]

    def _with_row_shape(self, trace: Any, slot: Slot) -> Variable:
        """Return a trace with the shape of its rows, which a Scan that runs no step loses.

        That of a value that a Scan traced had no other shape.
        """
        if trace.type.ndim == 1 or slot.former is SlotKind.NIT_SOT or self.lengths.runs():
            return trace  # type: ignore[no-any-return]
        _, *outer = self.view.node.inputs
        op, n_steps = self.view.op, self.view.n_steps
        shapes: Any = traced_shapes(op, outer, n_steps=n_steps)
        made: Any = trace.reshape((trace.shape[0], *shapes[slot.position]), ndim=trace.type.ndim)
        return made  # type: ignore[no-any-return]


def _was_sequence(row: StepRow) -> bool:
    """Whether a row is one of a Scan's sequence, which must have a row for each step."""
    return row.slot.former is SlotKind.SEQ and not row.ahead


def _as_tensor(variable: Variable) -> Any:
    return tensor_from_scalar(variable) if isinstance(variable.type, ScalarType) else variable
