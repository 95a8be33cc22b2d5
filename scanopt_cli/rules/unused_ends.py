"""O001: what an OpFromGraph takes and returns for nobody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pytensor.compile.builders import SymbolicOp
from pytensor.graph.basic import Apply
from pytensor.graph.fg import AbstractFunctionGraph

from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.ir.inner_graphs import body_of, core_op, inner_graphs, is_own_graph
from scanopt_cli.ir.naming import titles
from scanopt_cli.passes.clean_ofg.ends import all_ends
from scanopt_cli.rules.check_context import CheckContext
from scanopt_cli.rules.rule_contract import Finding, Fix, Rule, Severity


class UnusedEnds(Rule):
    """An OpFromGraph has an input that its graph does not read, or an output that nobody reads.

    What the input is computed of is computed for nothing, and so is the output. An output is read
    if it is so wherever the OpFromGraph is applied. Of those that PyTensor inlines, or makes of its
    own functions, nothing is said::

        OpFromGraph([x, y], [pt.exp(x)])  # nothing reads y

        OpFromGraph([x], [pt.exp(x)])

    The fix makes the OpFromGraph without it. There is none where your program gives the gradient of
    the OpFromGraph, or derives a class of its own: those take all inputs and outputs.
    """

    code: ClassVar[str] = "O001"
    name: ClassVar[str] = "unused-ends"
    severity: ClassVar[Severity] = Severity.NOTE
    fix: ClassVar[Fix | None] = Fix("clean-ofg")

    def find(self, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each OpFromGraph with such inputs or outputs."""
        sameness = Sameness(gradients=True, exact=True)
        known = all_ends(context.fgraph, sameness)
        for title, node, is_open in _nodes(context.fgraph, (), set()):
            ends = known.of(node.op, sameness)
            if ends is None:
                continue
            body = ends.op.fgraph
            unread = [i for i, v in enumerate(body.inputs) if not body.clients.get(v)]
            removed = set(ends.unread_inputs).difference(ends.staying_inputs)
            for places, what, mended in (
                (unread, "input", removed),
                (ends.unread_outputs, "output", set(ends.unread_outputs)),
            ):
                if places:
                    listed = ", ".join(map(str, places))
                    text = f"nothing reads {what} {listed} of the OpFromGraph {title}"
                    is_mended = is_open and ends.why is None and not mended.isdisjoint(places)
                    yield self.at(context, None, text, fix=self.fix if is_mended else None)


def _nodes(
    graph: AbstractFunctionGraph, path: tuple[str, ...], seen: set[int], *, is_open: bool = True
) -> Iterator[tuple[str, Apply, bool]]:
    """Yield each OpFromGraph with its title, and whether passes go to the graph that it is in."""
    if id(graph) in seen:
        return
    seen.add(id(graph))
    for node, title in titles(graph.outputs).items():
        if is_own_graph(core_op(node.op)):
            yield "/".join((*path, title)), node, is_open
        goes_on = body_of(node.op) is not None and not isinstance(core_op(node.op), SymbolicOp)
        for body in inner_graphs(node.op):
            yield from _nodes(body, (*path, title), seen, is_open=is_open and goes_on)
