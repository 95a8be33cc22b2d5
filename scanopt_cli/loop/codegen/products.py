"""Products of matrices and vectors: loops, and BLAS where arrays are large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pytensor.graph.basic import Apply
from pytensor.tensor.math import Dot

from scanopt_cli.loop.codegen.apart import written_apart
from scanopt_cli.loop.codegen.entries import Entries
from scanopt_cli.loop.codegen.fortran import (
    Operand,
    as_array,
    call,
    fill,
    is_computed,
    operand,
    turned,
)
from scanopt_cli.loop.codegen.graphs import GraphWriter, write_node
from scanopt_cli.loop.codegen.known_products import known_product, with_product
from scanopt_cli.loop.codegen.values import Array, Length, Memory, Number, Other, Value
from scanopt_cli.loop.products import Product

_LARGE = 1 << 16
"""Matrices of so many entries are multiplied by vectors by BLAS, which may use several threads."""
_SMALL = 512
"""Products of so many terms, at most, of two matrices are not computed by BLAS."""
_AT_ONCE = 4
"""How many rows of a matrix are read in one loop."""
_MISMATCH = "shapes not aligned in the product of a loop's step"


@write_node.register(Product)
@write_node.register(Dot)
def _product(
    op: Any, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    dtypes = [v.type.dtype for v in (*node.inputs, *node.outputs)]
    if any(isinstance(value, Other) for value in inputs) or not is_computed(*dtypes):
        return None
    left, right = (
        as_array(writer, value, variable.type.ndim)
        for value, variable in zip(inputs, node.inputs, strict=True)
    )
    writer.fail_if(writer.differs(left.shape[-1], right.shape[0]), ValueError, _MISMATCH)
    if isinstance(right.shape[0], int):
        left = replace(left, shape=(*left.shape[:-1], right.shape[0]))
    right = replace(right, shape=(left.shape[-1], *right.shape[1:]))
    shape = (*left.shape[:-1], *right.shape[1:])
    if left.ndim == 1:
        left = _with_axis(left, 0)
    if right.ndim == 1:
        right = _with_axis(right, 1)
    made = _multiplied(writer, left, right)
    if isinstance(made, Array):
        made = replace(made, shape=shape, strides=writer.row_major(made.dtype, shape))
    return [made]


def _with_axis(vector: Array, axis: int) -> Array:
    """Return a vector as a matrix of one row, by ``axis`` 0, or of one column."""
    (length,), (stride,) = vector.shape, vector.strides
    if axis:
        return replace(vector, shape=(length, 1), strides=(stride, vector.dtype.itemsize))
    return replace(vector, shape=(1, length), strides=(0, stride))


def _row(matrix: Array) -> Array:
    """Return the only row of a matrix."""
    return replace(matrix, shape=matrix.shape[1:], strides=matrix.strides[1:])


def _multiplied(writer: GraphWriter, left: Array, right: Array) -> Number | Array:
    """Write the product of two matrices; the entries of the result follow each other."""
    (n, k), m = left.shape, right.shape[1]
    terms = writer.multiply(writer.multiply(n, k), m)
    is_row, is_column = isinstance(n, int) and n == 1, isinstance(m, int) and m == 1
    if (known := known_product(writer, left, right)) is not None:
        return known
    if is_row and is_column:
        return _sum_of_products(writer, _row(left), _row(turned(right)))
    if is_column:
        return _matrix_by_vector(writer, left, _row(turned(right)))
    if is_row:
        return _matrix_by_vector(writer, turned(right), _row(left))
    made = writer.allocate(left.dtype, (n, m))
    writer.choose(
        writer.is_less(_SMALL, terms),
        lambda: _by_blas(writer, made, left, right),
        lambda: _small(writer, made, left, right),
    )
    return made


def _added(writer: GraphWriter, total: Number | None, one: Number, other: Number) -> Number:
    """Return a total and a product."""
    before = None if total is None else total.code
    return Number(with_product(writer.builder, before, one.code, other.code), one.dtype)


def _sum_of_products(writer: GraphWriter, one: Array, other: Array) -> Number:
    """Write the product of two vectors."""
    with operand(writer, one) as first, operand(writer, other) as second:
        (total,) = _sums(writer, Entries(writer), [first.array], second.array)
    return total


def _sums(
    writer: GraphWriter, entries: Entries, rows: Sequence[Array], vector: Array
) -> Sequence[Number]:
    """Write the products of some vectors by another one, in one loop."""
    dtype = vector.dtype
    places = [writer.variable(writer.number(0, dtype)) for _ in rows]
    with writer.loop(vector.shape[0]) as j:
        x = entries.read(vector, [j])
        for row, place in zip(rows, places, strict=True):
            total = Number(writer.builder.load(place), dtype)
            made = _added(writer, total, entries.read(row, [j]), x)
            writer.builder.store(made.code, place)
    return [Number(writer.builder.load(place), dtype) for place in places]


def _matrix_by_vector(writer: GraphWriter, matrix: Array, vector: Array) -> Array:
    """Write the product of a matrix and a vector."""
    made = writer.allocate(matrix.dtype, matrix.shape[:1])
    with operand(writer, matrix) as left, operand(writer, vector) as right:
        lengths = left.lead, left.is_by_rows, *matrix.shape
        written_apart(
            writer,
            "scanopt.matrix_by_vector",
            [made.data, left.array.data, right.array.data, *lengths],
            lambda given: _matrix_by_vector_apart(writer, made.dtype, *given),
        )
    return made


def _matrix_by_vector_apart(
    writer: GraphWriter,
    dtype: Any,
    result: Any,
    entries: Any,
    vector: Any,
    lead: Length,
    is_by_rows: Any,
    n_rows: Length,
    n_columns: Length,
) -> None:
    """Write the product of a matrix and a vector, given by pointers, into a result."""
    made, x = _at(dtype, result, n_rows), _at(dtype, vector, n_columns)
    matrix = replace(made, data=entries, shape=(n_rows, n_columns), memory=Memory(None, False))
    left = Operand(matrix, lead, is_by_rows)

    def loops() -> None:
        writer.choose(
            is_by_rows,
            lambda: _rows_by(writer, made, left.by_rows(writer), x),
            lambda: _columns_by(writer, made, left.by_columns(writer), x),
        )

    def blas() -> None:
        # Some builds of BLAS read what they overwrite.
        fill(writer, made, 0)
        call(
            *(writer, dtype, "gemv", (is_by_rows, "T", "N")),
            writer.chosen(is_by_rows, n_columns, n_rows),
            writer.chosen(is_by_rows, n_rows, n_columns),
            *(1.0, entries, lead, vector, 1, 0.0, result, 1),
        )

    writer.choose(writer.is_at_least(writer.product(matrix.shape), _LARGE), blas, loops)


def _at(dtype: Any, data: Any, length: Length) -> Array:
    """Return the vector whose entries follow a pointer."""
    return Array(dtype, data, (length,), (dtype.itemsize,), Memory(None, False), True)


def _blocks(writer: GraphWriter, length: Length, write: Any) -> None:
    """Write what is done for some rows at once, given the first one and their number."""
    n = writer.quotient(length, _AT_ONCE)
    done = writer.multiply(n, _AT_ONCE)
    for count, at_once, first in ((n, _AT_ONCE, 0), (writer.subtract(length, done), 1, done)):
        if count == 0 and isinstance(count, int):
            continue
        with writer.loop(count) as i:
            write(writer.add(first, writer.multiply(i, at_once)), at_once)


def _part(writer: GraphWriter, matrix: Array, row: Length) -> Array:
    """Return a row of a matrix."""
    return replace(_row(matrix), data=writer.entry(matrix, [row, 0]))


def _rows_by(writer: GraphWriter, made: Array, matrix: Array, vector: Array) -> None:
    """Write the product of a matrix and a vector, some rows at once."""
    entries = Entries(writer, made)

    def write(first: Length, count: int) -> None:
        at = [writer.add(first, i) for i in range(count)]
        rows = [_part(writer, matrix, i) for i in at]
        for i, total in zip(at, _sums(writer, entries, rows, vector), strict=True):
            entries.write(total, made, [i])

    _blocks(writer, matrix.shape[0], write)


def _columns_by(writer: GraphWriter, made: Array, matrix: Array, vector: Array) -> None:
    """Write the product of a matrix and a vector, some columns at once."""
    entries = Entries(writer, made)
    fill(writer, made, 0)

    def write(first: Length, count: int) -> None:
        at = [writer.add(first, i) for i in range(count)]
        columns = [_part(writer, turned(matrix), i) for i in at]
        factors = [entries.read(vector, [i]) for i in at]
        with entries.loop(made.shape[0]) as j:
            terms = [
                (entries.read(column, [j]), x) for column, x in zip(columns, factors, strict=True)
            ]
            total = entries.read(made, [j])
            for one, x in terms:
                total = _added(writer, total, one, x)
            entries.write(total, made, [j])

    _blocks(writer, matrix.shape[1], write)


def _small(writer: GraphWriter, made: Array, left: Array, right: Array) -> None:
    """Write the product of two matrices of few entries."""
    given = [made.data, left.data, *left.strides, right.data, *right.strides]

    def write(given: Sequence[Any]) -> None:
        result, one, *by_one, other, by_other_row, by_other_column, n, k, m = given
        product = replace(
            made, data=result, shape=(n, m), strides=writer.row_major(made.dtype, (n, m))
        )
        _small_apart(
            writer,
            product,
            replace(left, data=one, shape=(n, k), strides=tuple(by_one)),
            replace(right, data=other, shape=(k, m), strides=(by_other_row, by_other_column)),
        )

    lengths = [*left.shape, right.shape[1]]
    written_apart(writer, "scanopt.small_product", [*given, *lengths], write)


def _small_apart(writer: GraphWriter, made: Array, left: Array, right: Array) -> None:
    with writer.loop(left.shape[0]) as i:
        row = _part(writer, made, i)
        entries = Entries(writer, row)
        fill(writer, row, 0)
        with writer.loop(left.shape[1]) as k:
            x = entries.read(left, [i, k])
            with entries.loop(right.shape[1]) as j:
                total = _added(writer, entries.read(row, [j]), x, entries.read(right, [k, j]))
                entries.write(total, row, [j])


def _by_blas(writer: GraphWriter, made: Array, left: Array, right: Array) -> None:
    """Write the product of two matrices by BLAS, to which results by rows are by columns."""
    (n, k), m = left.shape, right.shape[1]
    with operand(writer, left) as one, operand(writer, right) as other:
        call(
            *(writer, made.dtype, "gemm"),
            *((other.is_by_rows, "N", "T"), (one.is_by_rows, "N", "T"), m, n, k, 1.0),
            *(other.array.data, other.lead, one.array.data, one.lead, 0.0),
            *(made.data, writer.larger(m, 1)),
        )
