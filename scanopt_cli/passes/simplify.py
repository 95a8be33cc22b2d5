"""Simplify the arithmetic of a step by PyTensor's own rewriters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from pytensor.compile.mode import optdb
from pytensor.graph.rewriting.db import RewriteDatabaseQuery

from scanopt_cli.identity.canonical import digest
from scanopt_cli.passes.base import Pass, Site

# Loops are the business of other passes, and so is what PyTensor gets wrong of a known length:
# its `local_dimshuffle_subtensor` turns the sum of `x[:-2:-1]` into `x[0]`.
_WITHOUT = ("scan", "inplace", "fusion", "inline_ofg", "local_dimshuffle_subtensor")


@dataclass(frozen=True)
class Simplify(Pass):
    """Simplify the bodies of loops and OpFromGraphs by PyTensor's own rewriters.

    Legal cases:

    1. Every body is canonicalised, stabilised and specialised, as PyTensor does before it compiles
       one. With ``outer=true``, so is the graph itself. ``without`` names tags of rewrites to leave
       out, separated by colons (``without=shape_unsafe:local_log_sum_exp``).

    A gradient's body is full of sums with zero, products with one and values that are filled into
    shapes; passes that look for equal or unused parts find more of them when these are gone.

    Values are those that PyTensor computes from the graph in its default modes, not those of the
    graph as it is written: sums may be rounded otherwise, and where a factor is zero, an infinite
    other one does not make NaN.

    Preconditions: nothing in the graph works in place.

    Out of scope: everything about loops, and PyTensor's rewrite ``local_dimshuffle_subtensor``,
    which gets reversed slices of a known length wrong.
    """

    name: ClassVar[str] = "simplify"
    everywhere: ClassVar[bool] = True

    outer: bool = False
    without: str = ""

    def run(self, site: Site) -> bool:
        """Simplify a body, or the whole graph if that was asked for."""
        fgraph = site.fgraph
        if not (site.path or self.outer) or any(node.op.destroy_map for node in fgraph.apply_nodes):
            return False
        if not site.budget.is_left:
            return False
        before, count = digest(fgraph), len(fgraph.apply_nodes)
        _rewriter(self.without).rewrite(fgraph)
        if digest(fgraph) == before:
            return False
        site.budget.spend()
        site.changed(None, f"simplified: {count} → {len(fgraph.apply_nodes)} nodes")
        return True


@cache
def _rewriter(without: str) -> Any:
    include = ["canonicalize", "stabilize", "specialize"]
    exclude = [*_WITHOUT, *filter(None, without.split(":"))]
    return optdb.query(RewriteDatabaseQuery(include=include, exclude=exclude))
