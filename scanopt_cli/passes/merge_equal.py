"""Compute each value once, in the whole graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op

from scanopt_cli.ir.inner_graphs import body_of, core_op, op_name
from scanopt_cli.pipeline.contract import Pass, PassContext


@dataclass(frozen=True)
class MergeEqual(Pass):
    """Share equal subgraphs, so that afterwards equal variables are one variable.

    Legal cases:

    1. Nodes that apply equal Ops to equal inputs become one node; the operands of ``+`` and ``*``
       may stand in another order, and so may the states and sequences of a Scan.
    2. Constants of equal type and value become one Constant; 0.0 and -0.0 are two.
    3. OpFromGraphs (and Blockwise of them) that are equal become one Op, whatever they are applied
       to and called, so that a backend compiles them once.

    It works in every body too, also in those without a loop.

    Preconditions: equality is exact, of whole contents and not of hashes, and includes how an
    OpFromGraph is differentiated and whether it is inlined. Ops that cannot be told by value
    (closures, user classes of a local scope) are the same as themselves only. The types must be
    equal, static lengths included. Nothing in the graph may work in place: a value that is
    overwritten cannot be shared.

    Out of scope: equal states within one Scan (``merge-states``), and Scans that differ in what
    they compute (``merge-scans``).
    """

    name: ClassVar[str] = "merge-equal"
    everywhere: ClassVar[bool] = True

    def run(self, context: PassContext) -> bool:
        """Merge in one walk over ``context.fgraph``, from the inputs to the outputs."""
        if context.is_in_place("merged"):
            return False
        merged = dict(_repeats(context))
        if merged:
            _name_after(merged)
            context.fgraph.replace_all(list(merged.items()), reason=self.name)
            context.changed(None, f"merged {_counted(merged)} with equal ones")
        shared = _share_ops(context)
        for name, count in shared.items():
            context.changed(None, f"gave {count} equal uses of OpFromGraph `{name}` one Op")
        return bool(merged or shared)


def _repeats(context: PassContext) -> Iterator[tuple[Variable, Variable]]:
    """Yield each variable that repeats an earlier one, with the first of its value and type."""
    first: dict[object, Variable] = {}
    for constant in _constants(context):
        twin = first.setdefault((context.same(constant), constant.type), constant)
        if twin is not constant and context.budget.spend():
            yield constant, twin
    for node in context.fgraph.toposort():
        keys = [(context.same(output), output.type) for output in node.outputs]
        if all(key in first for key in keys):
            if context.budget.spend():
                yield from zip(node.outputs, (first[key] for key in keys), strict=True)
        else:
            for key, output in zip(keys, node.outputs, strict=True):
                first.setdefault(key, output)


def _constants(context: PassContext) -> dict[Constant, None]:
    """Return the distinct Constants; none of a body, where freezing chooses which one stays."""
    if context.path:
        return {}
    read = (variable for node in context.fgraph.toposort() for variable in node.inputs)
    every = (*read, *context.fgraph.outputs)
    return dict.fromkeys(variable for variable in every if isinstance(variable, Constant))


def _share_ops(context: PassContext) -> Counter[str]:
    """Apply one Op wherever equal OpFromGraphs are applied; return how often, by name."""
    first: dict[object, Op] = {}
    shared: Counter[str] = Counter()
    for node in context.fgraph.toposort():
        if not isinstance(core_op(node.op), OpFromGraph):
            continue
        body = body_of(node.op)
        assert body is not None
        types = [variable.type for variable in (*body.inputs, *body.outputs)]
        op = first.setdefault((context.digests.sameness.of_op(node.op), *types), node.op)
        # A body is frozen anew each time it is rewritten, with Ops that are equal and not the same.
        if op is node.op or (context.path and op == node.op):
            continue
        new: Apply = op.make_node(*node.inputs)
        if [v.type for v in new.outputs] == [
            v.type for v in node.outputs
        ] and context.budget.spend():
            context.fgraph.replace_all(
                list(zip(node.outputs, new.outputs, strict=True)), reason=MergeEqual.name
            )
            shared[op_name(op)] += 1
    return shared


def _name_after(merged: dict[Variable, Variable]) -> None:
    """Let no name be lost that somebody gave."""
    for variable, twin in merged.items():
        twin.name = twin.name or variable.name


def _counted(merged: dict[Variable, Variable]) -> str:
    nodes = {variable.owner for variable in merged if variable.owner is not None}
    constants = sum(variable.owner is None for variable in merged)
    parts = [
        f"{count} {what}{'s' if count > 1 else ''}"
        for count, what in ((len(nodes), "node"), (constants, "constant"))
        if count
    ]
    return " and ".join(parts)
