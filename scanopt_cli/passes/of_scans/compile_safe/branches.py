"""Copies that keep branches from being computed that are not taken: case 9 of `compile-safe`."""

from __future__ import annotations

from collections.abc import Iterator

from pytensor.compile.ops import DeepCopyOp, deep_copy_op
from pytensor.graph.basic import Apply, Variable

from scanopt_cli.ir.inner_graphs import core_op, walk
from scanopt_cli.ir.levels import IfElse, always_computed
from scanopt_cli.loop.operator_base import LoopOperator
from scanopt_cli.passes.push_out.hoisting import is_total
from scanopt_cli.pipeline.contract import PassContext, Rewrite
from scanopt_cli.remarks import Code

type _Reads = dict[Variable, list[tuple[Apply, int]]]


def copy_of_branches(context: PassContext) -> Iterator[Rewrite]:
    """Copy what branches that may raise read, and what readers of their results read.

    Then no memory that a node overwrites is read in a branch, but by a copy. Where there are loops
    of scanopt's own, its rewrites come with them, which need no copies (`keep_branches_lazy`).
    """
    nodes = context.fgraph.toposort()
    conditionals = [node for node in nodes if isinstance(node.op, IfElse)]
    if not conditionals or any(
        isinstance(core_op(node.op), LoopOperator) for node in walk(context.fgraph)
    ):
        return
    always = always_computed(context.fgraph.outputs)
    for node in conditionals:
        inside = always_computed(node.inputs[1:]) - always
        if all(map(is_total, inside)):
            continue
        reads: _Reads = {}
        for reader in nodes:
            for position, variable in enumerate(reader.inputs):
                is_result = variable in node.outputs
                is_read = reader in inside and variable.owner in always
                if (is_result or is_read) and not isinstance(reader.op, DeepCopyOp):
                    reads.setdefault(variable, []).append((reader, position))
        if reads:
            context.passed(None, Code.BRANCHES_COPIED, values=len(reads))
        for variable, readers in reads.items():
            copied = deep_copy_op.make_node(variable).outputs[0]
            yield Rewrite(inputs=[(reader, position, copied) for reader, position in readers])
