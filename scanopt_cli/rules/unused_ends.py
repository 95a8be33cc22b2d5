"""O001: what an OpFromGraph takes and returns for nobody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.graph.op import Op

from scanopt_cli.ir.inner_graphs import core_op, inner_graphs
from scanopt_cli.ir.naming import titles
from scanopt_cli.rules.check_context import CheckContext
from scanopt_cli.rules.rule_contract import Finding, Rule, Severity


class UnusedEnds(Rule):
    """An OpFromGraph has an input that its graph does not read, or an output that nobody reads.

    What the input is computed of is computed for nothing, and so is the output. Of those that
    PyTensor inlines, or makes of its own functions, nothing is said::

        OpFromGraph([x, y], [pt.exp(x)])  # nothing reads y

    Make the OpFromGraph without it.
    """

    code: ClassVar[str] = "O001"
    name: ClassVar[str] = "unused-ends"
    severity: ClassVar[Severity] = Severity.NOTE

    def find(self, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each OpFromGraph with such inputs or outputs."""
        for title, node, graph in _nodes(context.fgraph, (), set()):
            op = core_op(node.op)
            assert isinstance(op, OpFromGraph)
            unread = [i for i, v in enumerate(op.fgraph.inputs) if not op.fgraph.clients.get(v)]
            unused = [i for i, v in enumerate(node.outputs) if not graph.clients.get(v)]
            for places, what in ((unread, "input"), (unused, "output")):
                if places:
                    listed = ", ".join(map(str, places))
                    text = f"nothing reads {what} {listed} of the OpFromGraph {title}"
                    yield self.at(context, None, text)


def _nodes(
    graph: AbstractFunctionGraph, path: tuple[str, ...], seen: set[int]
) -> Iterator[tuple[str, Apply, AbstractFunctionGraph]]:
    if id(graph) in seen:
        return
    seen.add(id(graph))
    for node, title in titles(graph.outputs).items():
        if _is_own(core_op(node.op)):
            yield "/".join((*path, title)), node, graph
        for body in inner_graphs(node.op):
            yield from _nodes(body, (*path, title), seen)


def _is_own(op: Op) -> bool:
    """Whether an Op is an OpFromGraph of a program's own, which stays when it is compiled."""
    if not isinstance(op, OpFromGraph) or op.is_inline:
        return False
    return type(op) is OpFromGraph or not type(op).__module__.startswith("pytensor.")
