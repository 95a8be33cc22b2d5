"""Turn the loops of `scanopt_cli.loop` into PyTensor's Scans."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import scalar_from_tensor, tensor_from_scalar
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorConstant

from scanopt_cli.analysis.affine import AffineExpr
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.indexing import indices_of
from scanopt_cli.ir.scan_view import new_scan
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.loop.body import negation
from scanopt_cli.loop.loop_view import LoopView
from scanopt_cli.loop.shapes import traced_shapes
from scanopt_cli.loop.trace_rows import is_continuous
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import TracedLoopPass
from scanopt_cli.remarks import Code, Why

_MOST_ROWS = 10**9
"""A Scan has room for so many rows, at most, of a state whose last value alone is read."""


@dataclass(frozen=True)
class LoopToScan(TracedLoopPass):
    """Turn a TracedLoop into a Scan, for those who have rewrites or backends for Scans only.

    Legal cases, one for each kind of slot:

    1. A state becomes a sit_sot, whose buffer is the trace. It becomes an untraced state if nothing
       reads its trace and it is no array of real numbers, a step may change its shape, or the loop
       may have more steps than there is memory for.
    2. A traced value becomes a nit_sot.
    3. A constant becomes a sequence if steps read nothing of it but the row at the index, or a
       constant number of rows behind it, and it provably has as many rows. Other constants become
       non-sequences.
    4. The index becomes a sequence if it is read, or an untraced state if a condition may end the
       loop. So is counted how many steps a loop with a condition runs.
    5. A condition to go on becomes a stop condition.

    Preconditions: no trace of what is no array is read (a random generator's, say), there may be
    memory for the traces that are read, and no step works in place.

    A Scan that runs no step gives traced vectors and matrices the shape ``(0, 0)``. If that may be,
    a Reshape restores the lengths of a row, unless PyTensor takes it away when it compiles.

    A `Loop` becomes a Scan likewise.
    """

    name: ClassVar[str] = "loop-to-scan"
    undoes: ClassVar[str] = "scan-to-loop"
    accepts_in_place: ClassVar[bool] = False
    accepts_untraced: ClassVar[bool] = True

    def rewrite(self, view: LoopView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs that are read, from a Scan."""
        traces = [s.outer_output for s in view.outputs() if context.clients(s.outer_output)]
        if not all(isinstance(trace.type, TensorType) for trace in traces if trace is not None):
            context.missed(view, Code.LOOP_KEPT, Why.TRACE_OF_NO_TENSOR)
            return None
        has_room = _has_room(view)
        if any(trace is not None for trace in traces) and not has_room:
            context.missed(view, Code.LOOP_KEPT, Why.NO_ROOM_FOR_TRACE)
            return None
        context.passed(view, Code.LOOP_TURNED)
        kept = dict(zip(view.of_kind(SlotKind.STATE), view.op.kept_lengths, strict=True))
        view.unfreeze()
        (index,) = view.of_kind(SlotKind.INDEX)[0].inner_inputs
        made = _ScanBuilder(view, Lengths(view.n_steps), index, has_room)
        for slot in view.slots:
            if slot.kind is SlotKind.STATE:
                made.add_state(
                    slot, is_traced=slot.outer_output in traces, keeps_shape=all(kept[slot])
                )
            elif slot.kind is SlotKind.TRACED and slot.outer_output in traces:
                made.add_traced(slot)
            elif slot.kind is SlotKind.CONSTANT:
                made.add_constant(slot)
        return made.outputs(counts=bool(context.clients(view.n_done)))


@dataclass(slots=True)
class _ScanBuilder:
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
        value, rows = _as_tensor(slot.inner_outputs[0]), self.view.n_steps
        self._add(Slot(SlotKind.NIT_SOT, 0, (), (0,), [], [value], outer_input=rows), slot)

    def add_constant(self, slot: Slot) -> None:
        """Add sequences or a non-sequence."""
        inner: Any
        outer: Any
        (inner,), outer = slot.inner_inputs, _as_tensor(slot.outer_input)
        reads = self._rows_read(inner, outer)
        if reads is None:
            self._add(Slot.of_input(SlotKind.NON_SEQ, self._inside(inner), outer))
            return
        n_steps: Any = self.view.n_steps
        for ahead in sorted(set(reads.values())):
            is_whole = not ahead and self.lengths.length_of(outer) == self.lengths.steps
            sequence = outer if is_whole else outer[ahead : n_steps + ahead]
            value = sequence.type.clone(shape=sequence.type.shape[1:])()
            self._add(Slot.of_input(SlotKind.SEQ, value, sequence))
            for read, offset in reads.items():
                if offset == ahead:
                    self.values[read] = read.type.filter_variable(value, allow_convert=True)

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
        found = new_scan(view.n_steps, self.slots, condition, view.op.name)
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
            self._add(Slot.of_input(SlotKind.SEQ, self.index, steps))
        return None

    def _add(self, slot: Slot, origin: Slot | None = None) -> None:
        self.slots.append(slot)
        if origin is not None:
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

    def _rows_read(self, constant: Variable, outer: Variable) -> dict[Variable, int] | None:
        """Return the rows that steps read of a constant, by how far they are behind the index.

        ``None`` if the constant is read otherwise, or may be too short.
        """
        if not isinstance(constant.type, TensorType) or not constant.type.ndim:
            return None
        outputs = self.view.inner_outputs()
        found: dict[Variable, int] = {}
        inside = Lengths()
        for node in io_toposort([], outputs):
            if constant not in node.inputs:
                continue
            if not isinstance(node.op, Subtensor) or constant in node.inputs[1:]:
                return None
            place, *rest = indices_of(node)
            if isinstance(place, slice) or rest:
                return None
            ahead = inside.value_of(place) - inside.value_of(self.index)
            if not ahead.is_constant or ahead.constant < 0:
                return None
            found[node.outputs[0]] = ahead.constant
        if constant in outputs or not found:
            return None
        needed = self.lengths.steps + AffineExpr(max(found.values()))
        return found if self.lengths.provably_le(needed, self.lengths.length_of(outer)) else None


def _has_room(view: LoopView) -> bool:
    """Whether there may be memory for a row of every step."""
    numbers = (v.data for v in ancestors([view.n_steps]) if isinstance(v, TensorConstant))
    return all(np.all(number <= _MOST_ROWS) for number in numbers)


def _as_tensor(variable: Variable) -> Any:
    return tensor_from_scalar(variable) if isinstance(variable.type, ScalarType) else variable
