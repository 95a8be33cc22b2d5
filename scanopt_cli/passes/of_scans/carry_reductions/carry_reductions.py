"""Carry sums, products, maxima and minima of a trace in the loop, instead of the trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.math import Max, Prod

from scanopt_cli.analysis.accesses.accesses import accesses_of_outputs
from scanopt_cli.analysis.buffers import is_whole
from scanopt_cli.analysis.count_variables import as_count
from scanopt_cli.analysis.initial_buffers import with_room
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import TRACED, Slot, SlotKind
from scanopt_cli.passes.of_scans.carry_reductions.reductions import Reduction, reductions_of
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import ScanPass
from scanopt_cli.remarks import Code, Why, because


@dataclass(frozen=True)
class CarryReductions(ScanPass):
    """Carry the sum, product, mean, maximum or minimum of a trace in the loop.

    `save-mem` then keeps no trace for it. Run `normalize-reads` before, since a mean reads a length
    as well. The pass is in no preset: the terms of a sum are added in another order, so the last
    bits of floats differ.

    Legal cases:

    1. The only readers of a trace are ``xs.sum()``, ``prod``, ``mean``, ``max`` or ``min`` over
       time, and readers of last rows. Each reduction becomes a state that every step updates. Sums
       and products are carried in their accumulator dtype. A reduction carries whole rows if it
       leaves an axis of the row, or if it is a maximum or minimum of a state; otherwise each step
       reduces its row to one number.

    Preconditions: the buffer provably holds every step. The loop has no stop condition and is not
    batched. A maximum or minimum needs a loop that provably runs at least one step, since it raises
    for none.

    Out of scope: reductions that would carry whole rows of a nit_sot (whose shape is not known
    before the loop), and products over axes of such rows.
    """

    name: ClassVar[str] = "carry-reductions"
    accepts_batched: ClassVar[bool] = False
    accepts_while: ClassVar[bool] = False

    def rewrite(self, view: ScanView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return reductions as the last rows of new states, where nothing else needs the trace."""
        lengths = Lengths(view.n_steps)
        names = context.names(view)
        accesses = accesses_of_outputs(view, context.clients)
        found = [
            reduction
            for slot in view.of_kind(*TRACED)
            if is_whole(view, slot, lengths)
            for reduction in reductions_of(slot, accesses[slot], context)
        ]
        found = [one for one in found if _fits(one, view, names, lengths, context)]
        count = as_count(lengths.steps + 1)
        if not found or count is None:
            return None
        for one in found:
            name = type(one.op).__name__.lower()
            context.passed(view, Code.REDUCTION_CARRIED, names[one.slot], op=name)
        view.unfreeze()
        added = {one: _add_state(view, one, count) for one in found}
        results = view.rebuild()
        replaced: dict[Variable, Variable] = {}
        for one, placeholder in added.items():
            states: Any = results.pop(placeholder)
            replaced[one.node.outputs[0]] = one.result(states[-1])
        return replaced | results


def _fits(
    one: Reduction,
    view: ScanView,
    names: Mapping[Slot, str],
    lengths: Lengths,
    context: PassContext,
) -> bool:
    """Whether the loop can carry a reduction; if not, leave a remark why."""
    kind = np.dtype(one.node.inputs[0].type.dtype).kind
    reason = None
    if kind not in "fiu" or (one.is_negated and kind == "u"):
        reason = because(Why.TYPE_NOT_NUMERIC)
    elif isinstance(one.op, Max) and not lengths.runs():
        reason = because(Why.NO_STEPS, steps=str(lengths.steps))
    elif one.slot.kind is SlotKind.NIT_SOT and not one.inside:
        reason = because(Why.ROW_SHAPE_UNKNOWN)
    elif one.slot.kind is SlotKind.NIT_SOT and one.axes and isinstance(one.op, Prod):
        reason = because(Why.PRODUCT_COSTS)
    if reason is not None:
        name = type(one.op).__name__.lower()
        context.missed(view, Code.REDUCTION_KEPT, reason, names[one.slot], op=name)
    return reason is None


def _add_state(view: ScanView, one: Reduction, rows: Any) -> Variable:
    """Add a state that carries a reduction to the loop; return a placeholder for its output."""
    row = one.of_row(one.slot.inner_outputs[0])
    carry = row.type()
    buffer: Any = one.slot.outer_input
    shape = [
        buffer.shape[axis + 1] if length is None else length
        for axis, length in enumerate(row.type.shape)
    ]
    start: Any = (
        pt.alloc(one.start, 1, *shape) if shape else pt.expand_dims(pt.constant(one.start), 0)
    )
    states = with_room(start, (rows, *shape), dtype=one.dtype)
    placeholder: Variable = states.type()
    view.slots.append(
        Slot(
            SlotKind.SIT_SOT,
            len(view.of_kind(SlotKind.SIT_SOT)),
            taps=(-1,),
            out_taps=(0,),
            inner_inputs=[carry],
            inner_outputs=[one.combined(carry, row)],
            outer_input=states,
            outer_output=placeholder,
        )
    )
    return placeholder
