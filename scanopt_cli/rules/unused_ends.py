"""O001: what an OpFromGraph takes and returns for nobody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pytensor.compile.builders import OpFromGraph, SymbolicOp
from pytensor.graph.basic import Apply
from pytensor.graph.fg import AbstractFunctionGraph

from scanopt_cli.ir.inner_graphs import body_of, core_op, inner_graphs
from scanopt_cli.ir.naming import titles
from scanopt_cli.passes.remove_unused_ends import is_own, unused_ends
from scanopt_cli.rules.check_context import CheckContext
from scanopt_cli.rules.rule_contract import Finding, Fix, Rule, Severity


class UnusedEnds(Rule):
    """An OpFromGraph has an input that its graph does not read, or an output that nobody reads.

    What the input is computed of is computed for nothing, and so is the output. Of those that
    PyTensor inlines, or makes of its own functions, nothing is said::

        OpFromGraph([x, y], [pt.exp(x)])  # nothing reads y

        OpFromGraph([x], [pt.exp(x)])

    The fix makes the OpFromGraph without it. There is none where your program gives the gradient of
    the OpFromGraph, or derives a class of its own: those take all inputs and outputs.
    """

    code: ClassVar[str] = "O001"
    name: ClassVar[str] = "unused-ends"
    severity: ClassVar[Severity] = Severity.NOTE
    fix: ClassVar[Fix | None] = Fix("remove-unused-ends")

    def find(self, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each OpFromGraph with such inputs or outputs."""
        for title, node, graph, is_open in _nodes(context.fgraph, (), set()):
            op = core_op(node.op)
            assert isinstance(op, OpFromGraph)
            unread = [i for i, v in enumerate(op.fgraph.inputs) if not op.fgraph.clients.get(v)]
            unused = [i for i, v in enumerate(node.outputs) if not graph.clients.get(v)]
            ends = unused_ends(node, {v for v in node.outputs if graph.clients.get(v)})
            for places, what, removed in (
                (unread, "input", ends.inputs),
                (unused, "output", ends.outputs),
            ):
                if places:
                    listed = ", ".join(map(str, places))
                    text = f"nothing reads {what} {listed} of the OpFromGraph {title}"
                    is_mended = is_open and not set(places).isdisjoint(removed)
                    yield self.at(context, None, text, fix=self.fix if is_mended else None)


def _nodes(
    graph: AbstractFunctionGraph, path: tuple[str, ...], seen: set[int], *, is_open: bool = True
) -> Iterator[tuple[str, Apply, AbstractFunctionGraph, bool]]:
    """Yield each OpFromGraph with its title and the graph it is in, and whether passes go there."""
    if id(graph) in seen:
        return
    seen.add(id(graph))
    for node, title in titles(graph.outputs).items():
        if is_own(core_op(node.op)):
            yield "/".join((*path, title)), node, graph, is_open
        goes_on = body_of(node.op) is not None and not isinstance(core_op(node.op), SymbolicOp)
        for body in inner_graphs(node.op):
            yield from _nodes(body, (*path, title), seen, is_open=is_open and goes_on)
