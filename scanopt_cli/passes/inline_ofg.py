"""Compute the graph of an OpFromGraph in its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, cast

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Variable

from scanopt_cli.analysis.applied_graphs import (
    AppliedGraph,
    applied_graphs,
    graph_key,
    is_in_place,
    lends_memory,
    why_it_stays,
)
from scanopt_cli.ir.inner_graphs import is_own_graph, walk
from scanopt_cli.pipeline.contract import Pass, PassContext, Rewrite, check_from_zero
from scanopt_cli.remarks import Code, Reason, Why, because


@dataclass(frozen=True)
class InlineOfg(Pass):
    """Compute the graph of an OpFromGraph in its place, where that is used once or is small.

    Legal cases:

    1. The OpFromGraph is applied once, in the graph and all bodies together.
    2. Its graph has at most ``size`` nodes, those of its bodies included. Then it is so wherever it
       is applied, the innermost first.
    3. It was made with ``inline=True``: PyTensor inlines it as well, but bodies last.

    Other passes do not look into an OpFromGraph. Once it is inlined, what it shares with the graph
    around it is computed once: a gradient of an OpFromGraph is another one, which computes anew
    what the first did, its loops among it. The pass also works in every body.

    Preconditions: the OpFromGraph is of that class itself, without a gradient or a connection
    pattern of its own, which would be lost; neither it nor its graph works in place, nor does the
    graph around it, which may overwrite what was a copy. A length that the OpFromGraph does not
    know to be 1 is not known to be 1 outside, since it would be broadcast. A body would not return
    its own input, or a view of it, where the OpFromGraph returned a copy.

    Values are the same, and so are derivatives but for the order of sums. An output that nothing
    reads no longer raises errors.

    Out of scope: a Blockwise of an OpFromGraph, and the OpFromGraphs of PyTensor's own functions.
    The preset ``default`` leaves OpFromGraphs as a program has them.
    """

    name: ClassVar[str] = "inline-ofg"
    everywhere: ClassVar[bool] = True
    of_graphs: ClassVar[bool] = True

    size: int = 10

    def __post_init__(self) -> None:
        """Check the option."""
        check_from_zero(size=self.size)

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        """Yield a rewrite for each OpFromGraph that is inlined."""
        applied = context.whole.found(applied_graphs, context.sameness)
        works_in_place = is_in_place(context.fgraph)
        for node in context.fgraph.toposort():
            if not is_own_graph(node.op):
                continue
            op = cast(OpFromGraph, node.op)
            if not self._is_wanted(op, applied.get(graph_key(op, context.sameness))):
                continue
            title = context.title(node)
            why = because(Why.IN_PLACE, what="the graph around it") if works_in_place else None
            outputs = inlined(node)
            why = why or why_it_stays(op) or _why_it_differs(node, outputs, context)
            if why is not None:
                context.missed(None, Code.GRAPH_NOT_INLINED, why, op=title)
                continue
            context.passed(None, Code.GRAPH_INLINED, op=title)
            yield Rewrite(dict(zip(node.outputs, outputs, strict=True)))

    def _is_wanted(self, op: OpFromGraph, applied: AppliedGraph | None) -> bool:
        # One that was made since the run began is counted in the next one.
        is_used_once = applied is not None and len(applied.nodes) == 1
        return op.is_inline or is_used_once or sum(1 for _ in walk(op.fgraph)) <= self.size


def inlined(node: Apply) -> list[Variable]:
    """Return the outputs of a node that applies an OpFromGraph, computed without that.

    They have its names, unless they have one already or belong to the graph around it.
    """
    outputs: list[Variable] = node.op.fgraph.bind(
        dict(zip(node.op.fgraph.inputs, node.inputs, strict=True))
    )
    for old, new in zip(node.outputs, outputs, strict=True):
        if new.owner is not None and new not in node.inputs:
            new.name = new.name or old.name
    return outputs


def _why_it_differs(node: Apply, outputs: list[Variable], context: PassContext) -> Reason | None:
    """Return why the graph of a node is not the same outside: a body keeps its outputs' types."""
    pairs = [
        (given.type, read.type)
        for given, read in zip(node.inputs, node.op.fgraph.inputs, strict=True)
        if getattr(given.type, "broadcastable", None) != getattr(read.type, "broadcastable", None)
    ]
    replaced = list(zip(node.outputs, outputs, strict=True))
    if context.path and any(lends_memory(context.fgraph, old, new) for old, new in replaced):
        return because(Why.RETURNS_INPUT)
    if context.path:
        pairs += [(new.type, old.type) for old, new in replaced if new.type != old.type]
    return next((because(Why.TYPE_DIFFERS, type=str(a), read=str(b)) for a, b in pairs), None)
