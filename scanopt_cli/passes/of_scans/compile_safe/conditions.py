"""Distinct stop conditions for while loops: case 4 of `compile-safe`."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import EQ, OR
from pytensor.tensor.basic import as_tensor
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.equivalence.digests import Digests
from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.ir.scan_view import scan_op
from scanopt_cli.pipeline.contract import PassContext, Rewrite
from scanopt_cli.remarks import Code


def mark_conditions(context: PassContext) -> Iterator[Rewrite]:
    """Give each of several while loops its own stop condition.

    A number that only loops with equal outputs share marks the condition. Conditions that differ
    now may become equal while PyTensor compiles, and inlined graphs add their own.
    """
    loops = sum(map(_is_while, walk(context.fgraph)))
    if loops < 2 and not context.is_inlined:
        return
    digests = Digests(context.fgraph.inputs, Sameness())
    for view in context.scans():
        if view.batch_ndim or view.condition is None or _is_marked(view.condition):
            continue
        mark = _number(digests, view.node)
        context.passed(view, Code.CONDITION_MARKED)
        view.unfreeze()
        view.condition = _marked(view.condition, mark)
        yield Rewrite(view.rebuild())


def _is_while(node: Apply) -> bool:
    op = scan_op(node)
    return op is not None and bool(op.info.as_while)


def _number(digests: Digests, node: Apply) -> int:
    """Return a number for a loop by the digests of its outputs, at least 2 and so no boolean."""
    keys = b"".join(map(digests.of, node.outputs))
    return 2 + (int.from_bytes(blake2b(keys, digest_size=4).digest()) >> 1)


def _marked(condition: Any, mark: int) -> Variable:
    """Return ``condition or condition == mark``, where the latter is never true.

    It depends on the condition, so that it is no invariant to move out.
    """
    is_true = condition if condition.type.dtype == "bool" else pt.neq(condition, 0)
    never = pt.eq(pt.cast(is_true, "int64"), pt.constant(mark, dtype="int64"))
    return as_tensor(pt.or_(is_true, never))


def _is_marked(condition: Variable) -> bool:
    """Whether `_marked` made the condition."""
    node = condition.owner
    if node is None or not isinstance(node.op, Elemwise) or not isinstance(node.op.scalar_op, OR):
        return False
    mark = node.inputs[-1].owner
    return (
        mark is not None
        and isinstance(mark.op, Elemwise)
        and isinstance(mark.op.scalar_op, EQ)
        and isinstance(mark.inputs[1], Constant)
        and node.inputs[0] in ancestors([mark.inputs[0]])
    )
