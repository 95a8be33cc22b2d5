"""Lengths of the outputs of Scans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.shape import Shape_i
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.analysis.affine import AffineExpr, Atom, as_affine
from scanopt_cli.analysis.minima import minimum_parts
from scanopt_cli.ir.indexing import indices_of, number
from scanopt_cli.ir.scan_view import ScanView, first_traced
from scanopt_cli.ir.slots import Slot, SlotKind, SlotView

if TYPE_CHECKING:
    from scanopt_cli.analysis.lengths import Lengths


def scan_length(lengths: Lengths, node: Apply, variable: Variable, axis: int) -> AffineExpr | None:
    """Return the length of a Scan's output, ``None`` if it is not known.

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


def _trace_length(lengths: Lengths, view: ScanView, slot: Slot) -> AffineExpr | None:
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


def _stopped_length(lengths: Lengths, view: ScanView, slot: Slot) -> AffineExpr | None:
    """The length of a while loop's output, in terms of that of its first traced output.

    Both have equally many steps. ``None`` unless both buffers provably hold every step.
    """
    (first,) = ScanView.of_outputs(view.node, first_traced(view.node)).slots
    if not (holds_all(view, first, lengths) and holds_all(view, slot, lengths)):
        return None
    assert first.outer_output is not None
    stopped = AffineExpr.of(Atom(first.outer_output, view.batch_ndim))
    return stopped + (slot.n_initial - first.n_initial)


def rows(view: SlotView, slot: Slot, lengths: Lengths) -> AffineExpr:
    """Return how many rows the buffer of ``slot`` has (a state's initial rows included).

    The trace of a TracedLoop has a row of every step.
    """
    if slot.kind in (SlotKind.STATE, SlotKind.TRACED):
        return lengths.value_of(view.n_steps) + slot.n_initial
    if slot.kind is SlotKind.NIT_SOT:
        return lengths.value_of(slot.outer_input)
    return lengths.length_of(slot.outer_input, view.batch_ndim)


def holds_all(view: SlotView, slot: Slot, lengths: Lengths) -> bool:
    """Whether the buffer of ``slot`` has as many rows as initial rows and steps together."""
    n_rows = rows(view, slot, lengths)
    return is_start(n_rows - lengths.value_of(view.n_steps), slot.n_initial)


def gradient_limit(view: ScanView, lengths: Lengths) -> int | None:
    """Return after how many steps the gradient of a Scan is truncated, ``None`` if it is not.

    A limit that is provably no less than the trip count truncates nothing.
    """
    limit: int = view.op.truncate_gradient
    if limit == -1 or lengths.provably_le(lengths.value_of(view.n_steps), limit):
        return None
    return limit


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
