"""What a node of a body computes in all steps at once, given its inputs at all steps.

An array of all steps has an axis of steps before those that a step sees. A product by an invariant
matrix is one product of matrices, and a solution by one has a column for each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.linalg.decomposition.lu import LUFactor
from pytensor.tensor.math import Dot

from scanopt_cli.analysis.matrix_ops import MATRIX_OPS, SOLVERS
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.passes.push_out.rows_of_all_steps import if_there_is_a_step

_DEAR = (*MATRIX_OPS, Dot, LUFactor)
MATRIX = 2
"""How many axes a matrix has."""


def is_dear(node: Apply) -> bool:
    """Whether a node multiplies or factors matrices, or solves by one, without a batch."""
    return isinstance(core_op(node.op), _DEAR) and all(v.type.ndim <= MATRIX for v in node.inputs)


def is_solution(node: Apply, is_row: Sequence[bool]) -> bool:
    """Whether a node solves by a matrix that is the same in all steps."""
    return isinstance(core_op(node.op), SOLVERS) and list(is_row) == [False, True]


def is_product(node: Apply, is_row: Sequence[bool]) -> bool:
    """Whether a node multiplies by what is the same in all steps."""
    return isinstance(core_op(node.op), Dot) and not all(is_row)


def is_smaller_than_matrix(node: Apply) -> bool:
    """Whether a node computes a number or a vector of a matrix: a determinant, or a solution."""
    is_small = all(v.type.ndim < MATRIX for v in node.outputs)
    return is_small and isinstance(core_op(node.op), MATRIX_OPS)


def at_all_steps(
    node: Apply, inputs: Sequence[Any], is_row: Sequence[bool], n_steps: Any
) -> list[Any]:
    """Return the outputs of a node at all steps, of inputs at all steps where they are rows.

    With ``n_steps``, the loop may run no step. Then what does more than multiply is computed only
    if it runs one: it may raise an error, and PyTensor cannot run a Blockwise of no entries.
    """
    op = core_op(node.op)
    if isinstance(op, DimShuffle):
        order = [axis if axis == "x" else axis + 1 for axis in op.new_order]
        return [inputs[0].dimshuffle(0, *order)]
    if isinstance(op, Elemwise):
        return [node.op(*inputs)]
    if isinstance(op, Dot):
        left, right = inputs
        return [_product(node, left, right, is_row)]
    if is_solution(node, is_row):
        made = [_solutions(op, *inputs)]
    else:
        made = vectorize_graph(node.outputs, dict(zip(node.inputs, inputs, strict=True)))
    return made if n_steps is None else if_there_is_a_step(made, n_steps)


def _product(node: Apply, left: Any, right: Any, is_row: Sequence[bool]) -> Any:
    """Return the products at all steps."""
    if all(v.type.ndim == MATRIX for v in node.inputs):
        if list(is_row) == [True, False]:
            return _products(left, right)
        if list(is_row) == [False, True]:
            return _products(right.mT, left.T).mT
    given = dict(zip(node.inputs, (left, right), strict=True))
    (found,) = vectorize_graph(node.outputs, given)
    return found


def _products(rows: Any, matrix: Any) -> Any:
    """Return the products of all rows, which are matrices, and a matrix."""
    steps, length, _ = rows.shape
    products = pt.dot(rows.reshape((steps * length, rows.shape[2])), matrix)
    return products.reshape((steps, length, matrix.shape[1]))


def _solutions(op: Any, matrix: Any, rows: Any) -> Any:
    """Return the solutions of equations whose right sides are rows, by one matrix."""
    columns = type(op)(**{**op._props_dict(), "b_ndim": MATRIX})
    if op.b_ndim == 1:
        return columns(matrix, rows.T).T
    steps, length, width = rows.shape
    side = rows.dimshuffle(1, 0, 2).reshape((length, steps * width))
    return columns(matrix, side).reshape((length, steps, width)).dimshuffle(1, 0, 2)
