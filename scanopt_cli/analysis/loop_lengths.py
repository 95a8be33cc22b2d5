"""Lengths of the outputs of loops of either design: Scans and TracedLoops.

What a Scan and the TracedLoop that it becomes have in common has the same length, told alike.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Protocol

from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.shape import Shape_i
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.analysis.affine import ZERO, AffineExpr, Atom, as_affine, total
from scanopt_cli.analysis.minima import minimum_parts
from scanopt_cli.ir.indexing import indices_of, is_full_slice, number
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.ir.scan_view import ScanView, batch_ndim, first_traced
from scanopt_cli.ir.slots import Slot, SlotKind, SlotView
from scanopt_cli.loop.operator_base import LoopOperator, LoopView


class KnownLengths(Protocol):
    """What is known of the lengths and numbers of a graph: `scanopt_cli.analysis.lengths`."""

    def value_of(self, variable: Variable) -> AffineExpr:
        """Return the integer that a scalar holds."""

    def length_of(self, variable: Variable, axis: int = 0) -> AffineExpr:
        """Return the length of an array along an axis."""

    def provably_le(self, left: AffineExpr | int, right: AffineExpr | int) -> bool:
        """Whether provably ``left <= right``."""

    def minima(self, form: AffineExpr) -> list[tuple[AffineExpr, ...]]:
        """Return, for each minimum in ``form``, ``form`` with each operand in its place."""


def steps_run(lengths: KnownLengths, variable: Variable) -> AffineExpr | None:
    """Return how many steps a loop ran, if that is what an output of a TracedLoop says.

    ``None`` if it may have stopped early.
    """
    node = variable.owner
    if node is None or not isinstance(node.op, LoopOperator) or node.op.is_while:
        return None
    view = LoopView.of_output(node, variable)
    return None if view.slots else lengths.value_of(view.n_steps)


def output_length(
    lengths: KnownLengths, node: Apply, variable: Variable, axis: int
) -> AffineExpr | None:
    """Return the length of a loop's output, ``None`` if it is not known."""
    if isinstance(node.op, LoopOperator):
        return _traced_loop_length(lengths, LoopView.of_output(node, variable), variable, axis)
    return _scan_length(lengths, node, variable, axis)


def _traced_loop_length(
    lengths: KnownLengths, view: LoopView, variable: Variable, axis: int
) -> AffineExpr | None:
    """The length of an output of a TracedLoop.

    The rows of a trace have the shape of the initial value, the first of them; a last value has
    that only as far as no step changes it.
    """
    (slot,) = view.slots
    if variable is slot.last:
        is_kept = view.op.kept_lengths[slot.position][axis]
        return lengths.length_of(slot.outer_input, axis) if is_kept else None
    if axis:
        is_state = slot.kind is SlotKind.STATE
        return lengths.length_of(slot.outer_input, axis - 1) if is_state else None
    n_done = view.n_done if view.is_while else view.n_steps
    assert n_done is not None
    return lengths.value_of(n_done) + slot.n_initial


def _scan_length(
    lengths: KnownLengths, node: Apply, variable: Variable, axis: int
) -> AffineExpr | None:
    """The length of a Scan's output.

    It is that of the initial buffer, unless the loop can stop early or runs no step.
    """
    assert variable.index is not None
    view = ScanView.of_outputs(node, variable.index)
    (slot,) = view.slots
    if slot.kind is SlotKind.UNTRACED or axis < view.batch_ndim:
        return None
    if axis == view.batch_ndim and view.is_while and slot.kind is not SlotKind.MIT_MOT:
        return _stopped_length(lengths, view, slot)
    if slot.kind is SlotKind.NIT_SOT:
        return _trace_length(lengths, view, slot) if axis == view.batch_ndim else None
    length = lengths.length_of(slot.outer_input, axis)
    return with_start(length, slot.n_initial) if axis == view.batch_ndim else length


def _trace_length(lengths: KnownLengths, view: ScanView, slot: Slot) -> AffineExpr | None:
    """The length of a nit_sot's output: 0 after 0 steps, else its buffer's.

    It is known if the buffer, too, has no rows where the loop runs no step. A minimum is 0 only if
    one of its operands is.
    """
    n_rows = lengths.value_of(slot.outer_input)
    steps = lengths.value_of(view.n_steps)
    is_known = any(
        all(lengths.provably_le(1, n) or lengths.provably_le(n_rows, n) for n in counts)
        for counts in ((steps,), *lengths.minima(steps))
    )
    return n_rows if is_known else None


def _stopped_length(lengths: KnownLengths, view: ScanView, slot: Slot) -> AffineExpr | None:
    """The length of a while loop's output, in terms of that of its first traced output.

    Both have equally many steps. ``None`` unless both buffers provably hold every step.
    """
    (first,) = ScanView.of_outputs(view.node, first_traced(view.node)).slots
    if not (holds_all(view, first, lengths) and holds_all(view, slot, lengths)):
        return None
    assert first.outer_output is not None
    stopped = AffineExpr.of(Atom(first.outer_output, view.batch_ndim))
    return stopped + (slot.n_initial - first.n_initial)


def joined_length(lengths: KnownLengths, node: Apply, axis: int) -> AffineExpr:
    """Return the length of a Join; along other axes than the one it joins, that of its parts.

    Before a trace of a state that starts as ``x[k]``, joined to it by rows, ``x[:k]`` has ``k``
    rows: were there fewer, that would raise an error. ``x[k:]`` beside ``x[:k]``, as in ``roll``,
    have the rows of x, whatever ``k`` is.
    """
    op: Any = core_op(node.op)
    if axis != batch_ndim(node) + op.axis:
        return lengths.length_of(node.inputs[0], axis)
    found = [lengths.length_of(part, axis) for part in node.inputs]
    for place, (part, trace) in enumerate(pairwise(node.inputs)):
        if (source := _halved(lengths, part, trace, axis)) is not None:
            found[place : place + 2] = lengths.length_of(source, axis), ZERO
            continue
        if axis != batch_ndim(node) or found[place].is_constant:
            continue
        if (row := _row_at_start(part, trace)) is not None:
            found[place] = with_start(found[place], row)
    return total(found)


def _halved(lengths: KnownLengths, part: Variable, other: Variable, axis: int) -> Variable | None:
    """Return what two arrays are the parts of, before and behind one place along an axis."""
    ends = []
    for one in (part, other):
        node = one.owner
        if node is None or not isinstance(node.op, Subtensor):
            return None
        indices = indices_of(node)
        if len(indices) <= axis or not all(isinstance(index, slice) for index in indices):
            return None
        if not all(is_full_slice(index) for index in indices if index is not indices[axis]):
            return None
        ends.append((node.inputs[0], indices[axis]))
    (source, one), (another, two) = ends
    if source is not another or not number(one.step, 1) == number(two.step, 1) == 1:
        return None
    behind, before = (one, two) if one.stop is None else (two, one)
    if behind.stop is not None or number(before.start, 0) != 0:
        return None
    if behind.start is None or before.stop is None:
        return None
    is_one_place = lengths.value_of(behind.start) == lengths.value_of(before.stop)
    return source if is_one_place else None


def _row_at_start(part: Variable, trace: Variable) -> int | None:
    """Return the ``k`` of ``x[k]``, the first row of a trace, if ``part`` is a slice of x."""
    source, loop = part.owner, trace.owner
    if source is None or loop is None or not isinstance(loop.op, LoopOperator):
        return None
    if not isinstance(source.op, Subtensor) or len(indices_of(source)) != 1:
        return None
    slots = LoopView.of_output(loop, trace).slots
    start = slots[0].outer_input.owner if slots and slots[0].kind is SlotKind.STATE else None
    if start is None or not isinstance(start.op, Subtensor):
        return None
    index, *rest = indices_of(start)
    is_row = start.inputs[0] is source.inputs[0] and not rest and not isinstance(index, slice)
    return number(index) if is_row else None


def rows(view: SlotView, slot: Slot, lengths: KnownLengths) -> AffineExpr:
    """Return how many rows the buffer of ``slot`` has (a state's initial rows included).

    The trace of a TracedLoop has a row of every step.
    """
    if slot.kind in (SlotKind.STATE, SlotKind.TRACED):
        return lengths.value_of(view.n_steps) + slot.n_initial
    if slot.kind is SlotKind.NIT_SOT:
        return lengths.value_of(slot.outer_input)
    return lengths.length_of(slot.outer_input, view.batch_ndim)


def holds_all(view: SlotView, slot: Slot, lengths: KnownLengths) -> bool:
    """Whether the buffer of ``slot`` has as many rows as initial rows and steps together."""
    n_rows = rows(view, slot, lengths)
    return is_start(n_rows - lengths.value_of(view.n_steps), slot.n_initial)


def gradient_limit(view: ScanView, lengths: KnownLengths) -> int | None:
    """Return after how many steps the gradient of a Scan is truncated, ``None`` if it is not.

    A limit that is provably no less than the trip count truncates nothing.
    """
    limit: int = view.op.truncate_gradient
    if limit == -1 or lengths.provably_le(lengths.value_of(view.n_steps), limit):
        return None
    return limit


def is_truncated(view: SlotView, lengths: KnownLengths) -> bool:
    """Whether the gradient of a loop is truncated, which Ops in its place would not be."""
    return isinstance(view, ScanView) and gradient_limit(view, lengths) is not None


def with_start(length: AffineExpr, n_initial: int) -> AffineExpr:
    """Return a buffer's ``length``, with ``n_initial`` for the length of ``x[:n_initial]``.

    ``n_initial`` is how many initial rows the taps need: with fewer, the loop could not run.
    """
    for atom, count in length.terms:
        if count == 1 and (_is_start_length(atom, n_initial) or _is_capped(atom, n_initial)):
            return length - AffineExpr.of(atom) + n_initial
    return length


def _is_start_length(atom: Atom, n_initial: int) -> bool:
    """Whether an atom is the length of ``x[:n_initial]``."""
    node = atom.variable.owner
    if atom.axis is None or node is None or not isinstance(node.op, Subtensor):
        return False
    indices = indices_of(node)
    index = indices[atom.axis] if atom.axis < len(indices) else None
    if not isinstance(index, slice) or index.start is not None or index.step is not None:
        return False
    return number(index.stop) == n_initial


def _is_capped(atom: Atom, n_initial: int) -> bool:
    """Whether an atom is that length as PyTensor simplifies it: ``min(n_initial, x.shape[0])``."""
    parts = minimum_parts(atom.variable) if atom.axis is None else None
    if parts is None:
        return False
    numbers = [number(part) for part in parts]
    others = [part for part, found in zip(parts, numbers, strict=True) if found is None]
    return n_initial in numbers and all(isinstance(part.owner_op, Shape_i) for part in others)


def is_start(length: AffineExpr, n_initial: int) -> bool:
    """Whether ``length`` is ``n_initial``, or the length of ``x[:n_initial]`` (`with_start`)."""
    return with_start(length, n_initial) == as_affine(n_initial)
