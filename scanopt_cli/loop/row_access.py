"""Reads and writes of rows, by Numba, with the checks of bounds hoisted out of the loop.

PyTensor's code for an index checks its bounds at every step, which costs more than a step of
arithmetic; and that for a written row asks at each entry whether the row is broadcast. Where an
index goes up or down by one with the index of the loop, it is checked before the loop instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import Add, Composite, ScalarType, Sub
from pytensor.tensor.basic import MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.rewriting.scalarize import ScalarizedJoin, ScalarSubtensor
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from scanopt_cli.ir.indexing import number


class ReadNumber(Op):
    """Read an entry of a row, whose index was checked before: ``(array, index)`` → number.

    ``entry`` is its index within the row; the row of a vector is the number.
    """

    __props__ = ("entry",)

    def __init__(self, entry: tuple[int, ...] = ()) -> None:
        self.entry = entry

    def make_node(self, *inputs: Variable) -> Apply:
        """Apply the Op to an array and an index."""
        return Apply(self, list(inputs), [ScalarType(inputs[0].type.dtype)()])

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:  # noqa: ARG002
        """Read the number."""
        array, index = inputs
        output_storage[0][0] = array[(index, *self.entry)]


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
        """Apply the Op to an array, an index, and a row or numbers of its dtype."""
        return Apply(self, list(inputs), [inputs[0].type()])

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:  # noqa: ARG002
        """Write the row."""
        array, index, *values = inputs
        row = self.row(values)
        array[index] = array[index] + row if self.adds else row
        output_storage[0][0] = array

    def row(self, values: Any) -> Any:
        """Return the row that the inputs after the index make."""
        return values[0]


class WriteEntries(WriteRow):
    """Write a row entry by entry: ``(array, index, *numbers)`` → array.

    ``shape`` is that of the row.
    """

    __props__ = ("adds", "shape", "is_checked")

    def __init__(self, adds: bool, shape: tuple[int, ...], is_checked: bool = True) -> None:
        super().__init__(adds, len(shape), is_checked)
        self.shape = shape

    def row(self, values: Any) -> Any:
        """Return the row that the numbers make."""
        return np.reshape(values, self.shape)


def use_rows(graph: FunctionGraph, n_states: int, *, is_while: bool) -> None:
    """Use `ReadNumber`, `WriteRow` and `WriteEntries` in the body ``graph`` of a loop.

    In a loop that a condition may end early, an index that goes too far may never be reached, so
    indices are checked at every step. An array of one entry, which is in a register, stays.
    """
    states, constants = graph.inputs[1 : 1 + n_states], graph.inputs[1 + n_states :]
    for node in graph.toposort():
        if isinstance(node.op, IncSubtensor) and node.op.inplace:
            array, row, *indices = node.inputs
            if not _is_row(array, node.op, indices) or row.type.dtype != array.type.dtype:
                continue
            if row.type.ndim != array.type.ndim - 1:
                continue
            if array.type.ndim == 1 and not isinstance(row.owner_op, TensorFromScalar):
                continue
            is_fixed = array in states and graph.outputs[states.index(array)] is node.outputs[0]
            index = _unfused(indices[0])
            is_sure = not is_while and is_fixed and _has_unit_stride(graph, index, n_states)
            adds = not node.op.set_instead_of_inc
            entries = _entries(row, array.type.shape[1:])
            write: Op
            if array.type.ndim == 1:
                write, values = WriteRow(adds, 0, not is_sure), [row.owner.inputs[0]]
            elif entries is not None:
                write, values = WriteEntries(adds, array.type.shape[1:], not is_sure), entries
            else:
                write, values = WriteRow(adds, row.type.ndim, not is_sure), [row]
            written: Any = write(array, index if is_sure else indices[0], *values)
            graph.replace(node.outputs[0], written, reason="use_rows")
        elif isinstance(node.op, ScalarSubtensor) and not is_while:
            array, *indices = node.inputs
            (read,) = (n.op for n in node.op.fgraph.apply_nodes if isinstance(n.op, Subtensor))
            entry = _entry(read, indices[1:], array.type.shape[1:])
            if entry is None or array not in constants or not _is_row(array, read, indices[:1]):
                continue
            index = _unfused(indices[0])
            if _has_unit_stride(graph, index, n_states):
                number: Any = ReadNumber(entry)(array, index)
                graph.replace(node.outputs[0], number, reason="use_rows")


def _entries(row: Any, shape: Sequence[int | None]) -> list[Any] | None:
    """Return the numbers that a row is made of, ``None`` if it is made otherwise."""
    if row.type.shape != tuple(shape) or None in shape:
        return None
    if isinstance(row.owner_op, Reshape):
        row = row.owner.inputs[0]
    node = row.owner
    if node is None or not isinstance(node.op, ScalarizedJoin | MakeVector):
        return None
    numbers = [
        v.owner.inputs[0] if isinstance(v.owner_op, TensorFromScalar) else v for v in node.inputs
    ]
    size = prod(n for n in shape if n is not None)
    is_each = len(numbers) == size and all(
        isinstance(v.type, ScalarType) and v.type.dtype == row.type.dtype for v in numbers
    )
    return numbers if is_each else None


def _entry(
    op: Any, indices: Sequence[Variable], shape: Sequence[int | None]
) -> tuple[int, ...] | None:
    """Return constant indices that are within a row, one for each of its axes."""
    if len(op.idx_list) != 1 + len(shape) or len(indices) != len(shape):
        return None
    entry = [number(index) for index in indices]
    if any(i is None or n is None or not 0 <= i < n for i, n in zip(entry, shape, strict=True)):
        return None
    return tuple(i for i in entry if i is not None)


@dataclass(frozen=True, slots=True)
class CheckedBefore:
    """An index of rows of an input of a body, to be checked before the loop.

    ``graph`` computes it from the index of the loop and the constants.
    """

    position: int
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
            position = graph.inputs.index(array)
            found[position, index] = FrozenFunctionGraph.from_io(inputs, [index])
    return [CheckedBefore(position, one) for (position, _), one in found.items()]


def _is_row(array: Any, op: Any, indices: Sequence[Variable]) -> bool:
    """Whether an Op reads or writes a row in memory, by an integer, which is its first index."""
    return (
        len(indices) == 1
        and array.type.numpy_dtype.kind != "c"
        and not all(array.type.broadcastable)
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


def _has_unit_stride(graph: FunctionGraph, index: Any, n_states: int) -> bool:
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
