"""Finds a loop's initial rows and steps joined again, which give the loop's buffer."""

from __future__ import annotations

from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.basic import AllocEmpty, Join
from pytensor.tensor.subtensor import IncSubtensor

from scanopt_cli.analysis.accesses.accesses import stripped
from scanopt_cli.analysis.accesses.indices import rows_index
from scanopt_cli.analysis.affine import AffineExpr
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.scan_lengths import with_start
from scanopt_cli.ir.indexing import indices_of, number
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import Slot
from scanopt_cli.pipeline.contract import PassContext


def joined_starts(
    view: ScanView, slot: Slot, lengths: Lengths, context: PassContext
) -> dict[Variable, Variable]:
    """Return the buffer of ``slot`` for each ``concatenate([start, steps])`` that equals it.

    The buffer must hold every step.
    """
    steps = stripped(view, slot, context.clients)
    start = None if view.batch_ndim else _start(slot, lengths)
    if steps is None or start is None:
        return {}
    starts = [start]
    node = start.owner
    index = None if node is None else rows_index(node, 0)
    if isinstance(index, slice) and index.start is index.step is None:
        whole = node.inputs[0]
        if lengths.length_of(whole) == lengths.length_of(start) == AffineExpr(slot.n_initial):
            starts.append(whole)  # ``v[:2]`` of two rows is ``v``
    return {
        node.outputs[0]: slot.output
        for node, position in context.clients(steps)
        if position == 1 and any(_joins(node, one, steps, context) for one in starts)
    }


def _joins(node: Apply, start: Variable, steps: Variable, context: PassContext) -> bool:
    """Whether ``node`` joins ``start`` and ``steps``, without a cast, and nothing else."""
    if not isinstance(node.op, Join) or node.op.axis != 0 or len(node.inputs) != 2:
        return False
    first: Any = node.inputs[0]
    result: Any = node.outputs[0].type
    if {first.type.dtype, result.dtype} != {steps.type.dtype}:
        return False
    return first is start or context.same(first) == context.same(start)


def _start(slot: Slot, lengths: Lengths) -> Any:
    """The initial rows, if the initial buffer is ``empty(shape)[:n].set(start)``; else ``None``.

    ``start`` must fill those rows as it is, without a cast and without being broadcast.
    """
    node = slot.outer_input.owner
    if node is None or not isinstance(node.op, IncSubtensor) or not node.op.set_instead_of_inc:
        return None
    empty, start = node.inputs[:2]
    if empty.owner is None or not isinstance(empty.owner.op, AllocEmpty):
        return None
    index, *rest = indices_of(node)
    if rest or not isinstance(index, slice) or index.start is not None or index.stop is None:
        return None
    if number(index.step, 1) != 1 or start.type.ndim != empty.type.ndim:
        return None
    if with_start(lengths.value_of(index.stop), slot.n_initial) != AffineExpr(slot.n_initial):
        return None
    if with_start(lengths.length_of(start), slot.n_initial) != AffineExpr(slot.n_initial):
        return None
    others = range(1, start.type.ndim)
    is_same = all(
        lengths.length_of(start, axis) == lengths.length_of(empty, axis) for axis in others
    )
    return start if is_same and start.type.dtype == empty.type.dtype else None
