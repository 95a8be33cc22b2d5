"""Simplify bodies with PyTensor's own rewriters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op

from scanopt_cli.analysis.term_counts import MOST_TERMS, most_terms
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.ir.graph import copy_nodes
from scanopt_cli.passes.simplify.sound_rewriters import sound_rewriter
from scanopt_cli.pipeline.contract import Pass, PassContext, Rewrite
from scanopt_cli.remarks import Code, Why, because

# At most so many rewrites of one graph in search of a fixpoint.
_ATTEMPTS = 6


@dataclass(frozen=True)
class Simplify(Pass):
    """Simplify the bodies of loops and OpFromGraphs with PyTensor's own rewriters.

    Legal cases:

    1. Every body is canonicalised, stabilised and specialised, as PyTensor does before it compiles
       one. With ``outer=true``, so is the graph itself. ``without`` names tags of rewrites to leave
       out, separated by colons (``without=shape_unsafe:local_log_sum_exp``).

    A gradient's body is full of sums with zero, products with one and values that are filled into
    shapes; once these are gone, passes that look for equal or dead parts find more of them.

    A body is rewritten to a fixpoint. PyTensor's rewriters may also cycle between several forms;
    then the pass takes the smallest of them. If no form recurs within six rewrites, the body is
    left alone.

    Values are those that PyTensor computes from the graph in its default modes, not those of the
    graph as written: sums may round differently, and zero times infinity or NaN may be zero, not
    NaN.

    Preconditions: nothing in the graph works in place; multiplied out, no sum or product has more
    than 10,000 terms, which PyTensor would count one by one; and no two Ops differ only in what
    derivatives see (``grad_scale`` by 2 and by 3), since PyTensor would merge them.

    Out of scope: rewrites of loops; bodies that belong to the class of an Op (PyTensor's
    SymbolicOps, such as LogAddExp); and rewrites of PyTensor's that change values: those tagged
    ``random_unsafe``, which return a different generator than the graph does,
    ``local_dimshuffle_subtensor``, which is wrong for reversed slices of a known length,
    ``local_merge_alloc``, which asserts that lengths are equal where one may be 1,
    ``local_view_op``, which drops what only derivatives see (``zero_grad``, ``grad_scale``), and
    ``local_add_canonizer`` where a boolean is added or subtracted. Of a Join of over 100 operands,
    neighbouring slices stay apart, since ``local_join_subtensors`` takes quadratic time.
    """

    name: ClassVar[str] = "simplify"
    everywhere: ClassVar[bool] = True

    outer: bool = False
    without: str = ""

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        """Simplify a body, or the outer graph if the option ``outer`` is set."""
        fgraph = context.fgraph
        if not (context.path or self.outer) or any(
            node.op.destroy_map for node in fgraph.apply_nodes
        ):
            return
        before = digest(fgraph)
        if before in context.settled:
            return
        if most_terms(fgraph) > MOST_TERMS:
            why = because(Why.TERMS_MANY, terms=f"{MOST_TERMS:,}")
            context.missed(None, Code.NOT_SIMPLIFIED, why)
            return
        if _differentiates_equal_ops_apart(fgraph, context.digests.sameness):
            context.missed(None, Code.NOT_SIMPLIFIED, because(Why.OPS_FOR_GRADIENTS))
            return
        form, after = self._fixpoint(fgraph, before)
        if after is None:
            why = because(Why.NO_FIXPOINT, attempts=_ATTEMPTS)
            context.missed(None, Code.NOT_SIMPLIFIED, why)
        context.settled.add(after or before)
        if after is not None and after != before:
            count, fewer = len(fgraph.apply_nodes), len(form.apply_nodes)
            context.passed(None, Code.SIMPLIFIED, before=count, after=fewer)
            yield Rewrite(dict(zip(fgraph.outputs, form.outputs, strict=True)))

    def _fixpoint(self, fgraph: FunctionGraph, before: str) -> tuple[FunctionGraph, str | None]:
        """Return what PyTensor's rewriters make of ``fgraph``, and its digest.

        If the rewriters cycle, it is the smallest form of the cycle, and of forms of one size that
        with the smallest digest, so it does not matter where the cycle was entered. The digest is
        ``None`` if there is no fixpoint.
        """
        digests = [before]
        forms = [fgraph]
        while len(forms) <= _ATTEMPTS:
            form = copy_nodes(forms[-1])
            # What speaks against a rewriter may be gone from a later form.
            sound_rewriter(form, self.without).rewrite(form)
            reached = digest(form)
            if reached in digests:
                cycle = range(digests.index(reached), len(forms))
                chosen = min(cycle, key=lambda i: (len(forms[i].apply_nodes), digests[i]))
                return forms[chosen], digests[chosen]
            digests.append(reached)
            forms.append(form)
        return fgraph, None


def _differentiates_equal_ops_apart(fgraph: FunctionGraph, sameness: Sameness) -> bool:
    """Whether two Ops that PyTensor calls equal are differentiated differently."""
    first: dict[Op, Op] = {}
    pairs = ((first.setdefault(node.op, node.op), node.op) for node in fgraph.apply_nodes)
    return any(
        one is not other and sameness.of_op(one) != sameness.of_op(other) for one, other in pairs
    )
