"""Remove the states and sequences of a loop that are zero in every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace

from scanopt_cli.analysis.affine import ZERO, AffineExpr
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.row_runs import is_zero
from scanopt_cli.analysis.row_values import RowAnalysis
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.passes.remove_zeros.zeros import zeros_among
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import ScanPass
from scanopt_cli.remarks import Code


@dataclass(frozen=True)
class RemoveZeros(ScanPass):
    """Remove states and sequences that are zero in every step.

    A gradient carries a cotangent for every state of the loop, including states that the cost does
    not depend on. Such a cotangent stays zero, and products with it are wasted work.

    Legal cases:

    1. States that start with zeros and whose updates are zero as long as all these states are. The
       pass finds the largest such set, so states that depend on each other are found together.
    2. Sequences of which every row is provably zero.

    The body reads literal zeros in their place, which ``simplify`` then folds into their users.
    Outside, the trace of such a state becomes a buffer of zeros.

    Preconditions: the expression that makes the buffer proves that the initial rows are zero, and
    computing it cannot fail; a buffer with room for more steps than the loop runs is zero
    throughout, since no step writes its last rows. An update is zero by products with a zero,
    quotients of a zero, sums of zeros, functions that are zero at zero, and Ops that only move
    entries. The loop has no stop condition and is not batched, no step works in place, and at least
    one other output remains.

    As in PyTensor's own rewrites, a zero times infinity or NaN counts as zero, and -0.0 as 0.0. A
    removed sequence that is shorter than the trip count no longer raises an error.

    Out of scope: mit_mots (see ``mit-mot-to-sit-sot``), nit_sots, constants other than zero (see
    ``inline-constants``), and zeros that pass through loops in the body.
    """

    name: ClassVar[str] = "remove-zeros"
    repeats: ClassVar[bool] = True
    accepts_in_place: ClassVar[bool] = False
    accepts_batched: ClassVar[bool] = False
    accepts_while: ClassVar[bool] = False

    def rewrite(self, view: ScanView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a Scan without the zero slots."""
        candidates = view.of_kind(SlotKind.SEQ, SlotKind.MIT_SOT, SlotKind.SIT_SOT)
        if not candidates:
            return None
        lengths = Lengths(view.n_steps)
        starting = [slot for slot in candidates if _starts_zero(slot, lengths)]
        found = _zero_slots(view, starting)
        kept = [slot for slot in view.slots if slot not in found]
        if not found or not any(slot.outer_output is not None for slot in kept):
            return None
        names = context.names(view)
        view.unfreeze()
        substitutes: dict[Variable, Variable] = {}
        for slot in found:
            context.passed(view, Code.ZEROS_REMOVED, names[slot], kind=slot.kind)
            kept += (counts := _lengths_of(slot))
            substitutes |= dict.fromkeys(slot.inner_inputs, _zeros(slot, counts))
        view.slots = kept
        view.set_inner_outputs(clone_replace(view.inner_outputs(), substitutes))
        replacements = view.rebuild()
        for slot in found:
            if slot.outer_output is not None:
                replacements[slot.outer_output] = _buffer_of_zeros(slot.outer_input)
        return replacements


def _starts_zero(slot: Slot, lengths: Lengths) -> bool:
    """Whether all rows of a sequence that the loop reads are provably zero.

    For a state, its initial rows and the rows that no step writes.
    """
    rows = RowAnalysis(lengths).of(slot.outer_input)
    length = lengths.length_of(slot.outer_input)
    if slot.kind is SlotKind.SEQ:
        end = lengths.steps
    elif lengths.provably_le(length, lengths.steps + slot.n_initial):
        end = AffineExpr(slot.n_initial)
    else:
        end = length
    return rows.is_certain and is_zero(rows.common(ZERO, end, lengths))


def _zero_slots(view: ScanView, slots: list[Slot]) -> list[Slot]:
    """Return the largest subset of ``slots`` that stays zero from step to step."""
    outputs = view.inner_outputs()
    while True:
        zeros = zeros_among(outputs, (read for slot in slots for read in slot.inner_inputs))
        remaining = [slot for slot in slots if zeros.issuperset(slot.inner_outputs)]
        if len(remaining) == len(slots):
            return slots
        slots = remaining


def _lengths_of(slot: Slot) -> list[Slot]:
    """Return the lengths of a row of ``slot`` that its type does not know, as non-sequences."""
    buffer: Any = slot.outer_input
    return [
        Slot.of_input(SlotKind.NON_SEQ, pt.lscalar(), buffer.shape[axis])
        for axis, length in enumerate(slot.inner_inputs[0].type.shape, start=1)
        if length is None
    ]


def _zeros(slot: Slot, unknown: list[Slot]) -> Variable:
    """Return a row of ``slot`` as literal zeros; ``unknown`` are the lengths its type lacks."""
    entry: Any = slot.inner_inputs[0].type
    counts = iter(unknown)
    shape = [next(counts).inner_inputs[0] if n is None else n for n in entry.shape]
    zeros: Variable = pt.zeros(shape, dtype=entry.dtype)
    return zeros


def _buffer_of_zeros(like: Any) -> Variable:
    shape = [like.shape[i] if n is None else n for i, n in enumerate(like.type.shape)]
    zeros: Variable = pt.zeros(shape, dtype=like.type.dtype)
    return zeros
