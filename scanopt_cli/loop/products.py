"""Products of matrices and vectors in the body of a loop that Numba compiles.

PyTensor's product of a matrix and a vector is one of two matrices, by BLAS. Called once a step, for
arrays of a few thousand entries at most, that takes longer than the product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.rewriting.scalarize import ScalarizedElemwise
from pytensor.tensor.type import TensorType


class Product(Op):
    """The product of a matrix and a vector, a vector and a matrix, or two matrices.

    Both are of one dtype, float32 or float64.
    """

    __props__ = ()

    def make_node(self, *inputs: Variable) -> Apply:
        """Apply the Op to two arrays."""
        left, right = (v.type for v in inputs)
        shape = (*left.shape[:-1], *(right.shape[1:] if right.ndim > 1 else ()))
        return Apply(self, list(inputs), [TensorType(left.dtype, shape=shape)()])

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:  # noqa: ARG002
        """Compute the product."""
        left, right = inputs
        output_storage[0][0] = left @ right


def use_products(graph: FunctionGraph) -> None:
    """Use `Product` in place of products of matrices, of which one may be a row or a column.

    Rows and columns become vectors in the elementwise arithmetic around.
    """
    drop_unit_dimensions(graph)
    for node in graph.toposort():
        if not isinstance(node.op, Dot) or not is_float(node):
            continue
        left, right = node.inputs
        (old,) = node.outputs
        if right.type.shape[1] == 1:
            _replace(graph, old, Product()(left, _squeezed(right, [1])), [1])
        elif left.type.shape[0] == 1:
            _replace(graph, old, Product()(_squeezed(left, [0]), right), [0])
        else:
            _replace(graph, old, Product()(left, right), [])


def drop_unit_dimensions(graph: FunctionGraph) -> None:
    """Compute elementwise without the dimensions that have one entry in all operands.

    Numba does not vectorize the inner loop over a dimension of one entry.
    """
    for node in graph.toposort():
        if not isinstance(node.op, Elemwise) or node.op.inplace_pattern:
            continue
        ndim = node.outputs[0].type.ndim
        axes = [i for i in range(ndim) if all(v.type.shape[i] == 1 for v in node.inputs)]
        if axes and len(axes) < ndim:
            made = node.op.make_node(*(_squeezed(v, axes) for v in node.inputs))
            for old, new in zip(node.outputs, made.outputs, strict=True):
                _replace(graph, old, new, axes)


def unfuse_scalarized(graph: FunctionGraph) -> None:
    """Write elementwise arithmetic of arrays and numbers as it was before PyTensor fused both."""
    for node in graph.toposort():
        if isinstance(node.op, ScalarizedElemwise) and node.outputs[0].type.ndim:
            inner = node.op.fgraph
            made = inner.bind(dict(zip(inner.inputs, node.inputs, strict=True)))
            graph.replace_all(list(zip(node.outputs, made, strict=True)))


def is_float(node: Apply) -> bool:
    """Whether all inputs and outputs of a node are of one dtype, float32 or float64."""
    dtypes = {v.type.dtype for v in (*node.inputs, *node.outputs)}
    return len(dtypes) == 1 and dtypes <= {"float32", "float64"}


def _squeezed(array: Any, axes: Sequence[int]) -> Variable:
    """Return an array without some dimensions of one entry."""
    kept = [i for i in range(array.type.ndim) if i not in axes]
    node = array.owner
    if node is not None and isinstance(node.op, DimShuffle):
        (source,) = node.inputs
        order = [node.op.new_order[i] for i in kept]
        if order == list(range(source.type.ndim)):
            inner: Variable = source
            return inner
    made: Variable = array.dimshuffle(kept)
    return made


def _replace(graph: FunctionGraph, old: Any, new: Any, axes: Sequence[int]) -> None:
    """Replace a variable by one that lacks ``axes``, in readers that take them away too."""
    kept = [i for i in range(old.type.ndim) if i not in axes]
    if axes:
        for reader, _ in list(graph.clients[old]):
            if isinstance(reader.op, DimShuffle) and list(reader.op.new_order) == kept:
                (squeezed,) = reader.outputs
                graph.replace(squeezed, squeezed.type.filter_variable(new, allow_convert=True))
    if graph.clients.get(old):
        whole = new.dimshuffle([kept.index(i) if i in kept else "x" for i in range(old.type.ndim)])
        graph.replace(old, old.type.filter_variable(whole, allow_convert=True))
