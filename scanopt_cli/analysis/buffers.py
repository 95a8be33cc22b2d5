"""Whether each buffer of a Scan holds every step.

After memory saving, a Scan's buffers are trimmed: they hold the last rows only. PyTensor
differentiates such a graph without an error and returns a wrong gradient, so scanopt checks here
before it reads a buffer as a whole trace.
"""

from __future__ import annotations

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.loop_lengths import holds_all, rows
from scanopt_cli.ir.slots import TRACED, Slot, SlotView


def is_whole(view: SlotView, slot: Slot, lengths: Lengths) -> bool:
    """Whether the buffer of ``slot`` provably holds its initial rows and every step.

    Initial rows ``x[:2]`` count as 2 if the taps need 2: were there fewer, the loop could not run.
    A mit_mot, an untraced state and the traces of a TracedLoop are never trimmed; other slots have
    no buffer.
    """
    if slot.kind not in TRACED:
        return True
    return holds_all(view, slot, lengths) or holds_all(view, slot, lengths.by_expression)


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
    return is_fixed or lengths.provably_le(kept, steps + slot.n_initial)


def trimmed(view: SlotView) -> list[Slot]:
    """Return the slots whose buffers do not provably hold every step."""
    lengths = Lengths(view.n_steps)
    return [slot for slot in view.slots if not is_whole(view, slot, lengths)]
