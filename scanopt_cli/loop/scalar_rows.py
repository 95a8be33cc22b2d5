"""Writing a number into an array, without an array for the number."""

from __future__ import annotations

from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import TensorFromScalar
from pytensor.tensor.subtensor import IncSubtensor


class WriteScalar(Op):
    """Set an entry of a vector, or add to it, in place: ``(vector, index, number)`` → vector."""

    __props__ = ("adds",)

    def __init__(self, adds: bool) -> None:
        self.adds = adds
        self.destroy_map = {0: [0]}

    def make_node(self, *inputs: Variable) -> Apply:
        """Apply the Op to a vector, an index and a number of its dtype."""
        return Apply(self, list(inputs), [inputs[0].type()])

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:  # noqa: ARG002
        """Write the number."""
        vector, index, number = inputs
        vector[index] = vector[index] + number if self.adds else number
        output_storage[0][0] = vector


def write_scalars(graph: FunctionGraph) -> None:
    """Use `WriteScalar` where ``graph`` writes a number into a vector in place."""
    for node in graph.toposort():
        op = node.op
        if not (isinstance(op, IncSubtensor) and op.inplace):
            continue
        vector, value, *indices = node.inputs
        if (
            vector.type.ndim == 1
            and isinstance(value.owner_op, TensorFromScalar)
            and isinstance(op.idx_list[0], int)
            and len(indices) == 1
            and isinstance(indices[0].type, ScalarType)
            and indices[0].type.dtype.startswith("int")
            and value.owner.inputs[0].type.dtype == vector.type.dtype
        ):
            write = WriteScalar(adds=not op.set_instead_of_inc)
            new: Any = write(vector, indices[0], value.owner.inputs[0])
            graph.replace(node.outputs[0], new, reason="write_scalars")
