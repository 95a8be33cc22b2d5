"""What a loop keeps: how many rows each buffer of a Scan has, and whether that is every step.

After memory saving, a Scan's buffers no longer hold every step. PyTensor differentiates such a
graph without complaint and gives a wrong number, so scanopt asks here before it does anything that
reads a buffer as a whole history.
"""

from __future__ import annotations

from scanopt_cli.analysis.lengths import AffineExpr, Lengths, with_start
from scanopt_cli.ir.scan_view import TRACED, ScanView, Slot, SlotKind


def rows(view: ScanView, slot: Slot, lengths: Lengths) -> AffineExpr:
    """Return how many rows the buffer of ``slot`` has (a state's start included)."""
    if slot.kind is SlotKind.NIT_SOT:
        return lengths.value_of(slot.outer_input)
    return lengths.length_of(slot.outer_input, view.batch_ndim)


def is_whole(view: ScanView, slot: Slot, lengths: Lengths) -> bool:
    """Whether the buffer of ``slot`` is shown to hold its start and every step.

    A start ``x[:2]`` counts as long as the taps reach: were it shorter, the loop could not run.
    A mit_mot and an untraced state are never trimmed; other slots have no buffer.
    """
    if slot.kind not in TRACED:
        return True
    by_expression = Lengths(view.n_steps, static=False)
    return any(_holds_all(view, slot, known) for known in (lengths, by_expression))


def _holds_all(view: ScanView, slot: Slot, lengths: Lengths) -> bool:
    kept = with_start(rows(view, slot, lengths), slot.n_initial)
    return kept - lengths.value_of(view.n_steps) == AffineExpr(slot.n_initial)


def is_trimmed(view: ScanView, slot: Slot, lengths: Lengths) -> bool:
    """Whether the buffer of ``slot`` is shown to be shorter than its start and every step.

    A buffer may be neither whole nor trimmed, if its length cannot be read off the graph.
    """
    if is_whole(view, slot, lengths):
        return False
    kept, steps = rows(view, slot, lengths), lengths.value_of(view.n_steps)
    is_fixed = kept.is_constant and not steps.is_constant
    return is_fixed or lengths.provably_le(kept, steps + AffineExpr(slot.n_initial))


def trimmed(view: ScanView) -> list[Slot]:
    """Return the slots whose buffers are not shown to hold every step."""
    lengths = Lengths(view.n_steps)
    return [slot for slot in view.slots if not is_whole(view, slot, lengths)]
