"""Remove the states and sequences of a loop that are zero in every step."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import DenseTensorType

from scanopt_cli.analysis.accesses.indices import rows_index
from scanopt_cli.analysis.accesses.row_ranges import RowRange
from scanopt_cli.analysis.affine import ZERO, AffineExpr, as_affine
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.row_runs import is_positive_zero
from scanopt_cli.analysis.row_values import RowAnalysis, filling
from scanopt_cli.analysis.step_rows import StepRow, step_rows
from scanopt_cli.ir.slots import Slot, SlotKind, SlotView
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.passes.remove_zeros.zeros import zeros_among
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import AnyLoopPass
from scanopt_cli.remarks import Code


@dataclass(frozen=True)
class RemoveZeros(AnyLoopPass):
    """Remove states and sequences that are zero in every step.

    A gradient carries a cotangent for every state of the loop, including states that the cost does
    not depend on. Such a cotangent stays zero, and products with it are wasted work.

    Legal cases, of Scans and of TracedLoops:

    1. States that start with zeros and whose updates are zero as long as all these states are. The
       pass finds the largest such set, so states that depend on each other are found together.
    2. Sequences of which every row is provably zero, and rows that a TracedLoop reads of constants.

    The body reads literal zeros in their place, which ``simplify`` then folds into their users.
    Outside, the trace of such a state becomes a buffer of zeros.

    Preconditions: the expression that makes the buffer proves that the initial rows are zero, and
    computing it cannot fail; a buffer with room for more steps than the loop runs is zero
    throughout, since no step writes its last rows. A state of a TracedLoop provably keeps its
    shape, and the rows that it reads of a constant are there. An update is zero by products with a
    zero, quotients of a zero, sums of zeros, functions that are zero at zero, and Ops that only
    move entries. The loop has no stop condition and is not batched, no step works in place, and at
    least one other output remains.

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

    def rewrite(self, view: SlotView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a loop without the zero slots."""
        lengths = Lengths(view.n_steps)
        states = view.of_kind(SlotKind.MIT_SOT, SlotKind.SIT_SOT, SlotKind.STATE)
        states = [slot for slot in states if _starts_zero(view, slot, lengths)]
        rows = _zero_rows(view, lengths)
        states = _zero_states(view, states, rows)
        # Shapes take long, and few states get here.
        if changing := [slot for slot in states if not _keeps_shape(view, slot)]:
            kept_shapes = [slot for slot in states if slot not in changing]
            states = _zero_states(view, kept_shapes, rows)
        found = dict.fromkeys((*rows.values(), *states))
        kept = [s for s in view.slots if s not in found or s.kind is SlotKind.CONSTANT]
        if not found or not any(slot.outer_output is not None for slot in kept):
            return None
        names = context.names(view)
        view.unfreeze()
        rows = _zero_rows(view, lengths)
        view.slots = kept
        substitutes = {v: _zeros(view, v, slot.outer_input, 1) for v, slot in rows.items()}
        for slot in found:
            context.passed(view, Code.ZEROS_REMOVED, names[slot], kind=slot.kind)
            if slot.taps:
                first = 0 if slot.kind is SlotKind.STATE else 1
                zeros = _zeros(view, slot.inner_inputs[0], slot.outer_input, first)
                substitutes |= dict.fromkeys(slot.inner_inputs, zeros)
        view.set_inner_outputs(clone_replace(view.inner_outputs(), substitutes))
        replacements = view.rebuild()
        for slot in found:
            if slot.outer_output is not None:
                start, steps = cast(Any, slot.outer_input), cast(Any, view.n_steps)
                shape = [start.shape[i] if n is None else n for i, n in enumerate(start.type.shape)]
                if slot.last is not None:
                    replacements[slot.last] = start
                    shape = [steps + 1, *shape]
                replacements[slot.output] = pt.zeros(shape, dtype=start.type.dtype)
        return replacements


def _zero_rows(view: SlotView, lengths: Lengths) -> dict[Variable, Slot]:
    """Return what a step reads as a row, provably zero in every step, and the slots of these."""
    return {v: one.slot for v, one in step_rows(view).items() if _is_zero_row(one, lengths)}


def _is_zero_row(row: StepRow, lengths: Lengths) -> bool:
    """Whether a row that a step reads is provably zero in every step."""
    low = as_affine(row.ahead)
    is_there = row.slot.kind is SlotKind.SEQ or row.is_there(lengths)
    return is_there and _are_zero(row.slot.outer_input, low, lengths.steps + low, lengths)


def _starts_zero(view: SlotView, slot: Slot, lengths: Lengths) -> bool:
    """Whether a state's initial rows, and the rows that no step writes, are provably zero."""
    start = slot.outer_input
    if not isinstance(view, LoopView):
        end = lengths.length_of(start)
        if lengths.provably_le(end, lengths.steps + slot.n_initial):
            end = AffineExpr(slot.n_initial)
        return _are_zero(start, ZERO, end, lengths)
    if not isinstance(start.type, DenseTensorType):
        return False
    index = rows_index(start.owner, 0) if isinstance(start.owner_op, Subtensor) else None
    if index is None:
        return is_positive_zero(filling(start))
    buffer = start.owner.inputs[0]
    taken = RowRange(ZERO, lengths.length_of(buffer)).taken(index, lengths)
    return taken is not None and _are_zero(buffer, taken.low, taken.high, lengths)


def _keeps_shape(view: SlotView, slot: Slot) -> bool:
    """Whether a state provably keeps the shape of its initial value, as those of Scans do."""
    return not isinstance(view, LoopView) or all(view.op.kept_lengths[slot.position])


def _are_zero(buffer: Variable, low: AffineExpr, high: AffineExpr, lengths: Lengths) -> bool:
    rows = RowAnalysis(lengths).of(buffer)
    return rows.is_certain and is_positive_zero(rows.common(low, high, lengths))


def _zero_states(view: SlotView, states: list[Slot], rows: Collection[Variable]) -> list[Slot]:
    """Return the largest subset of ``states`` that stays zero from step to step, as ``rows`` do."""
    outputs = view.inner_outputs()
    while states:
        zeros = zeros_among(outputs, [*rows, *(v for slot in states for v in slot.inner_inputs)])
        remaining = [slot for slot in states if zeros.issuperset(slot.inner_outputs)]
        if len(remaining) == len(states):
            break
        states = remaining
    return states


def _zeros(view: SlotView, inner: Any, outer: Any, first: int) -> Variable:
    """Return literal zeros for what a step reads as ``inner``: ``outer``, from axis ``first`` on.

    A step is given the lengths that the type does not know.
    """
    shape = [
        view.add_input(view.invariant_kind, pt.lscalar(), outer.shape[axis]) if n is None else n
        for axis, n in enumerate(inner.type.shape, start=first)
    ]
    zeros: Variable = pt.zeros(shape, dtype=inner.type.dtype)
    return zeros
