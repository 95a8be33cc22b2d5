"""Reads and writes of rows in a step, whose bounds the loop has checked."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np
from pytensor.graph.basic import Apply

from scanopt_cli.loop.codegen.entries import Entries, row_at
from scanopt_cli.loop.codegen.graphs import GraphWriter, write_node
from scanopt_cli.loop.codegen.values import Array, Length, Number, Other, Value
from scanopt_cli.loop.row_access import ReadNumber, WriteEntries, WriteRow


def _row(writer: GraphWriter, array: Array, index: Value, *, is_checked: bool) -> Array:
    """Return a row of an array."""
    assert isinstance(index, Number)
    at, length = writer.length(index), array.shape[0]
    if is_checked:
        row = row_at(writer, at, length)
    else:
        row = writer.chosen(writer.is_less(at, 0), writer.add(at, length), at)
    data = writer.entry(array, [row, *[0] * (array.ndim - 1)])
    return replace(array, data=data, shape=array.shape[1:], strides=array.strides[1:])


@write_node.register(ReadNumber)
def _read_number(
    op: ReadNumber, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    array, index = inputs
    if not isinstance(array, Array):
        return None
    row = _row(writer, array, index, is_checked=False)
    return [writer.load(writer.entry(row, op.entry), row.dtype)]


@write_node.register(WriteRow)
def _write_row(
    op: WriteRow, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    array, index, value = inputs
    if not isinstance(array, Array) or isinstance(value, Other):
        return None
    row = _row(writer, array, index, is_checked=op.is_checked)
    if isinstance(value, Array):
        if value.ndim != row.ndim:
            return None
        for length, wanted in zip(value.shape, row.shape, strict=True):
            if not (isinstance(length, int) and length == 1):
                writer.fail_if(
                    writer.differs(length, wanted), ValueError, "a row has another length"
                )
    entries = Entries(writer, row)

    def put(at: Sequence[Length]) -> None:
        _put(entries, entries.read(value, at), row, at, adds=op.adds)

    entries.over(row.shape, put)
    return [array]


@write_node.register(WriteEntries)
def _write_entries(
    op: WriteEntries, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    array, index, *values = inputs
    if not isinstance(array, Array) or len(values) != prod(op.shape):
        return None
    row = _row(writer, array, index, is_checked=op.is_checked)
    writer.checked(row.shape, op.shape)
    entries = Entries(writer, row)
    for at, value in zip(np.ndindex(*op.shape), values, strict=True):
        assert isinstance(value, Number)
        _put(entries, value, row, at, adds=op.adds)
    return [array]


def _put(entries: Entries, number: Number, row: Array, at: Sequence[Length], *, adds: bool) -> None:
    if adds:
        number = entries.writer.called(operator.add, entries.read(row, at), number)
    entries.write(number, row, at)
