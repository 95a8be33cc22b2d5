"""Remove the inputs and outputs of OpFromGraphs that nobody reads, or that they have twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pytensor.graph.basic import Apply, Variable

from scanopt_cli.ir.inner_graphs import core_op, is_own_graph
from scanopt_cli.pipeline.contract import Pass, PassContext, Rewrite
from scanopt_cli.remarks import Code

if TYPE_CHECKING:
    from scanopt_cli.passes.clean_ofg.ends import Ends


@dataclass(frozen=True)
class CleanOfg(Pass):
    """Remove the inputs and outputs of OpFromGraphs that nobody reads, or that they have twice.

    Legal cases:

    1. An output that nothing reads goes, and what computes it alone.
    2. An input goes that no remaining output is computed of, and outside what computed it alone.
    3. Of equal outputs the first stays, and who read another one reads it.
    4. Who read an output that is an input as it is reads what is given to that input.
    5. Of inputs that are given the same variable the first stays.

    What an OpFromGraph needs is found out for all nodes that apply it, or an equal one, in the
    graph and in all bodies: an output goes only if none of them is read there, inputs are one only
    if they are so everywhere, and all nodes get one new Op. What only unread inputs of others
    read counts as unread. All of it holds for a Blockwise of an OpFromGraph. The pass also works in
    every body.

    Preconditions: the OpFromGraph is of that class itself, without a gradient or a connection
    pattern of its own, and neither it nor its graph works in place. One input stays. The next
    generator stays where a draw does. An input of a Blockwise stays if it alone carries a batch
    dimension or tells its static length. For cases 3 and 4, types are the same in all places,
    static lengths included, no graph that applies the OpFromGraph works in place, and no generators
    are merged; nor does case 4 make a body return its own input, or a view of it. Sameness is
    exact, as in ``merge-equal``.

    What was removed no longer raises errors: a check in it, or a Blockwise whose unread input does
    not fit the others.

    Out of scope: OpFromGraphs that PyTensor inlines, and those that it makes of its own functions;
    outputs that are constants.
    """

    name: ClassVar[str] = "clean-ofg"
    everywhere: ClassVar[bool] = True
    of_graphs: ClassVar[bool] = True
    repeats: ClassVar[bool] = True

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        """Yield a rewrite for each OpFromGraph, those that read others before these."""
        # It is not asked where there is no OpFromGraph.
        from scanopt_cli.passes.clean_ofg.ends import all_ends
        from scanopt_cli.passes.clean_ofg.fewer_ends import replacements

        known = context.whole.found(all_ends, context.sameness)
        nodes = [node for node in context.fgraph.toposort() if is_own_graph(core_op(node.op))]
        for node in reversed(nodes):
            if node not in context.fgraph.apply_nodes:
                continue
            ends = known.of(node.op, context.sameness)
            if ends is None:
                continue
            _remark_on_what_stays(context, node, ends)
            if not (ends.removed or ends.merged):
                continue
            found = replacements(node, ends)
            if any(context.clients(v) for v in node.outputs if v not in found):
                continue  # a rewrite of what reads it was not applied
            _remark(context, node, ends)
            _keep_title(context, node, found)
            yield Rewrite(found)


def _remark(context: PassContext, node: Apply, ends: Ends) -> None:
    title = context.title(node)
    if ends.removed:
        context.passed(None, Code.ENDS_REMOVED, op=title, ends=ends.removed)
    if ends.merged:
        context.passed(None, Code.ENDS_MERGED, op=title, ends=ends.merged)


def _remark_on_what_stays(context: PassContext, node: Apply, ends: Ends) -> None:
    if not (ends.kept or ends.apart):
        return
    title = context.title(node)
    if ends.kept:
        from scanopt_cli.passes.clean_ofg.ends import why_inputs_stay

        why = ends.why or why_inputs_stay(node)
        context.missed(None, Code.ENDS_KEPT, why, op=title, ends=ends.kept)
    if ends.apart:
        context.missed(None, Code.ENDS_APART, ends.why_apart, op=title, ends=ends.apart)


def _keep_title(context: PassContext, node: Apply, found: dict[Variable, Variable]) -> None:
    for replacement in found.values():
        if replacement.owner is not None and replacement not in node.inputs:
            context.keep_title(node, replacement.owner)
