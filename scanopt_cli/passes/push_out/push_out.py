"""Move loop-invariant and elementwise computation out of a loop."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from pytensor.graph.basic import Variable

from scanopt_cli.analysis.dependence import is_elementwise_map
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.passes.push_out.grouped_terms import with_grouped_terms
from scanopt_cli.passes.push_out.hoisting import hoist
from scanopt_cli.passes.push_out.whole_sequences import (
    has_costly_maps,
    node_of,
    push_out_sequences,
)
from scanopt_cli.pipeline.contract import CompilationTarget, PassContext
from scanopt_cli.pipeline.loop_passes import ScanPass
from scanopt_cli.remarks import Code


@dataclass(frozen=True)
class PushOut(ScanPass):
    """Move computation that needs no loop out of the body.

    Legal cases:

    1. Nodes that depend on non-sequences alone are computed once, before the loop. A node that may
       raise an error for some values is computed only if the loop runs a step (an ``ifelse``); with
       ``guarded=false``, for backends that raise no such errors, it always is. With
       ``reads=false``, for backends whose steps read an entry faster than they decide whether there
       is a step, an entry or a row at an index that may be out of bounds is not read before.
    2. Elementwise arithmetic of sequences and non-sequences is computed for all steps at once, by
       PyTensor's ``scan_push_out_seq``, but outer products only if a function such as exp is
       computed of them: it takes longer to write all to memory than to multiply. With
       ``cheap=false`` it is if it contains such a function, or is the whole body: a loop without
       taps and buffers adds two numbers in less time than it takes to read their sum.
    3. In a sum or product of more than two floats, the operands that need no loop become one term,
       to which case 1 or 2 applies: ``w + x[t] + h[t-1]`` is computed as ``(w + x[t]) + h[t-1]``,
       which may round differently.
    4. A loop that copies rows, and does nothing else, is its sequences. These are provably as long
       as it has steps, and it keeps every step.

    Preconditions: the loop is not batched, and no step works in place. For case 2 all sequences are
    cut to the trip count, unless they provably have that many rows; a sequence that is cut does not
    have one row by its type, which arithmetic would broadcast. If case 2 applies to the whole body,
    so that no loop remains, the sequences are provably as long as the loop has steps, every output
    keeps every step, there is no untraced state, and all mit_sots have equally many initial rows.
    Without these conditions PyTensor's rewriter is wrong.

    Within `scanopt_cli.enabled` this pass replaces PyTensor's own rewriters. Of the presets only
    ``loop`` has it, since PyTensor runs its own when it compiles the Scans of a saved graph.

    If shapes do not fit, the result raises an error even if the loop runs no step. If case 2
    applies to the whole body, traces of no steps have rows of the right shape, which a Scan loses.

    Out of scope: matrix products of sequences (see ``push-out-products``), and sums (see
    ``push-out-sums``).
    """

    name: ClassVar[str] = "push-out"
    accepts_in_place: ClassVar[bool] = False

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

    def rewrite(self, view: ScanView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a Scan whose body computes less."""
        if view.batch_ndim:
            return None
        kinds = [SlotKind.NON_SEQ]
        if self.cheap or is_elementwise_map(view) or has_costly_maps(view):
            kinds.append(SlotKind.SEQ)
        grouped = with_grouped_terms(ScanView.of(view.node), kinds)
        work = view if grouped is None else ScanView.of(node_of(grouped))
        found = push_out_sequences(work) if SlotKind.SEQ in kinds else None
        if isinstance(found, dict):
            context.passed(view, Code.SEQUENCES_COMPUTED)
        else:
            if found is not None:
                context.missed(view, Code.SEQUENCES_NOT_COMPUTED, found)
            found = hoist(work, view, context, guarded=self.guarded, reads=self.reads)
        if found is None or grouped is None:
            return found
        return {old: found[new] for old, new in grouped.items()}
