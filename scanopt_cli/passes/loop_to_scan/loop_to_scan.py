"""Turn the loops of `scanopt_cli.loop` into PyTensor's Scans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import Output
from pytensor.graph.traversal import ancestors
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorConstant

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.naming import Clients
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.passes.loop_to_scan.rings import Ring, rings_of
from scanopt_cli.passes.loop_to_scan.scan_builder import ScanBuilder
from scanopt_cli.passes.loop_to_scan.shifted_states import chains_of
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import TracedLoopPass
from scanopt_cli.remarks import Code, Why

_MOST_ROWS = 10**9
"""A Scan has room for so many rows, at most, of a state whose last value alone is read."""


@dataclass(frozen=True)
class LoopToScan(TracedLoopPass):
    """Turn a TracedLoop into a Scan, for those who have rewrites or backends for Scans only.

    Legal cases, one for each kind of slot:

    1. A state becomes a sit_sot, whose buffer is the trace. It becomes an untraced state if nothing
       reads its trace and it is no array of real numbers, a step may change its shape, or the loop
       may have more steps than there is memory for.
    2. A traced value becomes a nit_sot.
    3. A constant becomes a sequence if steps read nothing of it but the row at the index, or a
       constant number of rows behind it, and it provably has as many rows. Other constants become
       non-sequences.
    4. The index becomes a sequence if it is read, or an untraced state if a condition may end the
       loop. So is counted how many steps a loop with a condition runs, if that is read.
    5. A condition to go on becomes a stop condition.
    6. States that each take the old value of the next, of which a step computes the newest, become
       one mit_sot. A step reads only taps that it reads, and the oldest. The traces and last values
       of all are rows of its buffer. Their initial values are successive rows of one array, which
       the buffer then starts with, or of types that say all lengths.
    7. A state that holds the last ``k`` rows of a value, of which a step writes the oldest, at its
       index modulo ``k``, and reads that and others, becomes a mit_sot. Its buffer holds all rows.

    A TracedLoop that was a Scan (``scan-to-loop``) remembers its settings and the kinds of its
    slots, whatever passes made of it:

    8. What was a sit_sot, mit_sot, mit_mot, untraced state, nit_sot or sequence becomes one again,
       if nothing has changed that it can be: a sequence of which a step reads the row at the index
       need not provably be long enough, two sit_sots do not become one mit_sot, and a nit_sot whose
       last row is carried becomes one if the loop provably runs a step.
    9. The name, ``mode``, ``profile``, ``allow_gc`` and ``strict`` are those of the Scan. What
       ``truncate_gradient`` does is two loops.
    10. An initial value that is a row of a buffer, or of what a buffer starts with, is given back
        to that buffer. A Scan that nothing has changed comes back as the same Op.

    Preconditions: no trace of what is no array is read (a random generator's, say), there may be
    memory for the traces that are read, and no step works in place.

    A Scan that runs no step gives traced vectors and matrices the shape ``(0, 0)``. If that may be,
    a Reshape restores the lengths of a row, unless PyTensor takes it away when it compiles, or the
    traced value was a nit_sot, which had that shape before.

    A `Loop` becomes a Scan likewise.

    Out of scope: buffers that keep the last rows only, as ``save-mem`` makes them, which comes
    after; rings of rows that only readers after the loop need (``trace-to-last``); and batched
    Scans, whose entries ``scan-to-loop`` computes together: they stay so.
    """

    name: ClassVar[str] = "loop-to-scan"
    undoes: ClassVar[str] = "scan-to-loop"
    accepts_in_place: ClassVar[bool] = False
    accepts_untraced: ClassVar[bool] = True

    def rewrite(self, view: LoopView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs that are read, from a Scan."""
        traces = [s.outer_output for s in view.outputs() if context.clients(s.outer_output)]
        if not all(isinstance(trace.type, TensorType) for trace in traces if trace is not None):
            context.missed(view, Code.LOOP_KEPT, Why.TRACE_OF_NO_TENSOR)
            return None
        has_room = _has_room(view)
        if any(trace is not None for trace in traces) and not has_room:
            context.missed(view, Code.LOOP_KEPT, Why.NO_ROOM_FOR_TRACE)
            return None
        context.passed(view, Code.LOOP_TURNED)
        kept = dict(zip(view.of_kind(SlotKind.STATE), view.op.kept_lengths, strict=True))
        view.unfreeze()
        made = ScanBuilder(view, Lengths(view.n_steps), view.index, has_room, context.clients)
        chains = chains_of(view, made.reads)
        older = {slot for chain in chains.values() for slot in chain[:-1]}
        rings = _rings(view, traces, context) if has_room else {}
        for slot in view.slots:
            if slot in rings:
                ring, traced = rings[slot]
                if ring.is_mit_mot:
                    made.add_mit_mot(ring)
                else:
                    made.add_ring(ring, traced)
            elif made.was_traced(slot) and slot.outer_output not in traces:
                made.add_traced(slot)
            elif slot.kind is SlotKind.STATE and slot not in older:
                chain = chains.get(slot, [slot])
                made.add_state(
                    chain,
                    is_traced=any(part.outer_output in traces for part in chain),
                    keeps_shape=all(all(kept[part]) for part in chain),
                )
            elif slot.kind is SlotKind.TRACED and slot.outer_output in traces:
                if any(slot is traced for _, traced in rings.values()):
                    continue
                made.add_traced(slot)
            elif slot.kind is SlotKind.CONSTANT:
                made.add_constant(slot)
        found = made.outputs(counts=bool(context.clients(view.n_done)))
        return found | _rebuilt_readers(found, context.clients)


def _rings(
    view: LoopView, traces: Sequence[Variable | None], context: PassContext
) -> dict[Slot, tuple[Ring, Slot | None]]:
    """Return the states that become mit_mots and mit_sots, with the slots that trace their rows."""
    found: dict[Slot, tuple[Ring, Slot | None]] = {}
    states = [slot for slot in view.of_kind(SlotKind.STATE) if slot.outer_output not in traces]
    for ring in rings_of(view, states):
        slot, ((_, value), *_) = ring.slot, ring.writes
        traced = [
            each
            for each in view.of_kind(SlotKind.TRACED)
            if each.inner_outputs[0] is value and each.outer_output in traces
        ]
        if ring.is_mit_mot:
            found[slot] = (ring, None)
        elif ring.is_mit_sot and not context.clients(slot.last):
            found[slot] = (ring, traced[0] if traced else None)
    return found


def _rebuilt_readers(
    replacements: Mapping[Variable, Variable], clients: Clients
) -> dict[Variable, Variable]:
    """Return what replaces readers of outputs of which a Scan declares other lengths.

    Most readers need not know the lengths that a TracedLoop declares: they read a Scan when they
    were made. What only declares lengths that the Scan declares itself goes.
    """
    found: dict[Variable, Variable] = {}
    for old, new in replacements.items():
        is_wider = not old.type.is_super(new.type)
        for node, _ in clients(old):
            if isinstance(node.op, Output) or not replacements.keys().isdisjoint(node.outputs):
                continue
            if isinstance(node.op, SpecifyShape) and node.outputs[0].type.is_super(new.type):
                found[node.outputs[0]] = new
            elif is_wider:
                found |= _rebuilt(node, replacements)
    return found


def _rebuilt(node: Apply, replacements: Mapping[Variable, Variable]) -> dict[Variable, Variable]:
    """Return what replaces the outputs of a node that reads the replacements; none if others."""
    try:
        made = node.op.make_node(*(replacements.get(v, v) for v in node.inputs))
    except (TypeError, ValueError):
        return {}
    pairs = list(zip(node.outputs, made.outputs, strict=True))
    return dict(pairs) if all(old.type.is_super(new.type) for old, new in pairs) else {}


def _has_room(view: LoopView) -> bool:
    """Whether there may be memory for a row of every step."""
    numbers = (v.data for v in ancestors([view.n_steps]) if isinstance(v, TensorConstant))
    return all(np.all(number <= _MOST_ROWS) for number in numbers)
