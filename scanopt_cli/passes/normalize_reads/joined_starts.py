"""Finds a loop's initial rows and steps joined again, which give the loop's buffer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.basic import Join
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.analysis.accesses.indices import rows_index
from scanopt_cli.analysis.accesses.row_sources import RowSource
from scanopt_cli.analysis.affine import as_affine
from scanopt_cli.analysis.initial_buffers import initial_rows
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.indexing import number
from scanopt_cli.ir.slots import Slot, SlotKind, SlotView
from scanopt_cli.pipeline.contract import PassContext


def joined_starts(
    view: SlotView, slot: Slot, lengths: Lengths, context: PassContext
) -> dict[Variable, Variable]:
    """Return the buffer of ``slot`` for each ``concatenate([start, steps])`` that equals it.

    The buffer must hold every step.
    """
    joins = [
        node
        for rows in RowSource.of(view, slot).every(context.clients)
        if slot.n_initial and not rows.n_initial and not rows.axis
        for node, position in context.clients(rows.variable)
        if position == 1
    ]
    starts = list(_starts(slot, lengths)) if joins else []
    return {
        node.outputs[0]: slot.output
        for node in joins
        if any(_joins(node, start, context) for start in starts)
    }


def _starts(slot: Slot, lengths: Lengths) -> Iterator[Variable]:
    """Yield the initial rows of a slot, as they may be written."""
    start: Any = slot.outer_input
    is_row = slot.kind is SlotKind.STATE
    if is_row:
        yield pt.expand_dims(pt.as_tensor_variable(start), 0)
    else:
        start = initial_rows(start, slot.n_initial, lengths)
        if start is slot.outer_input:
            return
        yield start
    node = start.owner
    is_read = node is not None and isinstance(node.op, Subtensor)
    index = rows_index(node, 0) if is_read else None
    if isinstance(index, slice):
        is_from_first = not is_row and index.start is index.step is None
    else:
        is_from_first = is_row and index is not None and number(index) == 0
    if is_from_first and lengths.length_of(node.inputs[0]) == as_affine(slot.n_initial):
        yield node.inputs[0]  # of two rows, ``v[:2]`` is ``v``, and of one, ``v[0]`` is its row


def _joins(node: Apply, start: Variable, context: PassContext) -> bool:
    """Whether ``node`` joins ``start`` and steps, without a cast, and nothing else."""
    if not isinstance(node.op, Join) or node.op.axis != 0 or len(node.inputs) != 2:
        return False
    first: Any = node.inputs[0]
    if len({variable.type.dtype for variable in (*node.inputs, node.outputs[0])}) > 1:
        return False
    return first is start or context.same(first) == context.same(start)
