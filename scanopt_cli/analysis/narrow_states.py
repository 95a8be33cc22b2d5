"""Small integers that a loop counts or multiplies up, and after how many steps they may wrap."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pytensor.graph.basic import Variable
from pytensor.scalar import basic as ps

from scanopt_cli.analysis.initial_buffers import initial_rows
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.state_changes import NEUTRAL, change
from scanopt_cli.analysis.value_ranges import Range, ValueRanges, of_dtype, step_ranges
from scanopt_cli.ir.slots import STATES, Slot, SlotKind, SlotView

NARROW = frozenset({"int8", "uint8", "int16", "uint16"})
"""The dtypes that as few steps as a loop may have can fill."""


@dataclass(frozen=True, slots=True)
class Growth:
    """What each step adds to a state, or multiplies it by.

    ``steps`` is the least number of steps after which it may not fit its dtype any more.
    """

    slot: Slot
    change: Range
    is_product: bool
    steps: int


def wrapping_states(view: SlotView) -> list[Growth]:
    """Return the states of narrow integers that may wrap, given what they start with.

    A start that is not known is taken for 0 (of a product, for 1). Left out is a state of a loop
    that provably runs too few steps, and one that is bounded otherwise, by a minimum or remainder.
    """
    found = []
    steps = Lengths(view.n_steps).steps
    for slot in view.of_kind(*STATES):
        if slot.kind is SlotKind.MIT_MOT or slot.taps not in ((-1,), ()):
            continue
        ((state,), (update,)) = slot.inner_inputs, slot.inner_outputs
        dtype = str(getattr(state.type, "dtype", ""))
        if dtype not in NARROW:
            continue
        growth = _growth(slot, state, update, view)
        if growth is None or (steps.is_constant and steps.constant < growth.steps):
            continue
        found.append(growth)
    return found


def _growth(slot: Slot, state: Variable, update: Variable, view: SlotView) -> Growth | None:
    ranges = step_ranges(view)
    start = ValueRanges().of(_start_of(slot))
    held = of_dtype(str(state.type.dtype))
    added = change(update, state, ranges, ps.Add)
    if added is not None:
        begin = NEUTRAL[ps.Add] if held.is_within(start) else start
        steps = min(
            _steps_to(begin.high, added.high, held.high),
            _steps_to(-begin.low, -added.low, -held.low),
        )
        return Growth(slot, added, False, int(steps)) if math.isfinite(steps) else None
    factor = change(update, state, ranges, ps.Mul)
    if factor is None:
        return None
    begin = NEUTRAL[ps.Mul] if held.is_within(start) else start
    least, most = max(abs(begin.low), abs(begin.high)), max(abs(factor.low), abs(factor.high))
    if least < 1 or most < 2:
        return None
    steps = math.floor(math.log(held.high / least, most) + 1e-9) + 1
    return Growth(slot, factor, True, max(steps, 1))


def _steps_to(begin: float, most: float, limit: float) -> float:
    """Return how many steps that add ``most`` at most take to pass ``limit``."""
    return math.floor((limit - begin) / most) + 1 if most > 0 else math.inf


def _start_of(slot: Slot) -> Variable:
    """Return what holds the values that a state of one tap starts with."""
    if slot.kind is SlotKind.SIT_SOT:
        return initial_rows(slot.outer_input, 1, Lengths())
    return slot.outer_input
