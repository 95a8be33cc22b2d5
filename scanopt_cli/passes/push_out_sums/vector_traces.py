"""Where to find a vector that a step computes, at every step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from scanopt_cli.analysis.initial_buffers import with_room
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.step_rows import StepRow
from scanopt_cli.ir.indexing import taken
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import Slot, SlotKind, SlotView


@dataclass(frozen=True, slots=True)
class VectorTrace:
    """Where to find a vector of the body at every step: in ``rows`` of ``source``."""

    source: Variable
    rows: slice

    def steps(self, results: Mapping[Variable, Variable]) -> Any:
        """Return the vector, one row per step; ``results`` maps placeholders to new outputs."""
        return taken(results.get(self.source, self.source), 0, self.rows)


def trace_of(view: SlotView, vector: Any, row: StepRow | None, length: Any) -> VectorTrace:
    """Return where to find ``vector`` at every step: in an array, or in a slot added to ``view``.

    ``row`` is given if the steps read it as a row; ``length`` is that of the vector. A trace loses
    it if the loop runs no step, or has to compute it apart, so the new slot is a state unless the
    loop provably runs one.
    """
    lengths = Lengths(view.n_steps)
    if row is not None and row.is_there_alone(lengths):
        return VectorTrace(row.at_all_steps(view, lengths), slice(None))
    output = pt.matrix(dtype=vector.type.dtype)
    is_scan = isinstance(view, ScanView)
    if lengths.runs() or (not is_scan and None not in vector.type.shape):
        kind = SlotKind.NIT_SOT if is_scan else SlotKind.TRACED
        view.slots.append(Slot.of_trace(vector, view.n_steps, output, kind=kind))
        return VectorTrace(output, slice(None))
    steps: Any = view.n_steps
    start = pt.zeros((length,), dtype=vector.type.dtype)
    state = vector.type.clone(shape=(None,))()
    slot = Slot(SlotKind.STATE, 0, (-1,), (0,), [state], [vector], output, outer_input=start)
    if is_scan:
        slot.kind = SlotKind.SIT_SOT
        slot.outer_input = with_room(pt.expand_dims(start, 0), (steps + 1, length))
    view.slots.append(slot)
    return VectorTrace(output, slice(1, None))
