"""Reading and writing rows of arrays in the body of a loop that Numba compiles.

PyTensor's code for an index checks its bounds at every step, which costs more than a step of
arithmetic; and that for a written row asks at each entry whether the row is broadcast. Where an
index goes up or down by one with the index of the loop, it is checked before the loop instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import Add, Composite, ScalarType, Sub
from pytensor.tensor.basic import ScalarFromTensor, TensorFromScalar
from pytensor.tensor.rewriting.scalarize import ScalarSubtensor
from pytensor.tensor.subtensor import IncSubtensor, Subtensor


class ReadNumber(Op):
    """Read an entry of a vector, whose index was checked before: ``(vector, index)`` → number."""

    __props__ = ()

    def make_node(self, *inputs: Variable) -> Apply:
        """Apply the Op to a vector and an index."""
        return Apply(self, list(inputs), [ScalarType(inputs[0].type.dtype)()])

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:  # noqa: ARG002
        """Read the number."""
        vector, index = inputs
        output_storage[0][0] = vector[index]


class WriteRow(Op):
    """Set a row of an array, or add to it, in place: ``(array, index, row)`` → array.

    The row of a vector is a number. ``ndim`` is the number of dimensions of a row; ``is_checked``
    says whether the index has to be checked.
    """

    __props__ = ("adds", "ndim", "is_checked")

    def __init__(self, adds: bool, ndim: int, is_checked: bool = True) -> None:
        self.adds = adds
        self.ndim = ndim
        self.is_checked = is_checked
        self.destroy_map = {0: [0]}

    def make_node(self, *inputs: Variable) -> Apply:
        """Apply the Op to an array, an index and a row of its dtype."""
        return Apply(self, list(inputs), [inputs[0].type()])

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:  # noqa: ARG002
        """Write the row."""
        array, index, row = inputs
        array[index] = array[index] + row if self.adds else row
        output_storage[0][0] = array


def use_rows(graph: FunctionGraph, n_states: int, *, is_while: bool) -> None:
    """Use `ReadNumber` and `WriteRow` in the body ``graph`` of a loop.

    In a loop that a condition may end early, an index that goes too far may never be reached, so
    indices are checked at every step.
    """
    states, constants = graph.inputs[1 : 1 + n_states], graph.inputs[1 + n_states :]
    for node in graph.toposort():
        if isinstance(node.op, IncSubtensor) and node.op.inplace:
            array, row, *indices = node.inputs
            if not _is_one_row(node.op, indices) or row.type.dtype != array.type.dtype:
                continue
            if row.type.ndim != array.type.ndim - 1:
                continue
            if array.type.ndim == 1:
                if not isinstance(row.owner_op, TensorFromScalar):
                    continue
                row = row.owner.inputs[0]
            is_fixed = array in states and graph.outputs[states.index(array)] is node.outputs[0]
            index = _unfused(indices[0])
            is_sure = not is_while and is_fixed and _goes_by_one(graph, index, n_states)
            write = WriteRow(
                adds=not node.op.set_instead_of_inc,
                ndim=array.type.ndim - 1,
                is_checked=not is_sure,
            )
            written: Any = write(array, index if is_sure else indices[0], row)
            graph.replace(node.outputs[0], written, reason="use_rows")
        elif isinstance(node.op, ScalarSubtensor) and not is_while:
            vector, *indices = node.inputs
            (read,) = (n.op for n in node.op.fgraph.apply_nodes if isinstance(n.op, Subtensor))
            is_one = _is_one_row(read, indices) and vector.type.ndim == 1
            index = _unfused(indices[0]) if is_one else None
            if is_one and vector in constants and _goes_by_one(graph, index, n_states):
                number: Any = ReadNumber()(vector, index)
                graph.replace(node.outputs[0], number, reason="use_rows")


@dataclass(frozen=True, slots=True)
class CheckedBefore:
    """An index of rows of an input of a body, to be checked before the loop.

    ``graph`` computes it from the index of the loop and the constants.
    """

    place: int
    graph: FrozenFunctionGraph


def checked_before(graph: FrozenFunctionGraph, n_states: int) -> list[CheckedBefore]:
    """Return the indices of a body that no step checks, each once."""
    inputs = [graph.inputs[0], *graph.inputs[1 + n_states :]]
    found = {}
    for node in graph.toposort():
        if isinstance(node.op, ReadNumber) or (
            isinstance(node.op, WriteRow) and not node.op.is_checked
        ):
            array, index = node.inputs[:2]
            place = graph.inputs.index(array)
            found[place, index] = FrozenFunctionGraph.from_io(inputs, [index])
    return [CheckedBefore(place, one) for (place, _), one in found.items()]


def _is_one_row(op: Any, indices: Sequence[Variable]) -> bool:
    """Whether an Op reads or writes one row, by an integer."""
    return (
        len(op.idx_list) == len(indices) == 1
        and isinstance(op.idx_list[0], int)
        and isinstance(indices[0].type, ScalarType)
        and indices[0].type.dtype == "int64"
    )


def _unfused(index: Any, known: dict[Variable, Any] | None = None) -> Any:
    """Return an index as a formula of its own, which PyTensor may have fused with others."""
    known = {} if known is None else known
    node = index.owner
    if node is None or not isinstance(node.op, Composite | Add | Sub):
        return index
    if index not in known:
        parts = [_unfused(part, known) for part in node.inputs]
        if isinstance(node.op, Composite):
            formula: Any = node.op.fgraph
            bound = formula.bind(dict(zip(formula.inputs, parts, strict=True)))
            known[index] = _unfused(bound[index.index], known)
        else:
            known[index] = node.op(*parts)
    return known[index]


def _goes_by_one(graph: FunctionGraph, index: Any, n_states: int) -> bool:
    """Whether an index of rows goes up or down by one with the index of the loop."""
    slopes: dict[Variable, int | None] = {graph.inputs[0]: 1}
    slopes |= dict.fromkeys(graph.inputs[1 + n_states :], 0)
    for node in toposort([index]):
        for output in node.outputs:
            slopes[output] = _slope(node, slopes)
    return slopes.get(index) in (1, -1)


def _slope(node: Apply, slopes: Mapping[Variable, int | None]) -> int | None:
    """Return by how much what a node computes changes from step to step, if that is known."""
    parts = [0 if isinstance(v, Constant) else slopes.get(v) for v in node.inputs]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    if not any(known):
        return 0
    if isinstance(node.op, ScalarFromTensor | TensorFromScalar):
        return known[0]
    scalar_op = getattr(node.op, "scalar_op", node.op)
    if not isinstance(scalar_op, Add | Sub) or node.outputs[0].type.dtype != "int64":
        return None
    first, *rest = known
    return first + sum(rest) if isinstance(scalar_op, Add) else first - sum(rest)
