"""Merge equal nodes and constants of a graph (common subexpression elimination)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op

from scanopt_cli.ir.inner_graphs import body_of, core_op, op_name
from scanopt_cli.ir.scan_view import is_loop
from scanopt_cli.pipeline.contract import Pass, PassContext, Rewrite
from scanopt_cli.remarks import Code


@dataclass(frozen=True)
class MergeEqual(Pass):
    """Merge equal subgraphs, so that equal variables become one variable.

    Legal cases:

    1. Nodes that apply equal Ops to equal inputs become one node; the operands of ``+`` and ``*``
       may be in a different order, and so may the states and sequences of a Scan.
    2. Constants of equal type and value become one Constant; 0.0 and -0.0 stay distinct.
    3. Equal OpFromGraphs (and Blockwise of them) become one Op, whatever their inputs and names, so
       that a backend compiles them once.

    The pass also works in every body, including bodies without a loop.

    Preconditions: equality is exact, of whole contents and not of hashes, and includes how an
    OpFromGraph is differentiated and whether it is inlined. Ops that cannot be compared by value
    (closures, user classes of a local scope) are compared by identity. The types must be equal,
    static lengths included. Nothing in the graph may work in place: a value that is overwritten
    cannot be shared.

    Out of scope: equal states within one Scan (``merge-states``), and Scans that differ in what
    they compute (``merge-scans``).
    """

    name: ClassVar[str] = "merge-equal"
    everywhere: ClassVar[bool] = True

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        """Merge in one walk over ``context.fgraph``, from the inputs to the outputs."""
        if context.is_in_place():
            return
        merged = dict(duplicates(context))
        nodes = {variable.owner for variable in merged if variable.owner is not None}
        constants = sum(variable.owner is None for variable in merged)
        loops = sum(map(is_loop, filter(None, nodes)))
        if loops:
            context.passed(None, Code.LOOPS_MERGED, count=loops)
        if len(nodes) > loops:
            context.passed(None, Code.NODES_MERGED, count=len(nodes) - loops)
        if constants:
            context.passed(None, Code.CONSTANTS_MERGED, count=constants)
        if merged:
            _keep_names(merged)
            # Readers before what they read: PyTensor looks for a reader from the first on, and
            # nodes that go with their readers need not be replaced.
            pairs = dict(reversed(merged.items()))
            yield Rewrite(pairs, count=len(nodes) + constants)
        for node, op in _equal_ops(context):
            made: Apply = op.make_node(*node.inputs)
            if [v.type for v in made.outputs] == [v.type for v in node.outputs]:
                context.passed(None, Code.OPS_SHARED, op=op_name(op))
                yield Rewrite(dict(zip(node.outputs, made.outputs, strict=True)))


def duplicates(context: PassContext) -> Iterator[tuple[Variable, Variable]]:
    """Yield each duplicate variable with the first variable of the same value and type."""
    first: dict[object, Variable] = {}
    for constant in _constants(context):
        twin = first.setdefault((context.same(constant), constant.type), constant)
        if twin is not constant:
            yield constant, twin
    for node in context.fgraph.toposort():
        keys = [(context.same(output), output.type) for output in node.outputs]
        if all(key in first for key in keys):
            yield from zip(node.outputs, (first[key] for key in keys), strict=True)
        else:
            for key, output in zip(keys, node.outputs, strict=True):
                first.setdefault(key, output)


def _constants(context: PassContext) -> dict[Constant, None]:
    """Return the Constants, those with a name first, so that it stays.

    None in a body: freezing a body decides which equal one stays.
    """
    if context.path:
        return {}
    read = (variable for node in context.fgraph.toposort() for variable in node.inputs)
    every = (*read, *context.fgraph.outputs)
    found = dict.fromkeys(variable for variable in every if isinstance(variable, Constant))
    return dict.fromkeys(sorted(found, key=lambda constant: constant.name is None))


def _equal_ops(context: PassContext) -> Iterator[tuple[Apply, Op]]:
    """Yield each node whose OpFromGraph equals an earlier one, with the first of these."""
    first: dict[object, Op] = {}
    for node in context.fgraph.toposort():
        if not isinstance(core_op(node.op), OpFromGraph):
            continue
        body = body_of(node.op)
        assert body is not None
        types = [variable.type for variable in (*body.inputs, *body.outputs)]
        op = first.setdefault((context.digests.sameness.of_op(node.op), *types), node.op)
        # Each rewrite of a body freezes it anew, with Ops that are equal but not identical.
        if op is not node.op and not (context.path and op == node.op):
            yield node, op


def _keep_names(merged: dict[Variable, Variable]) -> None:
    """Give each kept variable without a name that of a duplicate.

    Constants keep theirs: other graphs may have them, too.
    """
    for variable, twin in merged.items():
        if twin.owner is not None:
            twin.name = twin.name or variable.name
