"""The Scan that computes what a TracedLoop computes."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import scalar_from_tensor, tensor_from_scalar
from pytensor.tensor.type import TensorType

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.step_rows import StepRow, step_rows
from scanopt_cli.ir.scan_view import new_scan
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.loop.body import negation
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.loop.shapes import traced_shapes
from scanopt_cli.loop.trace_rows import is_continuous


@dataclass(slots=True)
class ScanBuilder:
    """One TracedLoop on its way to a Scan."""

    view: LoopView
    lengths: Lengths
    index: Variable
    has_room: bool
    """Whether there may be memory for a row of every step."""
    values: dict[Variable, Variable] = field(default_factory=dict)
    """What stands for variables of the body of the TracedLoop."""
    slots: list[Slot] = field(default_factory=list)
    origin: dict[Slot, Slot] = field(default_factory=dict)
    """The slot of the TracedLoop that a slot with an output comes from."""
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

    def add_state(self, slot: Slot, *, is_traced: bool, keeps_shape: bool) -> None:
        """Add a sit_sot or an untraced state."""
        (old,) = slot.inner_inputs
        start: Any = slot.outer_input
        inner = self._inside(old)
        if is_traced or (is_continuous(old) and keeps_shape and self.has_room):
            kind, outer = SlotKind.SIT_SOT, self._buffer(_as_tensor(start), inner)
        else:
            kind, outer = SlotKind.UNTRACED, inner.type.filter_variable(_as_tensor(start))
        new = _as_tensor(slot.inner_outputs[0])
        self._add(Slot(kind, 0, (-1,), (0,), [inner], [new], outer_input=outer), slot)

    def add_traced(self, slot: Slot) -> None:
        """Add a nit_sot."""
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
            sequence = outer if is_whole else outer[ahead : n_steps + ahead]
            value = sequence.type.clone(shape=sequence.type.shape[1:])()
            self._add_input(SlotKind.SEQ, value, sequence, slot)
            for read, offset in reads.items():
                if offset == ahead:
                    self.values[read] = read.type.filter_variable(value, allow_convert=True)

    def _rows_of(self, slot: Slot) -> dict[Variable, int]:
        """Return the rows that steps read of a constant, by how far they are ahead.

        There are none if it is read otherwise, too, or may be too short.
        """
        rows = self.rows.get(slot, [])
        if len(rows) != self.reads[slot.inner_inputs[0]]:
            return {}
        if not all(row.is_there(self.lengths) for row in rows):
            return {}
        return {row.inner: row.ahead for row in rows}

    def outputs(self, *, counts: bool) -> dict[Variable, Variable]:
        """Return what replaces the outputs of the TracedLoop."""
        view = self.view
        computed = [v for slot in self.slots for v in slot.inner_outputs]
        computed += [] if view.condition is None else [negation(view.condition)]
        computed = graph_replace(computed, self.values, strict=False)
        condition = computed[-1] if view.is_while else None
        body = iter(computed)
        for slot in self.slots:
            made = [next(body) for _ in slot.inner_outputs]
            slot.inner_outputs = [
                slot.inner_inputs[0].type.filter_variable(new, allow_convert=True)
                if slot.kind in (SlotKind.SIT_SOT, SlotKind.UNTRACED)
                else new
                for new in made
            ]
        counter = self._index(counts=counts, read=computed)
        found = new_scan(view, self.slots, condition)
        replacements: dict[Variable, Variable] = {}
        if counts and view.n_done is not None:
            replacements[view.n_done] = view.n_steps if counter is None else found[counter]
        for slot, old in self.origin.items():
            new: Any = found[slot]
            if old.outer_output is not None and slot.kind is not SlotKind.UNTRACED:
                is_uncertain = slot.kind is SlotKind.NIT_SOT and new.type.ndim > 1
                if is_uncertain and not self.lengths.runs():
                    replacements[old.outer_output] = self._with_row_shape(new, old)
                else:
                    replacements[old.outer_output] = new
            if old.last is not None:
                last = new if slot.kind is SlotKind.UNTRACED else new[-1]
                is_number = isinstance(old.last.type, ScalarType)
                replacements[old.last] = scalar_from_tensor(last) if is_number else last
        return replacements

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

    def _buffer(self, start: Any, inner: Variable) -> Variable:
        """Return a buffer that holds the initial value, and has room for a row of each step."""
        n_steps: Any = self.view.n_steps
        room: Any = pt.empty((n_steps + 1, *start.shape), dtype=start.dtype)
        room.tag.nan_guard_mode_check = False
        buffer = pt.set_subtensor(room[0], start)
        kind = inner.type.clone(shape=(buffer.type.shape[0], *inner.type.shape))
        made: Variable = kind.filter_variable(buffer, allow_convert=True)
        return made

    def _with_row_shape(self, trace: Any, slot: Slot) -> Variable:
        """Return a trace with the shape of its rows, which a Scan that runs no step loses."""
        _, *outer = self.view.node.inputs
        op, n_steps = self.view.op, self.view.n_steps
        shapes: Any = traced_shapes(op, outer, n_steps=n_steps)
        made: Any = trace.reshape((trace.shape[0], *shapes[slot.position]), ndim=trace.type.ndim)
        return made  # type: ignore[no-any-return]


def _as_tensor(variable: Variable) -> Any:
    return tensor_from_scalar(variable) if isinstance(variable.type, ScalarType) else variable
