"""How many rows each buffer of a Scan has, and whether it holds every step.

After memory saving, a Scan's buffers are trimmed: they hold the last rows only. PyTensor
differentiates such a graph without an error and returns a wrong gradient, so scanopt checks here
before it reads a buffer as a whole trace.
"""

from __future__ import annotations

from scanopt_cli.analysis.affine import AffineExpr
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.scan_lengths import with_start
from scanopt_cli.ir.slots import TRACED, Slot, SlotKind, SlotView


def rows(view: SlotView, slot: Slot, lengths: Lengths) -> AffineExpr:
    """Return how many rows the buffer of ``slot`` has (a state's initial rows included).

    The trace of a TracedLoop has a row of every step.
    """
    if slot.kind in (SlotKind.STATE, SlotKind.TRACED):
        return lengths.value_of(view.n_steps) + AffineExpr(slot.n_initial)
    if slot.kind is SlotKind.NIT_SOT:
        return lengths.value_of(slot.outer_input)
    return lengths.length_of(slot.outer_input, view.batch_ndim)


def is_whole(view: SlotView, slot: Slot, lengths: Lengths) -> bool:
    """Whether the buffer of ``slot`` provably holds its initial rows and every step.

    Initial rows ``x[:2]`` count as 2 if the taps need 2: were there fewer, the loop could not run.
    A mit_mot, an untraced state and the traces of a TracedLoop are never trimmed; other slots have
    no buffer.
    """
    if slot.kind not in TRACED:
        return True
    return _holds_all(view, slot, lengths) or _holds_all(view, slot, lengths.by_expression)


def _holds_all(view: SlotView, slot: Slot, lengths: Lengths) -> bool:
    kept = with_start(rows(view, slot, lengths), slot.n_initial)
    return kept - lengths.value_of(view.n_steps) == AffineExpr(slot.n_initial)


def is_trimmed(view: SlotView, slot: Slot, lengths: Lengths) -> bool:
    """Whether the buffer of ``slot`` is trimmed: too short for its initial rows and every step.

    It counts as trimmed if it is not provably whole, and either has a constant number of rows in a
    loop whose trip count is not constant, or provably has no more rows than a whole buffer. A
    buffer may be neither whole nor trimmed, if its length cannot be read off the graph.
    """
    if is_whole(view, slot, lengths):
        return False
    kept, steps = rows(view, slot, lengths), lengths.value_of(view.n_steps)
    is_fixed = kept.is_constant and not steps.is_constant
    return is_fixed or lengths.provably_le(kept, steps + AffineExpr(slot.n_initial))


def trimmed(view: SlotView) -> list[Slot]:
    """Return the slots whose buffers do not provably hold every step."""
    lengths = Lengths(view.n_steps)
    return [slot for slot in view.slots if not is_whole(view, slot, lengths)]
