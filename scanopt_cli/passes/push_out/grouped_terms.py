"""Groups the terms of sums and products in a body that can leave the loop together.

A number that a step multiplies a matrix by is kept apart from a product of that matrix.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import io_toposort
from pytensor.scalar.basic import Add, Mul
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot

from scanopt_cli.analysis.step_rows import invariant_inputs
from scanopt_cli.ir.dtypes import has_one_float_dtype
from scanopt_cli.ir.slots import SlotView
from scanopt_cli.passes.push_out.hoisting import invariant_nodes


def with_grouped_terms(view: SlotView, rows: Iterable[Variable]) -> dict[Variable, Variable] | None:
    """Group the operands that are invariant or of ``rows``, in each sum and product of a body.

    Of a product of two invariant matrices, of which a step multiplies one by numbers, these become
    factors of the product. Returns replacements for all outputs, ``None`` if there is nothing to
    group. The view is unfrozen, and stays as it is then.
    """
    outputs = view.inner_outputs()
    known = set(invariant_inputs(view))
    order = list(io_toposort([], outputs))
    invariant = known.union(*(node.outputs for node in invariant_nodes(order, known)))
    free = {*known, *rows}
    new: dict[Variable, Variable] = {}
    is_grouped = False
    for node in order:
        movable = [v for v in node.inputs if v in free or isinstance(v, Constant)]
        total: Any = None
        if isinstance(node.op, Elemwise | DimShuffle) and len(movable) == len(node.inputs):
            free.update(node.outputs)
        elif _is_float_sum(node) and len(movable) > 1 and not free.isdisjoint(movable):
            rest = [new.get(v, v) for v in node.inputs if v not in movable]
            total = node.op(node.op(*movable), *rest)
        elif (found := _scaled_product(node, invariant)) is not None:
            multiply, numbers, product = found
            total = multiply(*(new.get(v, v) for v in numbers), product)
        if total is not None and total.type == node.outputs[0].type:
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


def _scaled_product(
    node: Apply, invariant: set[Variable]
) -> tuple[Elemwise, list[Variable], Variable] | None:
    """Return by which numbers a product of two invariant matrices is multiplied, and the product.

    With them comes the Op that multiplies. ``None`` if the node is no such product.
    """
    if not isinstance(node.op, Dot) or not has_one_float_dtype(node):
        return None
    numbers: list[Variable] = []
    factors: list[Variable] = []
    multiply: Elemwise | None = None
    for factor in node.inputs:
        if factor in invariant or isinstance(factor, Constant):
            factors.append(factor)
            continue
        scale = _scale(factor, invariant)
        if scale is None:
            return None
        multiply, found, matrix = scale
        numbers += found
        factors.append(matrix)
    if multiply is None:
        return None
    (product,) = node.op.make_node(*factors).outputs
    return multiply, numbers, product


def _scale(
    matrix: Variable, invariant: set[Variable]
) -> tuple[Elemwise, list[Variable], Variable] | None:
    """Return by which numbers a step multiplies an invariant matrix, and the matrix."""
    node = matrix.owner
    if node is None or not isinstance(node.op, Elemwise) or not has_one_float_dtype(node):
        return None
    if not isinstance(node.op.scalar_op, Mul):
        return None
    inputs: list[Any] = list(node.inputs)
    numbers = [v for v in inputs if v not in invariant and not isinstance(v, Constant)]
    rest = [v for v in inputs if v not in numbers]
    if not rest or not all(all(v.type.broadcastable) for v in numbers):
        return None
    found: Any = node.op(*rest) if len(rest) > 1 else rest[0]
    return (node.op, numbers, found) if found.type == matrix.type else None


def _is_float_sum(node: Apply) -> bool:
    """Whether a node adds or multiplies more than two float arrays of one dtype."""
    return (
        isinstance(node.op, Elemwise)
        and isinstance(node.op.scalar_op, Add | Mul)
        and len(node.inputs) > 2
        and has_one_float_dtype(node)
    )
