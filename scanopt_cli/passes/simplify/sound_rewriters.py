"""Which of PyTensor's rewriters simplify a body without changing what it computes."""

from __future__ import annotations

from functools import cache
from typing import Any

from pytensor.compile.mode import optdb
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.scalar.basic import Add, Sub
from pytensor.tensor.basic import Join
from pytensor.tensor.elemwise import Elemwise

# Excluded tags and names of rewrites. Loops, work in place and fusion belong to other passes. A
# generator is a value too, and a rewrite tagged ``random_unsafe`` returns a different one.
# ``local_dimshuffle_subtensor`` turns the sum of `x[:-2:-1]` of a known length into `x[0]`. How a
# system is solved is for `factor-once` and the compilation: ``psd_solve_to_chol_solve`` takes the
# triangle of the factor that is slower, and ``reuse_decomposition_multiple_solves`` takes apart a
# solution that a backward loop shares with the forward loop, and is slower for small matrices.
# ``local_subtensor_of_alloc``, which the lift of diagonals has in it, nests choices for the length
# of `alloc(x, n)[:m]`, of which none can be proved.
_WITHOUT = (
    "scan",
    "inplace",
    "fusion",
    "inline_ofg",
    "random_unsafe",
    "local_dimshuffle_subtensor",
    "extract_diag_lift_pass",
    "local_merge_alloc",
    "local_subtensor_of_alloc",
    "local_view_op",
    "psd_solve_to_chol_solve",
    "reuse_decomposition_multiple_solves",
)
# A Join of more operands takes seconds.
_OPERANDS = 100


def sound_rewriter(form: FunctionGraph, without: str) -> Any:
    """Return PyTensor's rewriters without those that are unsound or slow on ``form``.

    ``without`` holds further tags to leave out, separated by colons.
    """
    return _rewriter(without, sums=not _adds_booleans(form), joins=not _joins_many(form))


def _adds_booleans(fgraph: FunctionGraph) -> bool:
    """Whether a sum or difference has a boolean term, as derivatives of minima and maxima do.

    PyTensor's ``local_add_canonizer`` rewrites ``(1 - b) + (1 - b)`` to ``2 - (b + b)``, and the
    sum of two booleans is a boolean.
    """
    return any(
        isinstance(node.op, Elemwise)
        and isinstance(node.op.scalar_op, Add | Sub)
        and any(variable.type.dtype == "bool" for variable in node.inputs)
        for node in fgraph.apply_nodes
    )


def _joins_many(fgraph: FunctionGraph) -> bool:
    """Whether a Join has so many operands that ``local_join_subtensors`` takes seconds.

    It joins one pair of neighbouring slices in each sweep over the graph.
    """
    ops = ((node.op, len(node.inputs)) for node in fgraph.apply_nodes)
    return any(isinstance(op, Join) and count > _OPERANDS for op, count in ops)


@cache
def _rewriter(without: str, *, sums: bool, joins: bool) -> Any:
    include = ["canonicalize", "stabilize", "specialize"]
    exclude = [*_WITHOUT, *filter(None, without.split(":"))]
    exclude += [] if sums else ["local_add_canonizer"]
    exclude += [] if joins else ["local_join_subtensors"]
    return optdb.query(RewriteDatabaseQuery(include=include, exclude=exclude))
