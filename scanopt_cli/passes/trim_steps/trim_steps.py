"""Run only the steps of a loop that are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pytensor.graph.basic import Variable

from scanopt_cli.analysis.accesses.accesses import accesses_of_outputs
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.slots import SlotView
from scanopt_cli.passes.trim_steps.fewer_steps import cut_to_first
from scanopt_cli.passes.trim_steps.known_steps import trim_known
from scanopt_cli.passes.trim_steps.unknown_steps import trim_unknown
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import AnyLoopPass


@dataclass(frozen=True)
class TrimSteps(AnyLoopPass):
    """Run only the steps of a loop that are read.

    Buffers stay whole, so every other pass still applies. `save-mem` trims those of Scans
    afterwards, and `trace-to-last` the traces of TracedLoops, by how far from the end they are
    read.

    Legal cases, for a Scan or a TracedLoop of ``n`` steps:

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
    4. In cases 2 and 3, a loop that reads an output as a sequence, or a TracedLoop that reads its
       rows at the number of the step, or ahead of that, reads as many rows as it has steps, and
       those ahead.

    Preconditions: buffers provably hold every step. The loop has no mit_mot; no untraced state of
    it is read, no last value of a state, and not how many steps it ran. Every sequence is provably
    long enough, and whatever a TracedLoop reads at the number of the step. Only case 1 applies to a
    while loop, whose length is not known. A reader that is out of bounds keeps the loop as it is;
    readers raise in the same cases as before, also for no steps. Where case 3 may run no step at
    all, no reader takes slices of a nit_sot of a Scan: PyTensor loses the shape of its rows, and
    when it compiles for speed, reads rows that were never computed.

    Errors raised by steps that no longer run are lost. Run `normalize-reads` before, which makes
    more bounds known, and `trace-to-last` behind, which reads last values.

    Out of scope: mit_mots; slices of slices for an unknown ``n``, which `clean-slices` composes;
    first rows that are read beside last ones (see `peel-first-step`); ``xs[-i:]``; symbolic bounds;
    and case 3 beside readers of the first steps.
    """

    name: ClassVar[str] = "trim-steps"
    repeats: ClassVar[bool] = True
    sweeps: ClassVar[int] = 8

    def rewrite(self, view: SlotView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for readers of a loop, to run fewer steps or count from the end."""
        names = context.names(view)
        lengths = Lengths(view.n_steps)
        found = accesses_of_outputs(view, context.clients)
        steps = lengths.steps
        if steps.is_constant and not view.is_while:
            return trim_known(view, steps.constant, found, names, context)
        cut = cut_to_first(view, found, lengths, context)
        return cut if cut or view.is_while else trim_unknown(view, found, lengths, context)
