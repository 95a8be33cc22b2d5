"""Move loop-invariant and elementwise computation out of a loop."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from pytensor.graph.basic import Apply, Variable

from scanopt_cli.ir.scan_view import view_of
from scanopt_cli.ir.slots import SlotView
from scanopt_cli.passes.push_out.grouped_terms import with_grouped_terms
from scanopt_cli.passes.push_out.hoisting import hoist
from scanopt_cli.passes.push_out.rows_of_all_steps import compute_before, row_maps
from scanopt_cli.pipeline.contract import CompilationTarget, PassContext
from scanopt_cli.pipeline.loop_passes import AnyLoopPass
from scanopt_cli.remarks import Code


@dataclass(frozen=True)
class PushOut(AnyLoopPass):
    """Move computation that needs no loop out of the body.

    Legal cases, of Scans and of TracedLoops, where *rows* are those of a Scan's sequences, and what
    a step of a TracedLoop reads of a constant at its index, or a constant number of rows behind it:

    1. Nodes that depend on loop-invariant inputs alone are computed once, before the loop, and so
       leave loops in loops. A node that may raise an error for some values, or that multiplies
       matrices not known to be small, is computed only if the loop runs a step (an ``ifelse``);
       with ``guarded=false``, for backends that raise no such errors, it always is.
       With ``reads=false``, for backends whose steps read an entry faster than they decide whether
       there is a step, an entry or a row at an index that may be out of bounds is not read before.
    2. Elementwise arithmetic of rows and invariants is computed for all steps at once, but outer
       products only if a function such as exp is computed of them: it takes longer to write all to
       memory than to multiply. With ``cheap=false`` it is if it contains such a function, or is all
       that a loop without states does: a loop without taps and buffers adds two numbers in less
       time than it takes to read their sum.
    3. In a sum or product of more than two floats, the operands that need no loop become one term,
       to which case 1 or 2 applies: ``w + x[t] + h[t-1]`` is computed as ``(w + x[t]) + h[t-1]``,
       which may round differently.
    4. A loop that copies rows, and does nothing else, is its sequences.
    5. ``(c * A) @ B``, of two matrices that no step changes and a number that steps do, is
       ``c * (A @ B)``, to which case 1 applies; likewise ``A @ (c * B)``, and with several numbers.
       So are the gradients by ``W`` of what a loop does with ``exp(W @ W)``. It may round
       differently, and overflow where ``A @ B`` does, even if the number is small.

    Preconditions: the loop is not batched, and no step works in place. For case 1, with
    ``guarded``, what may raise an error is not in a branch of the step (an ``ifelse`` that a step
    decides): no step may take it. For case 2 all sequences are
    cut to the trip count, unless they provably have that many rows; a sequence that is cut does not
    have one row by its type, which arithmetic would broadcast. No row is computed of a Scan's trace
    of arrays, unless the loop provably runs a step: of no steps, a Scan returns a trace of other
    lengths. What a TracedLoop indexes provably
    has a row for each step. What may raise an error, as a division of integers, each step computes:
    it is in no branch, there is no stop condition, and it is no invariant. If no loop remains, as
    by case 4, a Scan too provably has the rows, its outputs keep every step, its gradient is not
    truncated, and no condition ends it.

    Within `scanopt_cli.enabled` it runs in place of PyTensor's own rewriters, whatever the
    pipeline. The presets ``grad`` and ``loop`` have it, since PyTensor's rewriters, which run when
    the Scans of a saved graph are compiled, move invariants out of one loop, not out of several;
    but with ``cheap=false``: the step of a TracedLoop adds in less time than it reads, and out of
    a Scan PyTensor moves the rest. Of a saved graph, ``default`` leaves it all to PyTensor.

    If shapes do not fit, the result raises an error even if the loop runs no step. If no loop
    remains, traces of no steps have rows of the right shape, which a Scan loses.

    Out of scope: matrix products of sequences (see ``push-out-products``, ``push-out-batches``),
    and sums (see ``push-out-sums``); invariants inside of an OpFromGraph that varies; rows that a
    TracedLoop reads from last to first, and maps in its states.
    """

    name: ClassVar[str] = "push-out"
    accepts_in_place: ClassVar[bool] = False
    accepts_batched: ClassVar[bool] = False

    guarded: bool = True
    cheap: bool = True
    """whether sequences are added and multiplied before the loop, too"""
    reads: bool = True
    """whether what a step reads at an index is read before the loop if that needs an ifelse"""

    def adapted(self, target: CompilationTarget) -> Self:
        """Guard only what may raise; move what is cheap only where it takes long in a step.

        Both branches of JAX's conditionals must have the same shape.
        """
        is_slow = not target.is_compiled
        return replace(
            self,
            guarded=target.raises,
            cheap=self.cheap or is_slow,
            reads=self.reads and is_slow,
        )

    def rewrite(self, view: SlotView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a loop whose body computes less."""
        work = view_of(view.node)
        work.unfreeze()
        maps = row_maps(work)
        takes_rows = self.cheap or maps.is_all or maps.are_costly
        grouped = with_grouped_terms(work, maps.rows if takes_rows else ())
        if grouped is not None:
            work = view_of(node_of(grouped))
            work.unfreeze()
            maps = row_maps(work)
        found = compute_before(work, maps) if takes_rows else None
        if isinstance(found, dict):
            context.passed(view, Code.SEQUENCES_COMPUTED)
        else:
            if found is not None:
                context.missed(view, Code.SEQUENCES_NOT_COMPUTED, found)
            found = hoist(work, view, context, guarded=self.guarded, reads=self.reads)
        if found is None or grouped is None:
            return found
        return {old: found[new] for old, new in grouped.items()}


def node_of(replaced: dict[Variable, Variable]) -> Apply:
    """Return the one node that computes the replacements."""
    nodes: set[Apply] = {new.owner for new in replaced.values() if new.owner is not None}
    (node,) = nodes
    return node
