"""Groups the terms of sums and products in a body that can leave the loop together."""

from __future__ import annotations

from collections.abc import Iterable

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import io_toposort
from pytensor.scalar.basic import Add, Mul
from pytensor.tensor.elemwise import DimShuffle, Elemwise

from scanopt_cli.analysis.step_rows import invariant_inputs
from scanopt_cli.ir.dtypes import has_one_float_dtype
from scanopt_cli.ir.slots import SlotView


def with_grouped_terms(view: SlotView, rows: Iterable[Variable]) -> dict[Variable, Variable] | None:
    """Group the operands that are invariant or of ``rows``, in each sum and product of a body.

    Returns replacements for all outputs, ``None`` if there is nothing to group. The view is
    unfrozen, and stays as it is then.
    """
    outputs = view.inner_outputs()
    free = {*invariant_inputs(view), *rows}
    new: dict[Variable, Variable] = {}
    is_grouped = False
    for node in io_toposort([], outputs):
        movable = [v for v in node.inputs if v in free or isinstance(v, Constant)]
        if isinstance(node.op, Elemwise | DimShuffle) and len(movable) == len(node.inputs):
            free.update(node.outputs)
        elif _is_float_sum(node) and len(movable) > 1 and not free.isdisjoint(movable):
            rest = [new.get(v, v) for v in node.inputs if v not in movable]
            total = node.op(node.op(*movable), *rest)
            if total.type == node.outputs[0].type:
                is_grouped = True
                new[node.outputs[0]] = total
                continue
        if any(variable in new for variable in node.inputs):
            again = node.clone_with_new_inputs([new.get(v, v) for v in node.inputs])
            new.update(zip(node.outputs, again.outputs, strict=True))
    if not is_grouped:
        return None
    view.set_inner_outputs([new.get(variable, variable) for variable in outputs])
    return view.rebuild()


def _is_float_sum(node: Apply) -> bool:
    """Whether a node adds or multiplies more than two float arrays of one dtype."""
    return (
        isinstance(node.op, Elemwise)
        and isinstance(node.op.scalar_op, Add | Mul)
        and len(node.inputs) > 2
        and has_one_float_dtype(node)
    )
