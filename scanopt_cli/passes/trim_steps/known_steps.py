"""Fewer steps, and rows counted from the end, for a loop of a constant trip count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from scanopt_cli.analysis.accesses.accesses import Access, Accesses, stripped
from scanopt_cli.analysis.buffers import is_whole
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.shortening import with_steps
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import TRACED, Slot
from scanopt_cli.passes.trim_steps.fewer_steps import why_every_step
from scanopt_cli.passes.trim_steps.rows_taken import RowsTaken, Taken
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.remarks import Code, Why

# Rows are counted from the end where that saves more than one row in sixteen.
_PART = 16


@dataclass(frozen=True, slots=True)
class _ReadOutput:
    """The output of ``slot``, and the rows that each of its readers takes."""

    slot: Slot
    taken: Sequence[Taken]

    @property
    def low(self) -> int:
        """The first row that is taken, 0 if none is."""
        return min((one.ends[0] for one in self.taken if one.ends), default=0)

    @property
    def steps(self) -> int:
        """How many steps the loop must run to compute all rows that are taken."""
        last = max((one.ends[1] for one in self.taken if one.ends), default=-1)
        return max(last + 1 - self.slot.n_initial, 0)


def trim_known(
    view: ScanView, steps: int, reads: Accesses, names: Mapping[Slot, str], context: PassContext
) -> dict[Variable, Variable] | None:
    """Return readers of a loop that runs only the steps that are read.

    Readers count rows from the end where trimmed buffers can then keep fewer rows.
    """
    if steps < 1:
        return None
    lengths = Lengths(view.n_steps)
    whole = [slot for slot in view.of_kind(*TRACED) if is_whole(view, slot, lengths)]
    found = _read_outputs(view, whole, steps, context)
    if not found or not any(reads.values()):
        return None
    needed = max(1, *(output.steps for output in found))
    if needed < steps and (reason := why_every_step(view, lengths, context)) is not None:
        context.missed(view, Code.STEPS_KEPT, reason, steps=steps)
        needed = steps
    counted = [output for output in found if _gains_from_end(output, needed, reads[output.slot])]
    if needed == steps and not counted:
        return None
    results: dict[Variable, Variable] = {}
    if needed < steps:
        context.passed(view, Code.STEPS_CUT, needed=needed, steps=steps)
        results = with_steps(view, pt.constant(needed, dtype="int64"), lengths)
    for output in counted:
        context.passed(view, Code.ROWS_FROM_END, names[output.slot])
    written: dict[Variable, Variable] = {}
    for output in found if needed < steps else counted:
        written |= _rewritten(view, output, results, needed, context, from_end=output in counted)
    return written | results


def _read_outputs(
    view: ScanView, slots: Sequence[Slot], steps: int, context: PassContext
) -> list[_ReadOutput]:
    readers = RowsTaken(view, steps, context.clients)
    try:
        return [_ReadOutput(slot, readers.of(slot)) for slot in slots]
    except LookupError:
        context.missed(view, Code.STEPS_KEPT, Why.READ_OUT_OF_BOUNDS, steps=steps)
        return []


def _gains_from_end(output: _ReadOutput, steps: int, reads: Sequence[Access]) -> bool:
    """Whether rows counted from the end prove that the buffer can keep fewer rows."""
    kept = steps - max(output.low - output.slot.n_initial, 0)
    if not any(one.places for one in output.taken) or kept >= steps - steps // _PART:
        return False
    return any(read.tail is None or read.tail > kept for read in reads)


def _rewritten(
    view: ScanView,
    output: _ReadOutput,
    results: Mapping[Variable, Variable],
    needed: int,
    context: PassContext,
    *,
    from_end: bool,
) -> dict[Variable, Variable]:
    """Return the readers of one output, rewritten for the loop that runs ``needed`` steps."""
    slot, axis = output.slot, view.batch_ndim
    old = slot.output
    buffer = results.get(old, old)
    strip = stripped(view, slot, context.clients)
    steps_only: Any = None
    if strip is not None:
        steps_only = strip if buffer is old else strip.owner.op(buffer, *strip.owner.inputs[1:])
        steps_only.name = strip.name
    written: dict[Variable, Variable] = {}
    for one in output.taken:
        if one.variable in (old, strip):
            continue  # it reads first rows, which the shorter loop has too
        if steps_only is not None and (one.ends is None or one.ends[0] >= slot.n_initial):
            first, length, source = slot.n_initial, needed, steps_only
        else:
            first, length, source = 0, needed + slot.n_initial, buffer
        written[one.variable] = one.of(source, axis, first, length, from_end=from_end)
    return written
