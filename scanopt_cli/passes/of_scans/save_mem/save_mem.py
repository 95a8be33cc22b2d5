"""Keep only the rows of a loop's buffers that are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from pytensor.graph.basic import Variable

from scanopt_cli.analysis.accesses.accesses import Access, accesses_of_outputs
from scanopt_cli.analysis.buffers import is_whole
from scanopt_cli.analysis.count_variables import scalar_steps
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.shortening import shorten
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.passes.of_scans.save_mem.trimmed_reads import is_mapped, trimmed_reads
from scanopt_cli.pipeline.contract import CompilationTarget, PassContext
from scanopt_cli.pipeline.loop_passes import ScanPass
from scanopt_cli.remarks import Code, Why, because


@dataclass(frozen=True)
class SaveMem(ScanPass):
    """Keep shorter buffers where only the last rows of a loop's outputs are read.

    Legal cases, for a loop of ``n`` steps and a state whose taps reach ``L`` rows back:

    1. Every reader of a mit_sot, sit_sot or nit_sot reads at most its last ``k`` steps
       (``xs[-1]``, ``xs[-3:]``, ``xs[-1:-4:-1]``): the buffer keeps ``L + min(k, n)`` rows.
    2. Nothing outside the loop reads a state that the loop needs: the buffer keeps ``L`` rows, or
       ``L + 1`` with ``prealloc``.

    Preconditions: the buffer provably holds the initial rows and every step. In a while loop a
    buffer keeps at most one step: PyTensor cuts a longer one in the wrong place if the loop stops
    before the buffer is full. The values in the buffer depend on a state: PyTensor computes all
    others without a loop when it compiles, and then needs the whole buffer.

    Readers raise in the same cases as before: ``xs[-1]`` of no steps is still an error. The last
    row is read from the trimmed buffer itself, where it provably exists or its absence stays an
    error. All other rows are read from a copy of the remaining rows (a ``DeepCopyOp``). Without the
    copy, PyTensor merges slices of slices into a row counted from the start, and takes it for the
    step of that number.

    With ``prealloc``, the default, a state keeps at least one row more than its taps reach.
    PyTensor's virtual machines need that row: they write a step's result in place while other nodes
    of the step still read the buffer. Without ``prealloc`` that row is saved too, and the graph is
    correct only where nothing is written in place: with Numba, JAX, or the flag
    ``scan__allow_output_prealloc=False``.

    Trimmed loops must not be differentiated: `scanopt grad` refuses them. Run this pass last.

    Out of scope: mit_mots, strided readers from the start (``xs[::2]``), symbolic indices, and rows
    in the middle, for which `trim-steps` runs fewer steps.
    """

    prealloc: bool = True

    name: ClassVar[str] = "save-mem"
    trims: ClassVar[bool] = True

    def adapted(self, target: CompilationTarget) -> Self:
        """Keep a row more only where it is used."""
        return replace(self, prealloc=target.preallocates)

    def rewrite(self, view: ScanView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return all outputs and their readers, on a Scan with shorter buffers."""
        lengths = Lengths(view.n_steps)
        names = context.names(view)
        every = accesses_of_outputs(view, context.clients)
        keeps = {
            slot: keep
            for slot, found in every.items()
            if (keep := self._keep(view, slot, names[slot], found, lengths, context)) is not None
        }
        if not keeps:
            return None
        for slot, keep in keeps.items():
            reads = tuple(dict.fromkeys(access.text for access in every[slot]))
            rows = slot.n_initial + keep
            if reads:
                context.passed(view, Code.BUFFER_SHORTENED, names[slot], rows=rows, reads=reads)
            else:
                context.passed(view, Code.STATE_SHORTENED, names[slot], rows=rows)
            shorten(view, slot, keep, lengths)
        results = view.rebuild()
        for slot in keeps:
            results |= trimmed_reads(view, slot, results[slot.output], context.clients, lengths)
        return results

    def _keep(
        self,
        view: ScanView,
        slot: Slot,
        name: str,
        found: Sequence[Access],
        lengths: Lengths,
        context: PassContext,
    ) -> int | None:
        """Return how many steps the buffer of ``slot`` must hold, ``None`` to leave it alone."""
        if not is_whole(view, slot, lengths):
            return None
        unbounded = next((access for access in found if access.tail is None), None)
        if unbounded is not None:
            why = because(Why.READ_AS, reads=unbounded.text)
            context.found(view, Code.BUFFER_KEPT, name, why=why)
            return None
        if slot.kind is SlotKind.NIT_SOT and not found:
            return None
        keep = max((access.tail for access in found if access.tail is not None), default=0)
        if self.prealloc and slot.kind is not SlotKind.NIT_SOT:
            keep = max(keep, 1)
        if lengths.provably_le(lengths.steps, keep):
            return None
        if view.is_while and keep > 1:
            why = because(Why.WHILE_KEEPS_ONE, rows=keep)
            context.missed(view, Code.BUFFER_KEPT, why, name)
            return None
        if is_mapped(view, slot):
            context.missed(view, Code.BUFFER_KEPT, Why.NEEDS_NO_LOOP, name)
            return None
        if scalar_steps(view) is None:
            context.missed(view, Code.BUFFER_KEPT, Why.STEPS_DIFFER_IN_BATCH, name)
            return None
        return keep
