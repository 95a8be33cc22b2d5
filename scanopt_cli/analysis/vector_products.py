"""Products of a vector and a matrix in a body, which PyTensor computes as products of matrices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot

from scanopt_cli.ir.dtypes import has_one_float_dtype
from scanopt_cli.ir.inner_graphs import core_op


@dataclass(frozen=True, slots=True)
class VectorProduct:
    """A vector times a matrix, both floats of one dtype.

    ``node`` computes a product of matrices: ``matrix`` and, as a row or column, ``vector``.
    """

    node: Apply
    vector: Variable
    matrix: Any

    @property
    def is_column(self) -> bool:
        """Whether the vector is a column, right of the matrix; else it is a row, left of it."""
        return self.node.inputs[0] is self.matrix

    @property
    def factor(self) -> Variable:
        """What the matrix is, transposed or not."""
        matrix = self.matrix
        while isinstance(matrix.owner_op, DimShuffle) and matrix.owner.op.new_order == (1, 0):
            (matrix,) = matrix.owner.inputs
        factor: Variable = matrix
        return factor

    def replaced_by(self, product: Any) -> Variable:
        """Return what replaces the output of the node, given the product as a vector."""
        (old,) = self.node.outputs
        new = product.dimshuffle((0, "x") if self.is_column else ("x", 0))
        made: Variable = old.type.filter_variable(new, allow_convert=True)
        return made


def vector_products(outputs: Sequence[Variable]) -> Iterator[VectorProduct]:
    """Yield the products of a vector and a matrix of which no axis has length 1 by its type."""
    for node in io_toposort([], outputs):
        op: Any = core_op(node.op)
        if (
            not isinstance(op, Dot)
            or node.outputs[0].type.ndim != 2
            or not has_one_float_dtype(node)
        ):
            continue
        left, right = node.inputs
        for vector, matrix, order in ((left, right, ("x", 0)), (right, left, (0, "x"))):
            is_vector = isinstance(vector.owner_op, DimShuffle)
            if is_vector and vector.owner.op.new_order == order and 1 not in matrix.type.shape:
                yield VectorProduct(node, vector.owner.inputs[0], matrix)
                break
