"""The rows that a step reads of arrays outside, in a Scan and in a TracedLoop alike.

A Scan gives each step a row of its sequences. A step of a TracedLoop indexes a constant by the
number of the step: ``x[t + 1]`` reads the row that is 1 *ahead*.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import TensorType

from scanopt_cli.analysis.affine import AffineExpr
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.loop_lengths import rows
from scanopt_cli.ir.declared_lengths import copy_of_type, ones
from scanopt_cli.ir.indexing import indices_of, number
from scanopt_cli.ir.levels import IfElse
from scanopt_cli.ir.scan_view import ScanView, batch_ndim, is_loop, scan_op, view_of
from scanopt_cli.ir.slots import Slot, SlotKind, SlotView
from scanopt_cli.loop.trace_rows import row

_NEAR = 200
"""Among how many variables that an array is computed of a loop is looked for."""
_MANY = 2_000
"""Of how many variables an array may be computed to know that no trace is among them."""


@dataclass(frozen=True, slots=True)
class RowRead:
    """What a step of a TracedLoop reads of the row ``t + ahead`` along an axis of a constant."""

    node: Apply
    slot: Slot
    axis: int
    ahead: int

    @property
    def rows(self) -> tuple[Slot, int, int]:
        """What tells these rows from others that steps read."""
        return self.slot, self.axis, self.ahead

    @property
    def row_type(self) -> TensorType:
        """The type of a row of the constant."""
        kind = self.slot.inner_inputs[0].type
        found: TensorType = kind.clone(
            shape=(*kind.shape[: self.axis], *kind.shape[self.axis + 1 :])
        )
        return found

    @property
    def rest(self) -> tuple[Any, ...]:
        """The indices of all axes but that of the rows."""
        indices = indices_of(self.node)
        return (*indices[: self.axis], *indices[self.axis + 1 :])


@dataclass(frozen=True, slots=True)
class StepRow:
    """A row that a step reads as ``inner``: in step ``t`` the row ``t + ahead`` of what is fed."""

    inner: Variable
    slot: Slot
    ahead: int = 0

    def is_whole(self, lengths: Lengths) -> bool:
        """Whether the steps provably read all rows of the array."""
        return not self.ahead and lengths.length_of(self.slot.outer_input) == lengths.steps

    def is_there(self, lengths: Lengths) -> bool:
        """Whether the array provably has a row for each step."""
        return has_rows(self.slot.outer_input, lengths.steps + self.ahead, lengths)

    def is_there_alone(self, lengths: Lengths) -> bool:
        """Whether the array provably has a row for each step, where no loop reads it.

        A loop refuses a negative number of steps, by which an array would be cut from its end. The
        array has as many rows as steps then even if that may be negative, or another loop with as
        many steps refuses it.
        """
        if lengths.alone.runs(0):
            return self.is_there(lengths)
        return self.is_whole(lengths) and (
            lengths.alone.length_of(self.slot.outer_input) == lengths.alone.steps
            or _is_counted(self.slot.outer_input, lengths)
        )

    def keeps_shape(self, lengths: Lengths) -> bool:
        """Whether the rows have the shape of a step's even where the loop runs no step.

        A Scan of no steps returns a trace of which all lengths are 0, and so are those of what is
        computed of it. What is computed of these rows and of arrays of other shapes then raises an
        error, which the loop does not.
        """
        if getattr(self.inner.type, "ndim", 0) == 0 or lengths.runs():
            return True
        return not _may_lose_shape(self.slot.outer_input)

    def at_all_steps(self, view: SlotView, lengths: Lengths) -> Any:
        """Return the rows of all steps as an array; too few if the array has too few."""
        outer: Any = self.slot.outer_input
        if self.is_whole(lengths):
            return outer
        end: Any = view.n_steps
        return outer[self.ahead : end + self.ahead] if self.ahead else outer[:end]


def _may_lose_shape(array: Variable) -> bool:
    """Whether an array may be computed of a Scan's trace whose rows are arrays.

    What `hoist-states` puts in place of such a trace is an empty array in the branch of no steps.
    States keep the shape that their buffers have before the loop, and a TracedLoop knows that of
    its traces.
    """
    found, waiting = {array}, [array]
    while waiting:
        variable = waiting.pop()
        node = variable.owner
        if node is None:
            continue
        if is_loop(node):
            if scan_op(node) is not None and getattr(variable.type, "ndim", 0) > 1:
                (slot,) = ScanView.of_outputs(node, node.outputs.index(variable)).slots
                if slot.kind is SlotKind.NIT_SOT:
                    return True
            continue
        if isinstance(node.op, IfElse) and any(
            0 in getattr(v.type, "shape", ()) for v in node.inputs[1:]
        ):
            return True
        new = [v for v in node.inputs if v not in found]
        found.update(new)
        waiting += new
        if len(found) > _MANY:
            return True
    return False


def _is_counted(array: Variable, lengths: Lengths) -> bool:
    """Whether an array is computed of what a loop with as many steps computes."""
    for variable in islice(ancestors([array]), _NEAR):
        node = variable.owner
        if node is not None and is_loop(node) and not batch_ndim(node):
            count: Any = view_of(node).n_steps
            if lengths.value_of(count) == lengths.steps:
                return True
    return False


def has_rows(array: Variable, count: AffineExpr, lengths: Lengths) -> bool:
    """Whether an array provably has ``count`` rows, which is not negative.

    ``x[:n]`` has as many if ``x`` has and ``n`` is no less, even where its length is not known.
    """
    while not lengths.provably_le(count, lengths.length_of(array)):
        if not isinstance(array.owner_op, Subtensor):
            return False
        first, *rest = indices_of(array.owner)
        is_cut = isinstance(first, slice) and first.start is first.step is None and not rest
        if not is_cut or first.stop is None:
            return False
        if not lengths.provably_le(count, lengths.value_of(first.stop)):
            return False
        array = array.owner.inputs[0]
    return True


def step_rows(view: SlotView, nodes: Iterable[Apply] | None = None) -> dict[Variable, StepRow]:
    """Return the rows that a step of a loop reads, by what stands for them in the body.

    Of a TracedLoop, ``nodes`` may name those of the body to look at.
    """
    if isinstance(view, ScanView):
        pairs = ((slot.inner_inputs[0], slot) for slot in view.of_kind(SlotKind.SEQ))
        return {inner: StepRow(inner, slot) for inner, slot in pairs}
    found = {}
    for node, slot, axis, place, step in _indexed(view, nodes):
        ahead = place - step
        if len(indices_of(node)) == 1 and axis == 0 and _is_ahead(ahead):
            found[node.outputs[0]] = StepRow(node.outputs[0], slot, int(ahead.constant))
    return found


def row_reads(view: SlotView) -> Iterator[RowRead]:
    """Yield the reads of constants of a TracedLoop at the index of the step, or behind it."""
    for node, slot, axis, place, step in _indexed(view):
        if _is_ahead(ahead := place - step):
            yield RowRead(node, slot, axis, int(ahead.constant))


def rows_ahead(view: SlotView, slot: Slot) -> int | None:
    """Return how far ahead the steps read rows of what feeds a slot, 0 for a sequence of a Scan.

    ``None`` if they read other rows, or anything else of it.
    """
    if slot.kind is not SlotKind.CONSTANT:
        return 0 if slot.kind is SlotKind.SEQ else None
    readers = [node for node, _ in view.op.fgraph.clients[slot.inner_inputs[0]]]
    found = [row for row in step_rows(view, readers).values() if row.slot is slot]
    return max((row.ahead for row in found), default=0) if len(found) == len(readers) else None


def has_rows_for_steps(view: SlotView, lengths: Lengths) -> bool:
    """Whether each array of which steps read rows provably has a row for each step."""
    if isinstance(view, ScanView):
        sequences = view.of_kind(SlotKind.SEQ)
        return all(lengths.provably_le(lengths.steps, rows(view, s, lengths)) for s in sequences)
    return all(
        lengths.provably_le(lengths.steps + ahead, lengths.length_of(slot.outer_input, axis))
        for _, slot, axis, place, step in _indexed(view)
        if _is_ahead(ahead := place - step)
    )


def rows_by_step(view: SlotView) -> Iterator[tuple[Slot, int]]:
    """Yield each constant of a TracedLoop of which a step reads a row that moves with its index.

    With it comes 1 if later steps read later rows, and -1 if they read earlier ones. A constant is
    yielded for each such read.
    """
    for _, slot, axis, place, step in _indexed(view):
        ((index, _),) = step.terms
        direction = dict(place.terms).get(index)
        if axis == 0 and direction in (1, -1):
            yield slot, direction


def _is_ahead(rows: AffineExpr) -> bool:
    return rows.is_constant and rows.constant >= 0


def _indexed(
    view: SlotView, nodes: Iterable[Apply] | None = None
) -> Iterator[tuple[Apply, Slot, int, AffineExpr, AffineExpr]]:
    """Yield what reads a constant of a TracedLoop by an index, of some ``nodes`` or of all.

    With it come the constant, the axis, the place that it reads there, and the step's number.
    """
    constants = {slot.inner_inputs[0]: slot for slot in view.of_kind(SlotKind.CONSTANT)}
    if not constants:
        return
    lengths = Lengths()
    step = lengths.value_of(view.index)
    for node in io_toposort([], view.inner_outputs()) if nodes is None else nodes:
        if isinstance(node.op, Subtensor) and node.inputs[0] in constants:
            slot = constants[node.inputs[0]]
            for axis, place in enumerate(indices_of(node)):
                if not isinstance(place, slice):
                    yield node, slot, axis, lengths.value_of(place), step


def is_read_backwards(sequence: Any) -> bool:
    """Whether a sequence is a part of a loop's trace, whose rows it reads from last to first."""
    steps = []
    while isinstance(sequence.owner_op, Subtensor):
        first, *_ = indices_of(sequence.owner)
        steps.append(number(first.step, 1) if isinstance(first, slice) else None)
        sequence = sequence.owner.inputs[0]
    is_trace = sequence.owner is not None and is_loop(sequence.owner)
    return is_trace and any(step is not None and step < 0 for step in steps)


def invariant_inputs(view: SlotView) -> dict[Variable, Variable]:
    """Return the inputs of the body that are the same in each step, with what feeds them."""
    slots = view.of_kind(SlotKind.NON_SEQ, SlotKind.CONSTANT)
    return {slot.inner_inputs[0]: slot.outer_input for slot in slots}


def add_rows(view: SlotView, rows: Any, kind: TensorType | None = None) -> Any:
    """Let a step of an unfrozen loop read a row of an array, that of its number; return the row.

    It is of type ``kind``, if that is given: outside, more lengths of 1 may be known.
    """
    if kind is None:
        kind = rows.type.clone(shape=rows.type.shape[1:])
    elif ones(rows)[1:] != getattr(kind, "broadcastable", ()):
        rows = copy_of_type(rows, kind.clone(shape=(None, *kind.shape)))
    if isinstance(view, ScanView):
        return view.add_input(SlotKind.SEQ, kind(), rows)
    return row(view.add_input(SlotKind.CONSTANT, rows.type(), rows), view.index, kind)
