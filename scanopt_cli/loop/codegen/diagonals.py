"""Diagonals of arrays, and matrices made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytensor.graph.basic import Apply
from pytensor.tensor.basic import AllocDiag, ExtractDiag, Eye

from scanopt_cli.loop.codegen.fortran import as_array, fill
from scanopt_cli.loop.codegen.graphs import GraphWriter, is_number_like, write_node
from scanopt_cli.loop.codegen.values import Array, Length, Number, Other, Value, is_real


@write_node.register(ExtractDiag)
def _extract(
    op: ExtractDiag, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    (value,) = inputs
    (variable,) = node.inputs
    if isinstance(value, Other):
        return None
    if isinstance(value, Number) and is_number_like(node.outputs[0]):
        return [value]
    array = as_array(writer, value, variable.type.ndim)
    part = diagonal(writer, array, op.offset, op.axis1, op.axis2)
    is_view = op.view and isinstance(value, Array)
    return [part if is_view else writer.copied(part)]


def diagonal(writer: GraphWriter, array: Array, offset: Length, axis1: int, axis2: int) -> Array:
    """Return the entries at ``(i, i + offset)`` of two axes, as the last axis, in their memory."""
    down = writer.larger(writer.subtract(0, offset), 0)
    right = writer.larger(offset, 0)
    left = writer.subtract(array.shape[axis1], down), writer.subtract(array.shape[axis2], right)
    length = writer.larger(writer.smaller(*left), 0)
    first: list[Length] = [0] * array.ndim
    first[axis1], first[axis2] = down, right
    rest = [axis for axis in range(array.ndim) if axis not in (axis1, axis2)]
    step = writer.add(array.strides[axis1], array.strides[axis2])
    return replace(
        array,
        data=writer.entry(array, first),
        shape=(*(array.shape[axis] for axis in rest), length),
        strides=(*(array.strides[axis] for axis in rest), step),
        is_contiguous=False,
    )


@write_node.register(AllocDiag)
def _of_diagonal(
    op: AllocDiag, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    (value,) = inputs
    (variable,) = node.inputs
    if isinstance(value, Other) or variable.type.ndim != 1:
        return None
    if isinstance(value, Number) and is_number_like(node.outputs[0]):
        return [value]
    entries = as_array(writer, value, 1)
    n = writer.add(entries.shape[0], abs(op.offset))
    made = writer.allocate(entries.dtype, (n, n))
    fill(writer, made, 0)
    _put(writer, made, op.offset, entries)
    return [made]


@write_node.register(Eye)
def _eye(
    op: Eye, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    lengths = [writer.length(v) for v in inputs if isinstance(v, Number) and v.dtype.kind in "iu"]
    if len(lengths) < len(inputs) or not is_real(op.dtype) or is_number_like(node.outputs[0]):
        return None
    n, m, offset = lengths
    made = writer.allocate(op.dtype, (n, m))
    fill(writer, made, 0)
    _put(writer, made, offset, writer.number(1, op.dtype))
    return [made]


def _put(writer: GraphWriter, matrix: Array, offset: Length, value: Number | Array) -> None:
    """Write entries, or one number, into a diagonal of a matrix."""
    part = diagonal(writer, matrix, offset, 0, 1)
    with writer.loop(part.shape[0]) as i:
        number = value
        if isinstance(value, Array):
            number = writer.load(writer.entry(value, [i]), value.dtype)
        assert isinstance(number, Number)
        writer.store(number, writer.entry(part, [i]), part.dtype)
