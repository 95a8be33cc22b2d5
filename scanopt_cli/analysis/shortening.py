"""Gives a loop a smaller trip count, or shorter buffers, where fewer of its rows are read."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.basic import Alloc, AllocEmpty
from pytensor.tensor.subtensor import IncSubtensor

from scanopt_cli.analysis.count_variables import scalar_steps
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.loop_lengths import is_start
from scanopt_cli.ir.indexing import along
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import TRACED, Slot, SlotKind, SlotView


def with_steps(view: SlotView, steps: Variable, lengths: Lengths) -> dict[Variable, Variable]:
    """Rebuild ``view`` to run ``steps`` steps, a scalar; a Scan has buffers for exactly as many.

    ``steps`` must not exceed the trip count. In a batched loop, the counts may not differ between
    the entries of the batch. Returns the new outer output of each old one.
    """
    view.unfreeze()
    for slot in view.of_kind(*TRACED):
        if slot.kind is SlotKind.NIT_SOT:
            slot.outer_input = _batched(view, steps)
        else:
            old = slot.outer_input
            slot.outer_input = _shorter_buffer(old, slot.n_initial, steps, view.batch_ndim, lengths)
    view.n_steps = _batched(view, steps)
    return view.rebuild()


def shorten(view: ScanView, slot: Slot, keep: int, lengths: Lengths) -> None:
    """Give ``slot`` a buffer for its initial rows and ``min(keep, n)`` steps."""
    if slot.kind is SlotKind.NIT_SOT:
        slot.outer_input = capped(keep, slot.outer_input, lengths)
        return
    scalar = scalar_steps(view)
    assert scalar is not None
    kept = capped(keep, scalar, lengths)
    slot.outer_input = _shorter_buffer(
        slot.outer_input, slot.n_initial, kept, view.batch_ndim, lengths
    )


def capped(most: int, steps: Variable, lengths: Lengths) -> Any:
    """Return ``min(most, steps)``, as the constant ``most`` if provably ``most <= steps``."""
    if lengths.provably_le(most, lengths.value_of(steps)):
        return pt.constant(most, dtype="int64")
    return pt.minimum(pt.constant(most, dtype="int64"), steps)


def _batched(view: SlotView, count: Any) -> Variable:
    """The scalar ``count`` with the batch axes of ``view``."""
    batched: Variable = count.dimshuffle(["x"] * view.batch_ndim) if view.batch_ndim else count
    return batched


def _shorter_buffer(
    buffer: Any, n_initial: int, steps: Any, batch_ndim: int, lengths: Lengths
) -> Any:
    """``buffer`` with ``steps`` rows after its ``n_initial`` initial rows.

    An expression of a known form is rebuilt with fewer rows; any other buffer is sliced.
    """
    node = buffer.owner
    if node is not None and isinstance(node.op, IncSubtensor) and node.op.set_instead_of_inc:
        empty, start, *bounds = node.inputs
        has_one_bound = node.op.idx_list == (slice(None, 0),) and len(bounds) == 1
        if has_one_bound and isinstance(empty.owner_op, AllocEmpty):
            known = lengths.value_of(bounds[0])
            if is_start(known, n_initial):
                count: Any = n_initial if known.is_constant else pt.tensor_from_scalar(bounds[0])
                shorter = _with_length(empty.owner, 0, _sum(count, steps))
                return node.op(shorter, start, *bounds)
    if node is not None and isinstance(node.op, Alloc):
        # Every row is the value, if the value has no axis of rows.
        value = node.inputs[0]
        if value.type.ndim < buffer.type.ndim - batch_ndim:
            return _with_length(node, 1 + batch_ndim, _sum(n_initial, steps), axis=batch_ndim)
    return buffer[along(batch_ndim, slice(None, _sum(n_initial, steps)))]


def _with_length(node: Apply, position: int, rows: Any, axis: int = 0) -> Variable:
    """Apply an Alloc or AllocEmpty with ``rows`` for the length that is its input ``position``.

    The output's type is derived from the old one. ``make_node`` would infer it again from
    everything that the other lengths depend on, which costs a walk over the graph for each loop.
    """
    inputs = list(node.inputs)
    inputs[position] = rows
    old = node.outputs[0].type
    shape = list(old.shape)
    shape[axis] = int(rows.data) if isinstance(rows, Constant) else None
    made: Apply = Apply(node.op, inputs, [old.clone(shape=tuple(shape))()])
    return made.outputs[0]


def _sum(rows: Any, steps: Any) -> Any:
    """``rows + steps``, as a constant if both are known."""
    if isinstance(rows, int) and isinstance(steps, Constant):
        return pt.constant(rows + int(steps.data), dtype="int64")
    return rows + steps
