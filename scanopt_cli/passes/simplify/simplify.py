"""Simplify bodies with PyTensor's own rewriters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Self

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import MergeFeature
from pytensor.tensor.linalg.inverse import MatrixInverse

from scanopt_cli.analysis.term_counts import MOST_TERMS, most_terms
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.equivalence.definition import Definition
from scanopt_cli.ir.fast_graphs import rewrite_fast
from scanopt_cli.ir.graph import copy_nodes
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.loop.shifted_sums import protect_log_sums, unprotect_log_sums
from scanopt_cli.passes.push_out.hoisting import invariant_nodes
from scanopt_cli.passes.share_factors import ShareFactors, is_shared, with_shared_factors
from scanopt_cli.passes.simplify.sound_rewriters import sound_rewriter
from scanopt_cli.pipeline.contract import (
    CompilationTarget,
    Fixpoint,
    Pass,
    PassContext,
    Rewrite,
)
from scanopt_cli.remarks import Code, Why, because

# At most so many forms of one graph in search of a fixpoint.
_MOST_FORMS = 6
_INVERSES = "inv_to_solve"
"""The rewrite of PyTensor's that makes ``solve(A, b)`` of ``inv(A) @ b``."""


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

    In a body that inverts a matrix that no step changes, ``inv(A) @ h[t-1]`` stays as it is: the
    inverse leaves the loop by `push-out`, and a step takes a product. To solve a system in each
    step (``inv_to_solve``), which PyTensor makes of it elsewhere, would take several times as long.

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
    neighbouring slices stay apart, since ``local_join_subtensors`` takes quadratic time. How a
    system is solved (``psd_solve_to_chol_solve``, ``reuse_decomposition_multiple_solves``) is for
    `factor-once` and the compilation to say.
    """

    name: ClassVar[str] = "simplify"
    everywhere: ClassVar[bool] = True

    outer: bool = False
    without: str = ""

    def adapted(self, target: CompilationTarget) -> Self:
        """Leave the outer graph to PyTensor, which simplifies it next, but bodies last: too late.

        The mode excludes rewrites from both.
        """
        without = {*filter(None, self.without.split(":")), *target.excluded}
        return replace(self, outer=False, without=":".join(sorted(without)))

    def rewrites(self, context: PassContext) -> Iterator[Fixpoint]:
        """Simplify a body, or the outer graph if the option ``outer`` is set."""
        fgraph = context.fgraph
        if not (context.path or self.outer) or any(
            node.op.destroy_map for node in fgraph.apply_nodes
        ):
            return
        if most_terms(fgraph) > MOST_TERMS:
            why = because(Why.TERMS_MANY, terms=f"{MOST_TERMS:,}")
            context.missed(None, Code.NOT_SIMPLIFIED, why)
        elif _differentiates_equal_ops_apart(fgraph, context.digests.sameness):
            context.missed(None, Code.NOT_SIMPLIFIED, because(Why.OPS_FOR_GRADIENTS))
        else:
            keeps_inverses = _inverts(context)
            rewritten = partial(
                self._rewritten, is_body=bool(context.path), keeps_inverses=keeps_inverses
            )
            yield Fixpoint(rewritten, _MOST_FORMS)

    def _rewritten(
        self, fgraph: FunctionGraph, *, is_body: bool, keeps_inverses: bool
    ) -> FunctionGraph:
        form = copy_nodes(fgraph)
        rewrite_fast(form)
        form.attach_feature(_Merging())
        protect_log_sums(form)
        # What speaks against a rewriter may be gone from a later form.
        without = f"{self.without}:{_INVERSES}" if keeps_inverses else self.without
        sound_rewriter(form, without).rewrite(form)
        unprotect_log_sums(form)
        if is_body and is_shared(fgraph.apply_nodes) and _is_shared_form(fgraph, form):
            return fgraph
        return form


class _Merging(MergeFeature):
    """PyTensor's search for nodes to merge, which looks at all inputs of a node that changed.

    Where one input is read by nothing else, no other node has the same inputs. So a node with many
    inputs of its own, which change one by one, is not looked at from end to end each time.
    """

    def process_node(self, fgraph: FunctionGraph, node: Apply) -> None:
        """Look for a node that does the same, as PyTensor does."""
        if any(len(fgraph.clients[variable]) == 1 for variable in node.inputs):
            self.nodes_seen.add(node)
        else:
            super().process_node(fgraph, node)


def _inverts(context: PassContext) -> bool:
    """Whether an inverse in a body is that of a matrix that no step changes."""
    nodes = context.fgraph.toposort()
    inverses = [node for node in nodes if isinstance(core_op(node.op), MatrixInverse)]
    if not inverses:
        return False
    return not invariant_nodes(nodes, context.invariants()).isdisjoint(inverses)


def _is_shared_form(fgraph: FunctionGraph, form: FunctionGraph) -> bool:
    """Whether a body is a simplified ``form`` but for the factors that its products share.

    PyTensor multiplies them into each product again; see ``share-factors``.
    """
    copy = copy_nodes(form)
    Rewrite(with_shared_factors(copy.toposort())).apply(copy, ShareFactors.name)
    return digest(copy) == digest(fgraph)


def _differentiates_equal_ops_apart(fgraph: FunctionGraph, sameness: Definition) -> bool:
    """Whether two Ops that PyTensor calls equal are differentiated differently."""
    first: dict[Op, Op] = {}
    pairs = ((first.setdefault(node.op, node.op), node.op) for node in fgraph.apply_nodes)
    return any(
        one is not other and sameness.of_op(one) != sameness.of_op(other) for one, other in pairs
    )
