"""Turn the loops of `scanopt_cli.loop` into PyTensor's Scans."""

from __future__ import annotations

from collections.abc import Mapping
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
from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.loop.operator_base import LoopView
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
       loop. So is counted how many steps a loop with a condition runs.
    5. A condition to go on becomes a stop condition.

    Preconditions: no trace of what is no array is read (a random generator's, say), there may be
    memory for the traces that are read, and no step works in place.

    A Scan that runs no step gives traced vectors and matrices the shape ``(0, 0)``. If that may be,
    a Reshape restores the lengths of a row, unless PyTensor takes it away when it compiles.

    A `Loop` becomes a Scan likewise.
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
        (index,) = view.of_kind(SlotKind.INDEX)[0].inner_inputs
        made = ScanBuilder(view, Lengths(view.n_steps), index, has_room, context.clients)
        chains = chains_of(view, made.reads)
        older = {slot for chain in chains.values() for slot in chain[:-1]}
        for slot in view.slots:
            if slot.kind is SlotKind.STATE and slot not in older:
                chain = chains.get(slot, [slot])
                made.add_state(
                    chain,
                    is_traced=any(part.outer_output in traces for part in chain),
                    keeps_shape=all(all(kept[part]) for part in chain),
                )
            elif slot.kind is SlotKind.TRACED and slot.outer_output in traces:
                made.add_traced(slot)
            elif slot.kind is SlotKind.CONSTANT:
                made.add_constant(slot)
        found = made.outputs(counts=bool(context.clients(view.n_done)))
        return found | _rebuilt_readers(found, context.clients)


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
