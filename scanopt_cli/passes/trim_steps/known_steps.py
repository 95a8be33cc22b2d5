"""Fewer steps, and rows counted from the end, for a loop of a constant trip count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from scanopt_cli.analysis.accesses.accesses import Access, Accesses
from scanopt_cli.analysis.accesses.row_sources import RowSource, remade
from scanopt_cli.analysis.buffers import is_whole
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.shortening import with_steps
from scanopt_cli.ir.slots import WITH_ROWS, Slot, SlotView
from scanopt_cli.passes.trim_steps.fewer_steps import why_every_step
from scanopt_cli.passes.trim_steps.rows_taken import Taken, rows_taken
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
        """The first step whose row is taken, 0 if an initial row is or none."""
        return max(min((one.steps[0] for one in self.taken if one.steps), default=0), 0)

    @property
    def steps(self) -> int:
        """How many steps the loop must run to compute all rows that are taken."""
        return max(max((one.steps[1] for one in self.taken if one.steps), default=-1) + 1, 0)


def trim_known(
    view: SlotView, steps: int, reads: Accesses, names: Mapping[Slot, str], context: PassContext
) -> dict[Variable, Variable] | None:
    """Return readers of a loop that runs only the steps that are read.

    Readers count rows from the end where trimmed buffers can then keep fewer rows.
    """
    if steps < 1:
        return None
    lengths = Lengths(view.n_steps)
    whole = [slot for slot in view.of_kind(*WITH_ROWS) if is_whole(view, slot, lengths)]
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
    made = dict(results)
    written: dict[Variable, Variable] = {}
    for output in found if needed < steps else counted:
        written |= _rewritten(output, made, needed, from_end=output in counted)
    return written | results


def _read_outputs(
    view: SlotView, slots: Sequence[Slot], steps: int, context: PassContext
) -> list[_ReadOutput]:
    try:
        return [
            _ReadOutput(slot, list(rows_taken(RowSource.of(view, slot), steps, context.clients)))
            for slot in slots
        ]
    except LookupError:
        context.missed(view, Code.STEPS_KEPT, Why.READ_OUT_OF_BOUNDS, steps=steps)
        return []


def _gains_from_end(output: _ReadOutput, steps: int, reads: Sequence[Access]) -> bool:
    """Whether rows counted from the end prove that the buffer can keep fewer rows."""
    kept = steps - output.low
    if not any(one.places for one in output.taken) or kept >= steps - steps // _PART:
        return False
    return any(read.tail is None or read.tail > kept for read in reads)


def _rewritten(
    output: _ReadOutput, made: dict[Variable, Variable], needed: int, *, from_end: bool
) -> dict[Variable, Variable]:
    """Return the readers of one output, rewritten for the loop that runs ``needed`` steps."""
    return {
        one.variable: one.of(
            remade(one.source.variable, made) if made else one.source.variable,
            needed + one.source.n_initial,
            from_end=from_end,
        )
        for one in output.taken
        if one.variable is not one.source.variable  # it reads first rows, which are there still
    }
