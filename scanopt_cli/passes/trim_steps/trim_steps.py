"""Run only the steps of a loop that somebody reads."""

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

# One rewrite of a loop frees the next; there are not more kinds of them than this.
_SWEEPS = 8


@dataclass(frozen=True)
class TrimSteps(ScanPass):
    """Run fewer steps of a loop, and have its rows counted from the end, by what is read of them.

    Buffers stay whole, so every other pass still applies; `save-mem` shortens them afterwards, for
    which it looks at how far from the end they are read.

    Legal cases, for a loop of ``n`` steps:

    1. Every reader of every output looks at the first ``k`` steps: the loop runs ``min(k, n)``. A
       while loop may stop before.
    2. For a known ``n``, and readers whose every bound is a number (slices, chains of slices, rows,
       lists of rows): the loop runs up to the last row that is read: ``xs[-20:-10]`` of 1000 rows
       runs 990, ``xs[::100]`` 901, ``xs[[3, 500]]`` 501. Where all rows that are read of an output
       are late ones they are counted from the end, each chain as one slice: ``xs[500]`` alone is
       ``xs[-1]`` of 501 rows.
    3. For any ``n``, where every reader leaves out the last ``k`` rows at least (``xs[:-1]``,
       ``xs[-20:-10]``): the loop runs ``n - k`` steps, but not less than none, and readers count
       ``k`` rows less from the end. So it is for the gradient of ``xs[-1]``, which reads
       ``xs[:-1]``.
    4. For cases 2 and 3, a loop that reads an output as a sequence reads as many rows as it has
       steps.
    5. ``xs[n-1]`` is ``xs[-1]``, and so are the bounds of slices; ``xs[n-k]`` where ``n`` is shown
       to be at least ``k``.
    6. What asks for no more than a length (``xs.shape[0]``, ``zeros_like(xs)``) is served from
       ``n``.
    7. ``concatenate([start, xs])`` of the start that the loop has is the loop's own buffer.
    8. Readers of the last rows and of ``xs[0]``: the row of the first step is computed by one more
       application of the body, outside of the loop. (A state that records the row costs a copy in
       each of the steps, this costs one step, and none if PyTensor can fold it.) For loops of more
       than 64 steps above those that are kept.

    Preconditions: buffers are shown to hold every step. For fewer steps there is no mit_mot, nobody
    reads an untraced state, and every sequence is shown to be long enough. A while loop, whose
    length is not known, knows cases 1 and 7 alone. A reader that is out of bounds keeps the loop as
    it is; readers raise in the same cases as before, of no steps too. Where case 3 may run no step
    at all, nobody reads slices of a nit_sot: PyTensor loses the shape of its rows, and compiled for
    speed reads rows that were never made. Case 8 wants a step that is shown to be made, of at most
    100 operations, with no graph inside, nothing random, and no state but traced ones; its row may
    differ in the last bits, since PyTensor compiles it otherwise.

    What is lost is an error that a step raises which is no longer run, or of a loop of which no
    more than the length was read.

    Out of scope: mit_mots; slices of slices for an unknown ``n``, which `clean-slices` makes one;
    first rows other than ``xs[0]`` beside last ones; ``xs[-i:]``; symbolic bounds; case 8 in
    batched loops, and case 3 beside readers of the first steps.
    """

    name: ClassVar[str] = "trim-steps"

    def run(self, context: PassContext) -> bool:
        """Rewrite every Scan of ``context.fgraph`` until nothing changes."""
        sweeps = 0
        while sweeps < _SWEEPS and super().run(context):
            sweeps += 1
        return sweeps > 0

    def rewrite(self, view: ScanView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return what reads a loop, from one that runs fewer steps or counted from the end."""
        names = context.names(view)
        lengths = Lengths(view.n_steps)
        plainer = _plainer(view, lengths, context)
        if plainer:
            return plainer if context.budget.spend() else None
        looks = looks_at(view, names, context)
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


def _plainer(view: ScanView, lengths: Lengths, context: PassContext) -> dict[Variable, Variable]:
    """Readers in a form that tells which rows they read."""
    found: dict[Variable, Variable] = {}
    for slot in view.of_kind(*TRACED):
        if is_whole(view, slot, lengths):
            found |= joined_starts(view, slot, lengths, context.clients, context.same)
            if not view.is_while:
                found |= length_reads(view, slot, lengths, context.clients)
                found |= counted_reads(view, slot, lengths, context.clients)
    return found
