"""Run only the steps of a loop that are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pytensor.graph.basic import Variable

from scanopt_cli.analysis.accesses.end_reads import counted_reads
from scanopt_cli.analysis.accesses.shape_reads import length_reads
from scanopt_cli.analysis.buffers import is_whole
from scanopt_cli.analysis.joined_starts import joined_starts
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.scan_view import TRACED, ScanView
from scanopt_cli.passes.save_mem.first_step import first_rows
from scanopt_cli.passes.trim_steps.fewer_steps import cut_to_first, looks_at
from scanopt_cli.passes.trim_steps.known_steps import trim_known
from scanopt_cli.passes.trim_steps.unknown_steps import trim_unknown
from scanopt_cli.pipeline.contract import PassContext, ScanPass


@dataclass(frozen=True)
class TrimSteps(ScanPass):
    """Run only the steps of a loop that are read, and count rows from the end where that helps.

    Buffers stay whole, so every other pass still applies. `save-mem` trims them afterwards, by how
    far from the end they are read.

    Legal cases, for a loop of ``n`` steps:

    1. Every reader of every output reads only the first ``k`` steps: the loop runs ``min(k, n)``
       steps. A while loop may stop earlier.
    2. ``n`` is known, and every bound of every reader is a number (slices, chains of slices, rows,
       lists of rows): the loop runs up to the last row that is read. Of 1000 steps,
       ``xs[-20:-10]`` needs 990, ``xs[::100]`` 901, ``xs[[3, 500]]`` 501. Where only late rows of
       an output are read, they are counted from the end, each chain as one slice: a lone
       ``xs[500]`` becomes ``xs[-1]`` of 501 rows.
    3. For any ``n``, every reader leaves out at least the last ``k`` rows (``xs[:-1]``,
       ``xs[-20:-10]``): the loop runs ``n - k`` steps, or none if ``n`` is less than ``k``, and
       readers count ``k`` rows less from the end. The gradient of ``xs[-1]``, which reads
       ``xs[:-1]``, is an example.
    4. In cases 2 and 3, a loop that reads an output as a sequence reads as many rows as it has
       steps.
    5. ``xs[n-1]`` becomes ``xs[-1]``, and the bounds of slices likewise; ``xs[n-k]`` becomes
       ``xs[-k]`` where ``n`` is provably at least ``k``.
    6. Readers that need only a length (``xs.shape[0]``, ``zeros_like(xs)``) get it from ``n``.
    7. ``concatenate([start, xs])``, where ``start`` holds the loop's initial rows, becomes the
       loop's own buffer.
    8. Every reader reads last rows or ``xs[0]``: one more application of the body, outside the
       loop, computes the row of the first step. (A state that records the row costs a copy in every
       step; this costs one step, and none if PyTensor can fold it.) Loops that provably run at
       most 64 steps more than are kept stay as they are.

    Preconditions: buffers provably hold every step. To run fewer steps, a loop has no mit_mot, no
    untraced state is read, and every sequence is provably long enough. Only cases 1 and 7 apply to
    a while loop, whose length is not known. A reader that is out of bounds keeps the loop as it is;
    readers raise in the same cases as before, also for no steps. Where case 3 may run no step at
    all, no reader takes slices of a nit_sot: PyTensor loses the shape of its rows, and when it
    compiles for speed, reads rows that were never computed. Case 8 needs a loop that provably runs
    a step, and a step of at most 100 operations with no inner graph, nothing random, and only
    traced states; its row may differ in the last bits, since PyTensor compiles it differently.

    Errors raised by steps that no longer run are lost, and so are the errors of a loop of which
    only the length was read.

    Out of scope: mit_mots; slices of slices for an unknown ``n``, which `clean-slices` composes;
    first rows other than ``xs[0]`` read beside last ones; ``xs[-i:]``; symbolic bounds; case 8 in
    batched loops, and case 3 beside readers of the first steps.
    """

    name: ClassVar[str] = "trim-steps"
    sweeps: ClassVar[int] = 8

    def rewrite(self, view: ScanView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for readers of a loop, to run fewer steps or count from the end."""
        names = context.names(view)
        lengths = Lengths(view.n_steps)
        simpler = _simpler_readers(view, lengths, context)
        if simpler:
            return simpler
        looks = looks_at(view, context)
        if view.is_while:
            return cut_to_first(view, looks, lengths, context)
        steps = lengths.value_of(view.n_steps)
        if steps.is_constant:
            cut = trim_known(view, steps.constant, looks, names, context)
        else:
            cut = cut_to_first(view, looks, lengths, context) or trim_unknown(
                view, lengths, context
            )
        return cut or first_rows(view, looks, names, lengths, context)


def _simpler_readers(
    view: ScanView, lengths: Lengths, context: PassContext
) -> dict[Variable, Variable]:
    """Return readers rewritten so that the rows they read can be determined."""
    found: dict[Variable, Variable] = {}
    for slot in view.of_kind(*TRACED):
        if is_whole(view, slot, lengths):
            found |= joined_starts(view, slot, lengths, context.clients, context.same)
            if not view.is_while:
                found |= length_reads(view, slot, lengths, context.clients)
                found |= counted_reads(view, slot, lengths, context.clients)
    return found
