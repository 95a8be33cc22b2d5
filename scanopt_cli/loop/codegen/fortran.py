"""Calls of BLAS and LAPACK, those of SciPy that PyTensor's Numba backend calls as well."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from scanopt_cli.loop.codegen.graphs import GraphWriter
from scanopt_cli.loop.codegen.routines import KINDS, symbol
from scanopt_cli.loop.codegen.values import Array, Length, Memory, Number, Value
from scanopt_cli.loop.codegen.writer import Writer

_POINTER = ir.IntType(8).as_pointer()
_INTEGER = ir.IntType(32)
_TRUTH = ir.IntType(1)


def is_computed(*dtypes: Any) -> bool:
    """Whether BLAS computes with numbers of some dtypes: all float32 or all float64."""
    names = {np.dtype(dtype).name for dtype in dtypes}
    return len(names) == 1 and names <= set(KINDS)


def call(writer: Writer, dtype: Any, name: str, *arguments: Any) -> None:
    """Call a routine, all of whose arguments are pointers.

    An argument is a letter, or a pair of a condition and two letters; a length; a number of
    ``dtype``, given as a float; or a pointer.
    """
    routine = KINDS[np.dtype(dtype).name] + name
    kind = ir.FunctionType(ir.VoidType(), [_POINTER] * len(arguments))
    function = cgutils.get_or_insert_function(writer.builder.module, kind, symbol(routine))
    writer.builder.call(function, [_argument(writer, dtype, v) for v in arguments])


def _argument(writer: Writer, dtype: Any, value: Any) -> Any:
    builder = writer.builder
    if isinstance(value, float):
        code = writer.number(value, dtype).code
    elif isinstance(value, str | tuple):
        code = _letter(writer, value)
    elif isinstance(value, int) or value.type == ir.IntType(64):
        code = builder.trunc(writer.code(value), _INTEGER)
    else:
        return builder.bitcast(value, _POINTER)
    return builder.bitcast(cgutils.alloca_once_value(builder, code), _POINTER)


def _letter(writer: Writer, value: Any) -> Any:
    if isinstance(value, str):
        return ir.IntType(8)(ord(value))
    condition, one, other = value
    return writer.builder.select(condition, _letter(writer, one), _letter(writer, other))


def status(writer: Writer) -> Any:
    """Return the place where a routine says whether it failed, which it did if it is not 0."""
    return cgutils.alloca_once_value(writer.builder, _INTEGER(0))


def has_failed(writer: Writer, place: Any) -> Any:
    """Return whether the routine that was given this place has failed."""
    return writer.builder.icmp_signed("!=", writer.builder.load(place), _INTEGER(0))


def as_array(writer: Writer, value: Value, ndim: int) -> Array:
    """Return a value as an array; a number is one of one entry, which is not in the heap."""
    if isinstance(value, Array):
        return value
    assert isinstance(value, Number)
    data = writer.variable(value)
    shape = (1,) * ndim
    strides = writer.row_major(value.dtype, shape)
    return Array(value.dtype, data, shape, strides, Memory(None, is_owned=False), True)


def turned(array: Array) -> Array:
    """Return the transpose of a matrix, in the same memory."""
    shape, strides = array.shape[::-1], array.strides[::-1]
    return replace(array, shape=shape, strides=strides, is_contiguous=False)


@dataclass(frozen=True, eq=False, slots=True)
class Operand:
    """A matrix or a vector as BLAS reads it.

    Attributes
    ----------
    array
        Its entries; of a matrix, those of a row follow each other in memory, or those of a column.
    lead
        How many entries one row, or column, starts after the one before.
    is_by_rows
        Whether the entries of a row follow each other; BLAS reads these as columns.
    """

    array: Array
    lead: Length
    is_by_rows: Any

    def by_rows(self, writer: Writer) -> Array:
        """Return the matrix, if its entries follow each other by rows."""
        size = self.array.dtype.itemsize
        return replace(self.array, strides=(writer.multiply(self.lead, size), size))

    def by_columns(self, writer: Writer) -> Array:
        """Return the matrix, if its entries follow each other by columns."""
        size = self.array.dtype.itemsize
        return replace(self.array, strides=(size, writer.multiply(self.lead, size)))


@contextmanager
def operand(writer: GraphWriter, array: Array) -> Iterator[Operand]:
    """Give an array as an operand: in its own memory, or else in that of a copy for this while."""
    size = array.dtype.itemsize
    if array.is_contiguous:
        yield Operand(array, writer.larger(array.shape[-1], 1), _TRUTH(1))
        return
    if array.ndim == 1:
        is_by_rows, lead = _follows(writer, array, 0), 1
        is_by_columns: Any = _TRUTH(0)
    else:
        (is_by_rows, by_rows), (is_by_columns, by_columns) = (
            _leading(writer, array, unit=unit) for unit in (1, 0)
        )
        of_copy = writer.larger(array.shape[1], 1)
        lead = writer.chosen(is_by_columns, by_columns, of_copy)
        lead = writer.chosen(is_by_rows, by_rows, lead)
        # Known strides are those of a transpose, whose only column may look like a row as well.
        if isinstance(array.strides[0], int) and array.strides[0] == size:
            is_by_rows = writer.both(is_by_rows, writer.not_(is_by_columns))
            lead = writer.chosen(is_by_columns, by_columns, lead)
    fits = writer.either(is_by_rows, is_by_columns)
    data = cgutils.alloca_once_value(writer.builder, array.data)
    info = cgutils.alloca_once_value(writer.builder, cgutils.get_null_value(_POINTER))

    def copy() -> None:
        # Not in a buffer of the loop, which would be allocated even if nothing is copied.
        with writer.without_buffers():
            made = writer.copied(array)
        writer.builder.store(made.data, data)
        writer.builder.store(made.memory.info, info)

    writer.where(writer.not_(fits), copy)
    found = replace(
        array,
        data=writer.builder.load(data),
        strides=(size,) if array.ndim == 1 else array.strides,
        memory=Memory(None, is_owned=False),
        is_contiguous=array.ndim == 1,
    )
    yield Operand(found, lead, writer.either(is_by_rows, writer.not_(is_by_columns)))
    writer.release(Memory(writer.builder.load(info), is_owned=True))


def _follows(writer: Writer, array: Array, axis: int) -> Any:
    """Return whether entries along an axis follow each other in memory."""
    is_one = writer.not_(writer.differs(array.shape[axis], 1))
    is_next = writer.not_(writer.differs(array.strides[axis], array.dtype.itemsize))
    return writer.either(is_one, is_next)


def _leading(writer: Writer, array: Array, *, unit: int) -> tuple[Any, Length]:
    """Return whether entries along axis ``unit`` follow each other, and the other axis' step."""
    size, other = array.dtype.itemsize, 1 - unit
    stride, length = array.strides[other], array.shape[unit]
    step = writer.quotient(stride, size)
    is_one = writer.not_(writer.differs(array.shape[other], 1))
    is_whole = writer.not_(writer.differs(writer.multiply(step, size), stride))
    is_apart = writer.both(is_whole, writer.is_at_least(step, length))
    fits = writer.both(_follows(writer, array, unit), writer.either(is_one, is_apart))
    return fits, writer.larger(writer.chosen(is_one, length, step), 1)


def fill(writer: GraphWriter, array: Array, number: float) -> None:
    """Write a number into all entries of an array."""
    new = writer.number(number, array.dtype)
    writer.over_entries(
        array.shape, lambda at: writer.store(new, writer.entry(array, at), array.dtype)
    )
