"""Replace loops that need no loop by Ops on whole arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from pytensor.graph.basic import Variable

from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import SlotView
from scanopt_cli.pipeline.contract import CompilationTarget, PassContext
from scanopt_cli.pipeline.loop_passes import AnyLoopPass
from scanopt_cli.remarks import Code


@dataclass(frozen=True)
class LoopsToOps(AnyLoopPass):
    """Replace maps, running sums and running products by Ops on whole arrays.

    A step of a Scan is called anew each time, which takes longer than most of what it computes. An
    Op on the rows of all steps is called once. A loop goes once all of its outputs are computed by
    Ops; of a loop that stays, the outputs leave that nothing in it reads.

    Legal cases:

    1. A map: an output, or a state, that a step computes of rows of sequences and of what no step
       changes. There is an Op for all steps for elementwise arithmetic; for sums, products, running
       ones, ``any`` and ``all`` over axes of a row; for maxima, minima, softmax and logsumexp along
       axes that are known to have entries; for sorting; for slices, lengths, joins, splits, other
       shapes and repetitions of rows; for products of rows, and with matrices that no step changes;
       and for solutions by such a matrix.
    2. ``s + f(x_t)``, where only the last value is read, is ``s + sum(f(x))``, with ``f`` as in
       case 1. Several terms may be added, or subtracted; they are added to each other first.
    3. The same with the trace read is ``cumsum``, of the initial value and the terms, in the order
       of the loop.
    4. ``p * f(x_t)`` is ``cumprod``, likewise. Its derivative is that of the loop: it does not
       divide by a factor, which may be zero.
    5. Cases 1 to 4 of states of cases 3 and 4: a running sum of a running sum.
    6. What may be an error of a step: maxima, minima, softmax and ``argmax`` of what may have no
       entries, and entries that are read or written where there may be none. If the loop may run no
       step, an ``ifelse`` computes them only if it runs one.
    7. Entries at places that vary: ``w[i_t]``, of a row too, and written into a row. A place that
       is out of bounds is the same error.
    8. ``s[i_t] += f(x_t)``, where only the last value is read, as in gradients of case 7: the
       entries of all steps are added at once, in the order of the loop.
    9. Branches (``ifelse``) of elementwise arithmetic that takes no longer than to read a number:
       both are computed, and one is chosen.

    Preconditions: numbers are float32, float64 or integers; sums of integers wrap around as in the
    loop. Sequences provably have a row for each step, and none is computed of a Scan's trace of
    arrays, unless the loop provably runs a step: of no steps, a Scan returns a trace of other
    lengths. The loop has no stop condition and is not
    batched, its gradient is not truncated, and no step works in place. Traces that are read
    provably hold every step; where the last row alone is read, that is of the last step. What is
    computed raises no error but those of cases 6 and 7, and that shapes do not fit, which is raised
    then even if the loop runs no step. A state has the shape of what is added to it, as far as
    types tell. Nothing that stays in the loop reads an output that leaves, nor what that alone does
    not compute. No sum is made of what would take far more memory than the loop: outer products of
    all steps, products of two rows that are matrices, copies of what no step changes, and rows that
    are read at places that vary, unless they have at most 64 entries or as many axes as a row of a
    sequence. A product has one factor beside the state: of two, the product may overflow.

    Sums of case 2 are rounded in another order, those of float32 in float64. Where terms near the
    largest number cancel, one order may overflow and another not. Traces of no steps have rows of
    the right shape, which a Scan loses. That the trip count is negative may be no error any longer.

    With ``traced=false``, TracedLoops stay: they are compiled to machine code, which keeps what it
    computes in registers, and is as fast as Ops on arrays or faster. So it is of JAX, which
    compiles loops of both kinds: with ``scans=false`` Scans stay as well.

    Out of scope: sums of outer products and of products of matrices (see ``push-out-sums``), states
    with several taps, entries that are set where a state is read at its end, masks, branches; and
    what takes as long for all steps at once as in a loop that Numba compiles: factors, inverses and
    determinants of rows (329, 659 and 467 microseconds for 272, 656 and 443, at 1,000 steps of 3x3
    matrices), diagonal matrices (234 for 240), and logsumexp of what may have no entries (133 for
    69).
    """

    name: ClassVar[str] = "loops-to-ops"
    accepts_in_place: ClassVar[bool] = False
    accepts_batched: ClassVar[bool] = False
    accepts_while: ClassVar[bool] = False

    traced: bool = True
    """whether TracedLoops are replaced, too"""

    scans: bool = True
    """whether Scans are replaced"""

    def adapted(self, target: CompilationTarget) -> Self:
        """Leave JAX its loops, which it compiles as wholes: Ops on arrays gain nothing there."""
        is_jax = target.linker == "jax"
        return replace(self, traced=self.traced and not is_jax, scans=self.scans and not is_jax)

    def rewrite(self, view: SlotView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, of which Ops compute some."""
        if not (self.scans if isinstance(view, ScanView) else self.traced):
            return None
        # Of loops that stay, nothing is asked.
        from scanopt_cli.passes.loops_to_ops.known_steps import KnownSteps
        from scanopt_cli.passes.loops_to_ops.outputs import (
            outputs_of_ops,
            replaced,
            tell_what_is_in_the_way,
            unfit,
        )

        names = context.names(view)
        view.unfreeze()
        known = KnownSteps.of(view)
        leaving = outputs_of_ops(view, known, context)
        if not leaving:
            tell_what_is_in_the_way(view, names, context)
            return None
        reason = unfit(view, known, leaving, context)
        labels = [names[slot] for slot in leaving]
        if reason is not None:
            context.missed(view, Code.LOOP_NEEDED, reason, *labels)
            return None
        context.passed(view, Code.LOOP_NOT_NEEDED, *labels)
        return replaced(view, known, leaving, context)
