"""Where to find a vector that a step computes, at every step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from scanopt_cli.analysis.initial_buffers import with_room
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.indexing import taken
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import Slot, SlotKind


@dataclass(frozen=True, slots=True)
class VectorTrace:
    """Where to find a vector of the body at every step: in ``rows`` of ``source``."""

    source: Variable
    rows: slice

    def steps(self, results: Mapping[Variable, Variable]) -> Any:
        """Return the vector, one row per step; ``results`` maps placeholders to new outputs."""
        return taken(results.get(self.source, self.source), 0, self.rows)


def trace_of(view: ScanView, vector: Any, length: Any) -> VectorTrace:
    """Return where to find ``vector`` at every step: in a sequence, or in a slot added to ``view``.

    ``length`` is that of the vector. A nit_sot loses it if the loop runs no step, so the new slot
    is a sit_sot unless the loop provably runs one.
    """
    lengths = Lengths(view.n_steps)
    for slot in view.of_kind(SlotKind.SEQ):
        rows = lengths.length_of(slot.outer_input)
        is_long_enough = lengths.runs(0) and lengths.provably_le(lengths.steps, rows)
        if slot.inner_inputs[0] is vector and is_long_enough:
            end = None if rows == lengths.steps else view.n_steps
            return VectorTrace(slot.outer_input, slice(end))
    output = pt.matrix(dtype=vector.type.dtype)
    slot = Slot.of_trace(vector, view.n_steps, output)
    view.slots.append(slot)
    if lengths.runs():
        return VectorTrace(output, slice(None))
    steps: Any = view.n_steps
    zeros = pt.zeros((1, length), dtype=vector.type.dtype)
    slot.kind, slot.taps, slot.inner_inputs = SlotKind.SIT_SOT, (-1,), [vector.type()]
    slot.outer_input = with_room(zeros, (steps + 1, length))
    return VectorTrace(output, slice(1, None))
