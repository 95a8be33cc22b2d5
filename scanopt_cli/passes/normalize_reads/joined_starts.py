"""Finds a loop's initial rows and steps joined again, which give the loop's buffer."""

from __future__ import annotations

from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.basic import Join

from scanopt_cli.analysis.accesses.accesses import stripped
from scanopt_cli.analysis.accesses.indices import rows_index
from scanopt_cli.analysis.affine import as_affine
from scanopt_cli.analysis.initial_buffers import initial_rows
from scanopt_cli.analysis.lengths import Lengths
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
    if steps is None or view.batch_ndim:
        return {}
    start = initial_rows(slot.outer_input, slot.n_initial, lengths)
    if start is slot.outer_input:
        return {}
    starts = [start]
    node = start.owner
    index = None if node is None else rows_index(node, 0)
    if isinstance(index, slice) and index.start is index.step is None:
        whole = node.inputs[0]
        if lengths.length_of(whole) == lengths.length_of(start) == as_affine(slot.n_initial):
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
