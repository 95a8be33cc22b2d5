"""Scans whose gradient is truncated: the steps that have a gradient are a loop of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Variable

from scanopt_cli.analysis.initial_buffers import initial_rows, with_room
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.loop.operator_base import as_step_count
from scanopt_cli.loop.trace_rows import has_array_trace
from scanopt_cli.passes.scan_to_loop.loop_builder import kept_rows, looped
from scanopt_cli.remarks import Why


def truncated(view: ScanView, limit: int) -> dict[Variable, Variable] | Why:
    """Return what replaces the outputs of a Scan whose gradient is truncated, or why nothing does.

    As in PyTensor, initial rows that the last ``limit`` steps read have a gradient.
    """
    if view.is_while or view.of_kind(SlotKind.MIT_MOT):
        return Why.GRADIENT_TRUNCATED
    lengths = Lengths(view.n_steps)
    n_steps: Any = as_step_count(view.n_steps)
    n_before: Any = pt.maximum(n_steps - limit, 0)
    starts: dict[Slot, Any] = {}
    for slot in view.slots:
        if slot.n_initial:
            start: Any = initial_rows(slot.outer_input, slot.n_initial, lengths)
            starts[slot] = start[: slot.n_initial]
        elif slot.kind is SlotKind.UNTRACED:
            starts[slot] = slot.outer_input
    before = {
        slot: pt.join(0, starts[slot], _without_gradient(buffer[slot.n_initial :]))
        if slot.n_initial
        else _without_gradient(buffer)
        for slot, buffer in _steps(view, starts, 0, n_before).items()
    }
    starts = {slot: before[slot][n_before:] if slot.n_initial else before[slot] for slot in starts}
    last = _steps(view, starts, n_before, pt.minimum(n_steps, limit))
    replacements = {}
    for slot in view.outputs():
        made = last[slot]
        if slot.kind is not SlotKind.UNTRACED:
            whole = pt.join(0, before[slot], made[slot.n_initial :])
            made = kept_rows(view, slot, whole, n_steps, lengths)
        replacements[slot.output] = made
    return replacements


def _steps(view: ScanView, starts: Mapping[Slot, Any], first: Any, count: Any) -> dict[Slot, Any]:
    """Run ``count`` steps of a Scan from step ``first`` on, and return its buffers."""
    inputs = [count]
    for slot in view.slots:
        outer: Any = slot.outer_input
        if slot.kind is SlotKind.SEQ:
            outer = outer[first:]
        elif slot.kind is SlotKind.NIT_SOT:
            outer = count
        elif slot.n_initial:
            lengths = [outer.shape[axis] for axis in range(1, outer.type.ndim)]
            outer = with_room(starts[slot], [slot.n_initial + count, *lengths], slot.n_initial)
        elif slot in starts:
            outer = starts[slot]
        inputs.append(outer)
    part = ScanView.of(view.op.make_node(*inputs))
    made = looped(part)
    return {
        slot: made[output] for slot, output in zip(view.outputs(), part.node.outputs, strict=True)
    }


def _without_gradient(values: Any) -> Any:
    """Return values whose gradient is not taken."""
    return disconnected_grad(values) if has_array_trace(values.type) else values
