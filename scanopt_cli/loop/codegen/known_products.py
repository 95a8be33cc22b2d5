"""Products of small matrices of known lengths, written without loops.

Each row of a product is a sum of the rows of the right matrix, each of them times a number of the
left one: vectors, of which nothing is moved from place to place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from llvmlite import ir

from scanopt_cli.loop.codegen.fortran import turned
from scanopt_cli.loop.codegen.graphs import GraphWriter
from scanopt_cli.loop.codegen.values import Array, Number

# Sums may be added up in any order, as BLAS does.
_FLAGS = ("reassoc", "contract")
_WIDEST = 8
_MOST_SUMS = 256
"""So many products of a number and a vector, at most, are written."""
_MOST_NUMBERS = 64
"""The same of two numbers."""
_INDEX = ir.IntType(32)


def known_product(writer: GraphWriter, left: Array, right: Array) -> Number | Array | None:
    """Return the product of two matrices, if their lengths are known and it is not too large.

    The entries of the product follow each other.
    """
    (n, k), m = left.shape, right.shape[1]
    if not (isinstance(n, int) and isinstance(k, int) and isinstance(m, int)):
        return None
    if m == 1 and left.strides[0] == left.dtype.itemsize:  # the columns of the matrix are vectors
        left, right, n, m = turned(right), turned(left), m, n
    parts = list(_parts(m))
    if n * k * len(parts) > (_MOST_SUMS if m > 1 else _MOST_NUMBERS):
        return None
    if n == m == 1:
        return _of_vectors(writer, left, right, k)
    made = writer.allocate(left.dtype, (n, m))
    rows = [[_read(writer, right, j, *part) for part in parts] for j in range(k)]
    for i in range(n):
        factors = [_number(writer, left, i, j) for j in range(k)]
        for p, (first, width) in enumerate(parts):
            terms = [
                (_broadcast(writer, factor, width), row[p])
                for factor, row in zip(factors, rows, strict=True)
            ]
            vector = _vector_type(writer, made, width)
            total = _sum(writer, terms, ir.Constant(vector, None))
            place = writer.builder.bitcast(writer.entry(made, [i, first]), vector.as_pointer())
            writer.builder.store(total, place, align=made.dtype.itemsize)
    return made


def _of_vectors(writer: GraphWriter, left: Array, right: Array, n: int) -> Number:
    """Return the product of a matrix of one row and one of one column."""
    terms = [(_number(writer, left, 0, j), _number(writer, right, j, 0)) for j in range(n)]
    zero = writer.number(0, left.dtype).code
    return Number(_sum(writer, terms, zero), left.dtype)


def _parts(length: int) -> Iterator[tuple[int, int]]:
    """Yield parts of an axis that are computed in a vector: where they begin, and their lengths."""
    for first in range(0, length, _WIDEST):
        yield first, min(_WIDEST, length - first)


def _vector_type(writer: GraphWriter, array: Array, width: int) -> Any:
    kind = writer.data_type(array.dtype)
    return kind if width == 1 else ir.VectorType(kind, width)


def _number(writer: GraphWriter, array: Array, i: int, j: int) -> Any:
    return writer.load(writer.entry(array, [i, j]), array.dtype).code


def _read(writer: GraphWriter, array: Array, row: int, first: int, width: int) -> Any:
    """Return entries of a row as a vector."""
    if width == 1:
        return _number(writer, array, row, first)
    kind = _vector_type(writer, array, width)
    if array.strides[1] == array.dtype.itemsize:
        place = writer.builder.bitcast(writer.entry(array, [row, first]), kind.as_pointer())
        return writer.builder.load(place, align=array.dtype.itemsize)
    found = ir.Constant(kind, ir.Undefined)
    for i in range(width):
        entry = _number(writer, array, row, first + i)
        found = writer.builder.insert_element(found, entry, _INDEX(i))
    return found


def _broadcast(writer: GraphWriter, number: Any, width: int) -> Any:
    """Return a vector whose entries are a number."""
    if width == 1:
        return number
    nothing = ir.Constant(ir.VectorType(number.type, width), ir.Undefined)
    first = writer.builder.insert_element(nothing, number, _INDEX(0))
    return writer.builder.shuffle_vector(
        first, nothing, ir.Constant(ir.VectorType(_INDEX, width), [0] * width)
    )


def _sum(writer: GraphWriter, terms: Sequence[tuple[Any, Any]], nothing: Any) -> Any:
    """Return the sum of products of pairs."""
    total = None
    for one, other in terms:
        total = with_product(writer.builder, total, one, other)
    return nothing if total is None else total


def with_product(builder: Any, total: Any, one: Any, other: Any) -> Any:
    """Return a total, if there is one yet, and the product of two numbers or vectors."""
    product = builder.fmul(one, other, flags=_FLAGS)
    return product if total is None else builder.fadd(total, product, flags=_FLAGS)
