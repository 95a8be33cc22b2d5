"""Reads and writes of parts of arrays by integers and slices."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytensor.graph.basic import Apply
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)

from scanopt_cli.loop.codegen.entries import Entries, row_at
from scanopt_cli.loop.codegen.graphs import GraphWriter, write_node
from scanopt_cli.loop.codegen.lengths import is_same
from scanopt_cli.loop.codegen.values import (
    Array,
    Gathered,
    Length,
    Memory,
    Number,
    Other,
    Value,
    is_real,
)
from scanopt_cli.loop.index_arrays import index_arrays, is_write

_LARGEST = 2**63 - 1


@write_node.register(Subtensor)
def _subtensor(
    op: Subtensor, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    array, *indices = inputs
    if not _are_integers(indices):
        return None
    if isinstance(array, Number):
        return _only_entry(writer, op, array, indices)
    return [_part(writer, array, op.idx_list, indices)] if isinstance(array, Array) else None


def _only_entry(
    writer: GraphWriter, op: Subtensor, number: Number, indices: Sequence[Value]
) -> Sequence[Value] | None:
    """Return the entry of an array of one, if it is read by integers."""
    if not all(isinstance(entry, int) or entry == slice(None) for entry in op.idx_list):
        return None
    for index in indices:
        assert isinstance(index, Number)
        row_at(writer, writer.length(index), 1)
    return [number]


@write_node.register(IncSubtensor)
def _inc_subtensor(
    op: IncSubtensor, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    array, new, *indices = inputs
    if (
        not isinstance(array, Array)
        or isinstance(new, Other | Gathered)
        or not _are_integers(indices)
    ):
        return None
    result = array if op.inplace else writer.copied(array)
    part = _part(writer, result, op.idx_list, indices)
    offset = part.ndim - node.inputs[1].type.ndim
    if isinstance(new, Array):
        if offset < 0:
            return None
        _check_broadcast(writer, new, part.shape[offset:])
    # PyTensor overwrites no array of which a part is written.
    entries = Entries(writer, part)

    def put(at: Sequence[Length]) -> None:
        number = new
        if isinstance(new, Array):
            number = entries.read(_stretched(writer, new), at[offset:])
        assert isinstance(number, Number)
        if not op.set_instead_of_inc:
            number = writer.called(operator.add, entries.read(part, at), number)
        entries.write(number, part, at)

    entries.over(part.shape, put)
    return [result]


@write_node.register(AdvancedSubtensor)
def _advanced_subtensor(
    op: Any, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    array = inputs[0]
    found = _gathered(writer, node, array, inputs)
    if found is None:
        return None
    (output,) = node.outputs
    if isinstance(array, Number):
        picked = _written_out(writer, found)
        writer.give_up(found.array.memory)
        return [picked]
    reader = writer.order.only_reader(output)
    is_elementwise = isinstance(getattr(reader, "op", None), Elemwise)
    if (
        reader is not None
        and is_elementwise
        and all(is_real(v.type.dtype) for v in (*reader.inputs, *reader.outputs))
        and writer.order.overwrites_nothing(node, reader)
    ):
        for memory in found.memory.within:
            memory.n_users += 1
        return [found]
    return [_written_out(writer, found)]


@write_node.register(AdvancedIncSubtensor)
def _advanced_inc_subtensor(
    op: AdvancedIncSubtensor, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    array, new = inputs[:2]
    if not is_write(node) or isinstance(new, Other | Gathered):
        return None
    found = _gathered(writer, node, array, inputs)
    if found is None:
        return None
    if isinstance(new, Array):
        _check_broadcast(writer, new, found.shape)
        new = _stretched(writer, new)
    is_one = isinstance(array, Number)  # then it is a copy
    result = found.array if op.inplace or is_one else writer.copied(found.array)
    # Indices may name an entry twice.
    entries = Entries(writer, result, repeats=found.axis == len(found.shape) - 1)

    def put(at: Sequence[Length]) -> None:
        place, number = entries.place(found, at), entries.read(new, at)
        if not op.set_instead_of_inc:
            number = writer.called(operator.add, entries.read(result, place), number)
        entries.write(number, result, place)

    entries.over(found.shape, put)
    if is_one:
        number = writer.load(result.data, result.dtype)
        writer.give_up(result.memory)
        return [number]
    return [result]


def _written_out(writer: GraphWriter, found: Gathered) -> Array:
    """Return an array of the entries that are picked."""
    made = writer.allocate(found.array.dtype, found.shape)
    entries = Entries(writer, made)
    entries.over(found.shape, lambda at: entries.write(entries.read(found, at), made, at))
    return made


def _gathered(
    writer: GraphWriter, node: Apply, array: Value, inputs: Sequence[Value]
) -> Gathered | None:
    """Return the entries of an array that a node picks, if it does so by vectors of indices.

    Of a number the array is one of its own, which the caller gives up.
    """
    found = _picked(node, inputs)
    if found is None or not isinstance(array, Array | Number):
        return None
    if isinstance(array, Number):
        array = writer.as_array(array, node.inputs[0].type.ndim)
    axis = min(found)
    picked, length = _of_one_length(writer, found)
    rest = [n for k, n in enumerate(array.shape) if k not in picked]
    shape = (*rest[:axis], length, *rest[axis:])
    parts = [array.memory, *(v.memory for v in picked.values() if isinstance(v, Array))]
    return Gathered(array, shape, picked, axis, Memory(None, False, within=tuple(parts)))


def _picked(node: Apply, inputs: Sequence[Value]) -> dict[int, Array | Number] | None:
    """Return the vectors of indices of a node, by dimension, if it picks by these alone."""
    values = dict(zip(node.inputs, inputs, strict=True))
    found: dict[int, Array | Number] = {}
    for dimension, variable in (index_arrays(node) or {}).items():
        value = values.get(variable)
        if not isinstance(value, Array | Number):
            return None
        found[dimension] = value
    return found or None


def _of_one_length(
    writer: GraphWriter, picked: Mapping[int, Array | Number]
) -> tuple[dict[int, Array | Number], Length]:
    """Return vectors of indices as those of one length, and that; one index may be for all."""
    lengths = [v.shape[0] if isinstance(v, Array) else 1 for v in picked.values()]
    found, *others = lengths
    for length in others:
        found = writer.chosen(writer.differs(found, 1), found, length)
    for length in lengths if others else ():
        wrong = writer.both(writer.differs(length, found), writer.differs(length, 1))
        writer.fail_if(wrong, ValueError, "arrays of indices have different lengths")
    stretched = {
        k: _stretched(writer, v) if isinstance(v, Array) and others else v
        for k, v in picked.items()
    }
    return stretched, found


def _check_broadcast(writer: GraphWriter, new: Array, shape: Sequence[Length]) -> None:
    for length, wanted in zip(new.shape, shape, strict=True):
        wrong = writer.both(writer.differs(length, wanted), writer.differs(length, 1))
        writer.fail_if(
            wrong, ValueError, "cannot assign slice of shape from input of another shape"
        )


def _stretched(writer: GraphWriter, array: Array) -> Array:
    """Return an array whose axes of one entry are read as if they were longer."""
    strides = [
        stride if isinstance(n, int) else writer.chosen(writer.differs(n, 1), stride, 0)
        for n, stride in zip(array.shape, array.strides, strict=True)
    ]
    return replace(array, strides=tuple(strides), is_contiguous=False)


def _are_integers(indices: Sequence[Value]) -> bool:
    return all(isinstance(v, Number) and v.dtype.kind in "iu" for v in indices)


def _part(
    writer: GraphWriter, array: Array, entries: Sequence[Any], indices: Sequence[Value]
) -> Array:
    """Return a part of an array, in the same memory."""
    numbers = iter(writer.length(v) for v in indices if isinstance(v, Number))
    data, axis = array.data, 0
    shape: list[Length] = []
    strides: list[Length] = []
    starts: list[Length] = []
    # Entries follow each other still if integers come first, and then one slice of several rows.
    follow = array.is_contiguous
    for entry in entries:
        length, stride = array.shape[axis], array.strides[axis]
        if isinstance(entry, slice):
            start, count, step = _bounds(writer, entry, numbers, length)
            follow = follow and is_same(step, 1) and (not shape or is_same(count, length))
            starts.append(start)
            shape.append(count)
            strides.append(writer.multiply(stride, step))
        else:
            starts.append(row_at(writer, next(numbers), length))
            follow = follow and not shape
        axis += 1
    rest = [0] * (array.ndim - axis)
    data = writer.entry(array, [*starts, *rest])
    return replace(
        array,
        data=data,
        shape=(*shape, *array.shape[axis:]),
        strides=(*strides, *array.strides[axis:]),
        is_contiguous=follow,
    )


def _bounds(
    writer: GraphWriter, entry: slice, numbers: Iterator[Length], length: Length
) -> tuple[Length, Length, Length]:
    """Return the first row of a slice, how many rows it has, and the step, as Python does."""
    if entry == slice(None):
        return 0, length, 1
    first = None if entry.start is None else next(numbers)
    last = None if entry.stop is None else next(numbers)
    step: Length = 1 if entry.step is None else writer.larger(next(numbers), -_LARGEST)
    writer.fail_if(writer.is_zero(step), ValueError, "slice step cannot be zero")
    is_back = writer.is_less(step, 0)
    lowest = writer.chosen(is_back, -1, 0)
    highest = writer.chosen(is_back, writer.subtract(length, 1), length)

    def clipped(index: Length) -> Length:
        found = writer.chosen(writer.is_less(index, 0), writer.add(index, length), index)
        return writer.smaller(writer.larger(found, lowest), highest)

    start = writer.chosen(is_back, highest, lowest) if first is None else clipped(first)
    stop = writer.chosen(is_back, lowest, highest) if last is None else clipped(last)
    size = writer.chosen(is_back, writer.subtract(start, stop), writer.subtract(stop, start))
    by = writer.chosen(is_back, writer.subtract(0, step), step)
    # The step may be so large that no sum with it is an integer of 64 bits.
    more = writer.quotient(writer.larger(writer.subtract(size, 1), 0), by)
    count = writer.chosen(writer.is_less(0, size), writer.add(more, 1), 0)
    return start, count, step
