"""Keep only the steps of a loop that somebody reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pytensor.graph.basic import Variable

from scanopt_cli.analysis.accesses.reads import Read
from scanopt_cli.analysis.accesses.shape_reads import length_reads
from scanopt_cli.analysis.buffers import is_whole
from scanopt_cli.analysis.count_variables import scalar_steps
from scanopt_cli.analysis.lengths import AffineExpr, Lengths
from scanopt_cli.analysis.shortening import shorten
from scanopt_cli.ir.scan_view import TRACED, ScanView, Slot, SlotKind
from scanopt_cli.passes.save_mem.trace_reductions import reduce_inside
from scanopt_cli.passes.save_mem.trimmed_reads import is_mapped, trimmed_reads
from scanopt_cli.passes.trim_steps.fewer_steps import Looks, cut_to_first, looks_at
from scanopt_cli.pipeline.contract import PassContext, ScanPass
from scanopt_cli.text import plural


@dataclass(frozen=True)
class SaveMem(ScanPass):
    """Run fewer steps and keep shorter buffers where only some rows of a loop's results are read.

    Legal cases, for a loop of ``n`` steps and a state whose taps reach ``L`` rows back:

    1. Every reader of a mit_sot, sit_sot or nit_sot looks at its last ``k`` steps at most
       (``xs[-1]``, ``xs[-3:]``, ``xs[-1:-4:-1]``): the buffer keeps ``L + min(k, n)`` rows.
    2. Nobody outside reads a state that the loop needs: the buffer keeps ``L`` rows, or ``L + 1``.
    3. Every reader of every output looks at the first ``k`` steps (``xs[2]``, ``xs[:5]``): the loop
       runs ``min(k, n)`` steps. A while loop may stop before. (`trim-steps` does more of this.)
    4. With ``reductions``: nobody but ``xs.sum()``, ``prod``, ``mean``, ``max`` or ``min`` over
       time, and readers of last rows, reads a trace: each becomes a state that a step adds to, and
       the trace is not kept. Sums and products are carried in the type that they accumulate in.
       Rows of a state are added up as rows for a reduction over time alone, and if a maximum is
       taken of them; else each step adds one number.

    Preconditions: the buffer is shown to hold the start and every step. In a while loop a buffer
    keeps one step at most: a longer one PyTensor cuts in the wrong place when the loop stops before
    the buffer is full. What the buffer is of depends on a state: all else PyTensor computes without
    a loop when it compiles, and then needs the whole buffer. For case 3 there is no mit_mot, and
    nobody reads an untraced state. A sequence that is too short stays an error: case 3 wants every
    sequence shown to be long enough. What is lost is an error that a step raises which is no longer
    run.

    Readers raise in the same cases as before: ``xs[-1]`` of no steps is still an error. A row
    counted from the end is read from the trimmed buffer itself, where the steps are shown to be
    enough; all else is read from a copy of the few rows (a ``DeepCopyOp``). Otherwise PyTensor
    merges slices of slices into a row counted from the start, and takes it for the step of that
    number.

    With ``prealloc``, the default, a state keeps at least one row more than its taps reach, which
    PyTensor's virtual machines need: they write a step's result in place while other parts of the
    step still read. Without it that row is saved too, and the graph is right only where nothing is
    written in place: with Numba, JAX, or the flag ``scan__allow_output_prealloc=False``.

    ``reductions`` is off by default: the terms of a sum are added in another order, so the last
    bits of floats differ. For case 4 there is no stop condition; a ``max`` or ``min`` wants a step
    that is shown to be made, since of no steps it is an error.

    Trimmed loops must not be differentiated: `scanopt grad` refuses them. Run this pass last.

    Out of scope: mit_mots, readers with a step from the start (``xs[::2]``), symbolic indices, and
    rows in the middle, which are for `trim-steps`; reductions in batched loops, those that keep the
    rows of a nit_sot (whose shape is not known before the loop), and products of such rows.
    """

    prealloc: bool = True
    reductions: bool = False

    name: ClassVar[str] = "save-mem"
    trims: ClassVar[bool] = True

    def rewrite(self, view: ScanView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return all outputs, on a Scan with fewer steps or shorter buffers."""
        lengths = Lengths(view.n_steps)
        names = context.names(view)
        looks = looks_at(view, names, context)
        cut = cut_to_first(view, looks, lengths, context)
        if cut is not None:
            return cut
        if self.reductions:
            reduced = self._reduced(view, looks, names, lengths, context)
            if reduced is not None:
                return reduced
        keeps = {
            slot: keep
            for slot, found in looks.items()
            if (keep := self._keep(view, slot, names[slot], found, lengths, context)) is not None
        }
        if not keeps or not context.budget.spend():
            return None
        for slot, keep in keeps.items():
            why = (
                ", ".join(dict.fromkeys(read.text for read in looks[slot])) or "its own taps alone"
            )
            context.changed(
                view, f"`{names[slot]}` keeps {plural(slot.n_initial + keep, 'row')}: read as {why}"
            )
            shorten(view, slot, keep, lengths)
        results = view.rebuild()
        for slot in keeps:
            assert slot.outer_output is not None
            trimmed = results[slot.outer_output]
            results |= trimmed_reads(view, slot, trimmed, context.clients, lengths)
        return results

    def _reduced(
        self,
        view: ScanView,
        looks: Looks,
        names: dict[Slot, str],
        lengths: Lengths,
        context: PassContext,
    ) -> dict[Variable, Variable] | None:
        """Reductions without the traces that they are of, and lengths that need none."""
        counted: dict[Variable, Variable] = {}
        if not view.is_while:
            for slot in view.of_kind(*TRACED):
                if is_whole(view, slot, lengths):
                    counted |= length_reads(view, slot, lengths, context.clients)
        if counted:
            return counted if context.budget.spend() else None
        return reduce_inside(view, looks, names, lengths, context)

    def _keep(
        self,
        view: ScanView,
        slot: Slot,
        name: str,
        found: Sequence[Read],
        lengths: Lengths,
        context: PassContext,
    ) -> int | None:
        """How many steps the buffer of ``slot`` needs to keep, ``None`` to leave it alone."""
        if not is_whole(view, slot, lengths):
            return None
        wide = next((read for read in found if read.tail is None), None)
        if wide is not None:
            steps = lengths.value_of(view.n_steps)
            context.kept(view, f"all {steps} steps of `{name}`: read as {wide.text}")
            return None
        if slot.kind is SlotKind.NIT_SOT and not found:
            return None
        keep = max((read.tail for read in found if read.tail is not None), default=0)
        if self.prealloc and slot.kind is not SlotKind.NIT_SOT:
            keep = max(keep, 1)
        if lengths.provably_le(lengths.value_of(view.n_steps), AffineExpr(keep)):
            return None
        if view.is_while and keep > 1:
            context.kept(view, f"all steps of `{name}`: a while loop can keep one step, not {keep}")
            return None
        if is_mapped(view, slot):
            context.kept(view, f"all steps of `{name}`: it depends on no state, and needs no loop")
            return None
        if scalar_steps(view) is None:
            context.kept(view, f"all steps of `{name}`: the step count differs within the batch")
            return None
        return keep
