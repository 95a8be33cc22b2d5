"""Fewer steps for a loop whose readers all leave out the last ones, for any trip count."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from scanopt_cli.analysis.accesses.accesses import Accesses
from scanopt_cli.analysis.accesses.row_sources import remade
from scanopt_cli.analysis.count_variables import as_count, scalar_steps
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.shortening import with_steps
from scanopt_cli.ir.slots import Slot, SlotKind, SlotView
from scanopt_cli.passes.trim_steps.end_reads import EndRead, end_read, only_sequences
from scanopt_cli.passes.trim_steps.fewer_steps import why_every_step
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.remarks import Code, Why, because


def trim_unknown(
    view: SlotView, reads: Accesses, lengths: Lengths, context: PassContext
) -> dict[Variable, Variable] | None:
    """Return readers of a loop without the last steps, which every reader leaves out."""
    found: list[tuple[Slot, EndRead]] = []
    for slot, accesses in reads.items():
        for access in accesses:
            reading = end_read(access, lengths)
            if reading is None:
                return None
            found.append((slot, reading))
    if not found:
        return None
    steps = lengths.steps
    fewer = min(reading.n_left_out for _, reading in found)
    if as_count(steps) is None or as_count(steps - fewer) is None:
        return None  # its coefficients do not fit in 64 bits
    reason = why_every_step(view, lengths, context)
    is_trace_sliced = any(
        slot.kind is SlotKind.NIT_SOT and not isinstance(reading.index, int)
        for slot, reading in found
    )
    if reason is None and is_trace_sliced and not lengths.runs(fewer + 1):
        # After no step, the slices would lose the shape of the rows.
        reason = because(Why.TRACE_OF_NO_STEPS)
    if reason is not None:
        context.missed(view, Code.STEPS_KEPT, reason, steps=str(steps))
        return None
    context.passed(view, Code.LAST_STEPS_CUT, fewer=fewer, steps=str(steps))
    return _without_last(view, found, fewer, lengths, context)


def _without_last(
    view: SlotView,
    found: list[tuple[Slot, EndRead]],
    fewer: int,
    lengths: Lengths,
    context: PassContext,
) -> dict[Variable, Variable]:
    """Rebuild the loop to run ``fewer`` steps less, or none; return its readers."""
    trip_count = lengths.value_of(scalar_steps(view))
    has_enough = lengths.provably_le(fewer, trip_count)
    old_count: Any = as_count(trip_count)
    # A negative count stays negative, and so stays an error.
    new_count = as_count(trip_count - fewer)
    if not has_enough:
        least: Any = pt.maximum(new_count, 0)
        least.name = f"max({trip_count - fewer},0)"
        new_count = pt.minimum(old_count, least)
    results = with_steps(view, new_count, lengths)
    written: dict[Variable, Variable] = {}
    made = dict(results)
    for _, reading in found:
        if reading.index is None:
            continue  # a loop that reads a sequence: the rows it reads are still there
        rows = remade(reading.access.source, made)
        old = reading.access.result
        length = trip_count + reading.access.n_initial
        new = None
        if only_sequences(old, context.clients, length - reading.n_left_out):
            new = reading.of_sequence(rows, fewer)
        if new is None:
            new = reading.of(rows, fewer, None if has_enough else length)
        written[old] = new
    return written | results
