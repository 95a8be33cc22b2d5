"""Write the readers of a loop so that the rows they read are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pytensor.graph.basic import Variable

from scanopt_cli.analysis.buffers import is_whole
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.slots import WITH_ROWS, SlotView
from scanopt_cli.passes.normalize_reads.counted_reads import counted_reads
from scanopt_cli.passes.normalize_reads.joined_starts import joined_starts
from scanopt_cli.passes.normalize_reads.length_reads import length_reads
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import AnyLoopPass
from scanopt_cli.remarks import Code


@dataclass(frozen=True)
class NormalizeReads(AnyLoopPass):
    """Write the readers of a loop's outputs so that the rows they read are known.

    `trim-steps`, `save-mem` and `trace-to-last` then find readers of last rows, where there were
    readers of rows at unknown places, or of the whole buffer.

    Legal cases, for a Scan or a TracedLoop of ``n`` steps:

    1. ``xs[n-1]`` becomes ``xs[-1]``, and the bounds of slices likewise; ``xs[n-k]`` becomes
       ``xs[-k]`` where ``n`` is provably at least ``k``.
    2. Readers that need only a length (``xs.shape[0]``, ``zeros_like(xs)``) get it from ``n``, and
       so do those of the number of steps that a TracedLoop has run.
    3. ``concatenate([start, xs])``, where ``start`` holds the loop's initial rows, becomes the
       loop's own buffer, the trace of a TracedLoop.

    Preconditions: the buffer provably holds every step, as a TracedLoop's do. Only case 3 applies
    to a while loop, whose length is not known. Readers raise in the same cases as before.

    The errors of a loop of which only the length was read are lost.

    Out of scope: slices of slices, which `clean-slices` composes.
    """

    name: ClassVar[str] = "normalize-reads"
    sweeps: ClassVar[int] = 8

    def rewrite(self, view: SlotView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for readers of a loop."""
        lengths = Lengths(view.n_steps)
        found: dict[Variable, Variable] = {}
        for slot in view.of_kind(*WITH_ROWS):
            if is_whole(view, slot, lengths):
                found |= joined_starts(view, slot, lengths, context)
                if not view.is_while:
                    found |= length_reads(view, slot, lengths, context.clients)
                    found |= counted_reads(view, slot, lengths, context.clients)
        if not view.is_while:
            found |= {count: view.n_steps for count in view.counts if context.clients(count)}
        if found:
            context.passed(view, Code.READS_NORMALIZED, count=len(found))
        return found
