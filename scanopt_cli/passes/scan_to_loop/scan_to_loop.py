"""Turn PyTensor's Scans into the loops of `scanopt_cli.loop`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph

from scanopt_cli.analysis.count_variables import as_count, scalar_steps
from scanopt_cli.analysis.initial_buffers import initial_rows, with_room
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.loop_lengths import gradient_limit
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.loop.batching import batch_lengths, with_batch
from scanopt_cli.passes.scan_to_loop.loop_builder import looped
from scanopt_cli.passes.scan_to_loop.shared_entries import shared_entry
from scanopt_cli.passes.scan_to_loop.truncated_gradients import truncated
from scanopt_cli.pipeline.contract import CompilationTarget, PassContext
from scanopt_cli.pipeline.loop_passes import ScanPass
from scanopt_cli.remarks import Code, Why, because

_LINKERS = ("any", "numba", "jax", "c")
"""The linkers by which loops are faster than Scans."""


@dataclass(frozen=True)
class ScanToLoop(ScanPass):
    """Turn a Scan into a TracedLoop, which has states and traces, but no taps and no buffers.

    Legal cases, one for each kind of slot:

    1. A sequence or non-sequence becomes a constant of the loop; a step indexes the sequence.
    2. A sit_sot becomes a state, whose trace is the buffer.
    3. A mit_sot of up to 8 rows becomes as many states, which a step shifts; of more, a ring of
       rows in one state. Its buffer is the initial rows and a trace.
    4. An untraced state (a random generator, say) becomes a state.
    5. A nit_sot becomes a traced value.
    6. A mit_mot becomes a state that is the whole buffer, of which a step reads and writes rows.
       Run ``mit-mot-to-sit-sot`` first, which needs no buffer for most.
    7. A stop condition becomes a condition to go on.

    A buffer that does not provably hold every step keeps the rows that PyTensor would keep: the
    last ones, and zeros behind them if there is more room than steps.

    A batched Scan (in a Blockwise) becomes one TracedLoop whose states have the batch dimensions. A
    state that starts equally in all entries of the batch, and is updated of what they share, such
    as the covariance of filters with the same matrices, has none and is computed once, also where
    the batch turns out to have no entry.

    A Scan whose gradient is truncated after ``k`` steps becomes two TracedLoops. No gradient passes
    from the second, which runs the last ``k`` steps, to the first, which runs those before.

    Preconditions: no step works in place. A Scan whose gradient is truncated has no mit_mot and no
    stop condition. A batched Scan has no untraced state, and every entry of the batch is given the
    same number of steps. Entries may stop by themselves after different numbers of steps, unless
    rows of all steps are read; PyTensor raises an error for such a Scan, whatever is read.

    Loops are faster than Scans by Numba and JAX, and where PyTensor compiles C. If the graph is
    compiled by another linker, which is said by the option, all Scans stay.
    """

    name: ClassVar[str] = "scan-to-loop"
    starts_phase: ClassVar[bool] = True
    accepts_in_place: ClassVar[bool] = False
    linker: str = "any"
    """what the graph is compiled by: any, numba, jax, c, or the class of another linker"""

    def adapted(self, target: CompilationTarget) -> Self:
        """Turn Scans into loops by the linker of the mode, unless one is named."""
        return replace(self, linker=target.linker) if self.linker == "any" else self

    def rewrite(self, view: ScanView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a TracedLoop."""
        if self.linker not in _LINKERS:
            context.missed(view, Code.SCAN_KEPT, because(Why.LINKER, linker=self.linker))
            return None
        try:
            made = _batched(view) if view.batch_ndim else _converted(view, context)
        except NotImplementedError:  # a step cannot be vectorized
            made = Why.LOOP_BATCHED
        if isinstance(made, Why):
            context.missed(view, Code.SCAN_KEPT, made)
            return None
        context.passed(view, Code.SCAN_TURNED)
        return made


def _converted(
    view: ScanView, context: PassContext | None = None
) -> dict[Variable, Variable] | Why:
    """Return what replaces the outputs of a Scan, and some of its readers, or why nothing does."""
    limit = gradient_limit(view, Lengths(view.n_steps))
    if limit is not None:
        return truncated(view, limit)
    return looped(view, None if context is None else context.clients)


def _batched(view: ScanView) -> dict[Variable, Variable] | Why:
    """Return what replaces the outputs of a batched Scan, or why nothing does.

    The loop of one entry of the batch is vectorized.
    """
    if view.of_kind(SlotKind.UNTRACED):
        return Why.STATE_UNTRACED
    lengths = Lengths(view.n_steps)
    one: list[Any] = [scalar_steps(view)]
    batched: dict[Variable, Variable] = {}
    for slot in view.slots:
        outer: Any = slot.outer_input
        if slot.kind is SlotKind.NIT_SOT:
            one.append(as_count(lengths.value_of(outer)))
            continue
        axis, count = view.batch_ndim, slot.n_initial
        rows: Any = initial_rows(outer, count, lengths, axis) if count else outer
        entry: Any = shared_entry(rows, axis)
        if entry is None:
            entry = rows[(0,) * axis]
            batched[entry] = rows
        room = None if rows is outer else as_count(lengths.length_of(outer, axis))
        one.append(entry if room is None else with_room(entry, [room, *entry.shape[1:]], count))
    if any(part is None for part in one):
        return Why.STEPS_DIFFER_IN_BATCH
    core = ScanView.of(view.op.make_node(*one))
    made = _converted(core)
    if isinstance(made, Why):
        return made
    found: Any = [made[output] for output in core.node.outputs]
    found = vectorize_graph(found, batched) if batched else found
    batch = batch_lengths(view.node.inputs, view.batch_ndim)
    return {
        before: with_batch(new, before.type, batch)
        for before, new in zip(view.node.outputs, found, strict=True)
    }
