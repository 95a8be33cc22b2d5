"""Factors of matrices, and systems of linear equations, by LAPACK.

All work is done in copies. That of a matrix by rows is the transpose to LAPACK, which is used where
that does not change the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from pytensor.graph.basic import Apply
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.decomposition.lu import LUFactor, PivotToPermutations
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.linalg.solvers.psd import CholeskySolve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.sort import ArgSortOp

from scanopt_cli.loop.codegen.fortran import (
    as_array,
    call,
    fill,
    has_failed,
    is_computed,
    operand,
    status,
    turned,
)
from scanopt_cli.loop.codegen.graphs import GraphWriter, write_node
from scanopt_cli.loop.codegen.substitution import is_small, substitute
from scanopt_cli.loop.codegen.values import Array, Length, Number, Other, Value

_NOT_SQUARE = "Last 2 dimensions of A must be square"
_MISMATCH = "Dimensions of A and B do not conform"


def _matrices(
    node: Apply, writer: GraphWriter, inputs: Sequence[Value], *outputs: Any
) -> list[Array] | None:
    """Return inputs as arrays, if they are of the dtype of the outputs, and LAPACK's."""
    dtypes = [v.type.dtype for v in (*node.inputs, *outputs)]
    if any(isinstance(value, Other) for value in inputs) or not is_computed(*dtypes):
        return None
    return [
        as_array(writer, value, variable.type.ndim)
        for value, variable in zip(inputs, node.inputs, strict=True)
    ]


def _is_empty(writer: GraphWriter, array: Array) -> Any:
    return writer.is_zero(writer.product(array.shape))


def _lead(writer: GraphWriter, length: Length) -> Length:
    """Return what LAPACK takes for the length of columns, which is not 0."""
    return writer.larger(length, 1)


def _by_columns(writer: GraphWriter, array: Array) -> tuple[Array, Array]:
    """Return a copy of an array, by columns, and the same as it is in memory."""
    if array.ndim == 1:
        copy = writer.copied(array)
        return copy, copy
    copy = writer.copied(turned(array))
    return turned(copy), copy


def _letters(*, is_lower: bool) -> tuple[str, str]:
    """Return which triangle LAPACK reads, of a matrix by columns, and of one by rows."""
    return ("L", "U") if is_lower else ("U", "L")


@write_node.register(Cholesky)
def _cholesky(
    op: Cholesky, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    given = _matrices(node, writer, inputs, *node.outputs)
    if given is None:
        return None
    (matrix,) = given
    n = matrix.shape[1]
    is_wrong = writer.both(writer.differs(*matrix.shape), writer.not_(_is_empty(writer, matrix)))
    writer.fail_if(is_wrong, np.linalg.LinAlgError, _NOT_SQUARE)
    made = writer.copied(matrix)

    def factor() -> None:
        info = status(writer)
        _, by_rows = _letters(is_lower=op.lower)
        call(writer, made.dtype, "potrf", by_rows, n, made.data, n, info)
        writer.choose(
            has_failed(writer, info),
            lambda: fill(writer, made, np.nan),
            lambda: _clear(writer, made, is_lower=op.lower),
        )

    writer.where(writer.not_(_is_empty(writer, matrix)), factor)
    return [made]


def _clear(writer: GraphWriter, matrix: Array, *, is_lower: bool) -> None:
    """Write 0 into the entries above the diagonal of a square matrix, or into those below."""
    n = matrix.shape[0]
    zero = writer.number(0, matrix.dtype)
    with writer.loop(n) as i:
        after = writer.add(i, 1)
        length, first = (writer.subtract(n, after), after) if is_lower else (i, 0)
        with writer.loop(length) as j:
            place = writer.entry(matrix, [i, writer.add(first, j)])
            writer.store(zero, place, matrix.dtype)


@write_node.register(SolveTriangular)
def _solve_triangular(
    op: SolveTriangular, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    given = _matrices(node, writer, inputs, *node.outputs)
    if given is None:
        return None
    matrix, right = given
    _check(writer, matrix, right)
    made = writer.copied(right)
    n = matrix.shape[1]
    columns = made.shape[1] if made.ndim == 2 else 1

    def solve() -> None:
        with operand(writer, matrix) as left:
            by_rows = left.is_by_rows
            of_columns, of_rows = _letters(is_lower=op.lower)
            # An array by rows is its transpose to BLAS: the equations of that, from the right.
            is_matrix = made.ndim == 2
            sides = ("R", ("N", "T"), columns, n) if is_matrix else ("L", ("T", "N"), n, columns)
            side, letters, *lengths = sides
            call(
                *(writer, made.dtype, "trsm", side, (by_rows, of_rows, of_columns)),
                *((by_rows, *letters), "U" if op.unit_diagonal else "N", *lengths),
                *(1.0, left.array.data, left.lead, made.data, lengths[0]),
            )

    def solve_regular() -> None:
        if op.unit_diagonal:
            solve()
            return
        is_singular = _has_zero(writer, matrix)
        writer.choose(is_singular, lambda: fill(writer, made, np.nan), solve)

    writer.where(writer.not_(_is_empty(writer, made)), solve_regular)
    return [made]


def _check(writer: GraphWriter, matrix: Array, right: Array, *, unless: Any = None) -> None:
    """Raise an error if a system of equations has lengths that do not fit."""
    for wrong, message in (
        (writer.differs(matrix.shape[0], right.shape[0]), _MISMATCH),
        (writer.differs(*matrix.shape), _NOT_SQUARE),
    ):
        is_wrong = wrong if unless is None else writer.both(wrong, writer.not_(unless))
        writer.fail_if(is_wrong, np.linalg.LinAlgError, message)


def _has_zero(writer: GraphWriter, matrix: Array) -> Any:
    """Return whether an entry on the diagonal of a matrix is 0."""
    builder = writer.builder
    no = Number(ir.IntType(1)(0), np.dtype(np.bool_))
    place = writer.variable(no)
    with writer.loop(matrix.shape[0]) as i:
        entry = writer.load(writer.entry(matrix, [i, i]), matrix.dtype)
        is_zero = builder.fcmp_ordered("==", entry.code, writer.number(0, matrix.dtype).code)
        builder.store(builder.or_(builder.load(place), is_zero), place)
    return builder.load(place)


@dataclass(frozen=True, eq=False, slots=True)
class _System:
    """Equations that LAPACK solves in ``made``, a copy by columns of their right sides.

    ``result`` is the same as PyTensor has it; there are ``n`` equations, for each of ``columns``.
    """

    matrix: Array
    is_empty: Any
    result: Array
    made: Array
    n: Length
    columns: Length

    @classmethod
    def of(cls, node: Apply, writer: GraphWriter, inputs: Sequence[Value]) -> _System | None:
        """Return the equations of a node, whose lengths are checked; ``None`` without a rule."""
        given = _matrices(node, writer, inputs, *node.outputs)
        if given is None:
            return None
        matrix, right = given
        is_empty = _is_empty(writer, right)
        _check(writer, matrix, right, unless=is_empty)
        columns = right.shape[1] if right.ndim == 2 else 1
        return cls(matrix, is_empty, *_by_columns(writer, right), right.shape[0], columns)

    def solved(self, writer: GraphWriter, solve: Callable[[], None]) -> Sequence[Value]:
        """Write what solves the equations, if there are some; return the result."""
        writer.where(writer.not_(self.is_empty), solve)
        return [self.result]


@write_node.register(Solve)
def _solve(
    op: Solve, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    if op.assume_a not in ("gen", "pos"):
        return None
    system = _System.of(node, writer, inputs)
    if system is None:
        return None
    made, n, columns = system.made, system.n, system.columns

    def solve_positive() -> None:
        info = status(writer)
        copy = writer.copied(system.matrix)
        _, by_rows = _letters(is_lower=op.lower)
        call(
            *(writer, made.dtype, "posv", by_rows, n, columns),
            *(copy.data, n, made.data, n, info),
        )
        writer.where(has_failed(writer, info), lambda: fill(writer, made, np.nan))
        writer.give_up(copy.memory)

    def solve_general() -> None:
        info, other = status(writer), status(writer)
        factors, copy = _by_columns(writer, system.matrix)
        pivots = writer.allocate(np.int32, (n,))
        call(writer, made.dtype, "getrf", n, n, copy.data, n, pivots.data, info)

        def substitute_by_lapack() -> None:
            call(
                *(writer, made.dtype, "getrs", "N", n, columns, copy.data, n, pivots.data),
                *(made.data, n, other),
            )

        writer.choose(
            is_small(writer, n, columns),
            lambda: substitute(writer, factors, pivots, system.result, n, columns),
            substitute_by_lapack,
        )
        failed = writer.either(has_failed(writer, info), has_failed(writer, other))
        writer.where(failed, lambda: fill(writer, made, np.nan))
        for memory in (copy.memory, pivots.memory):
            writer.give_up(memory)

    solve = solve_general if op.assume_a == "gen" else solve_positive
    return system.solved(writer, solve)


@write_node.register(CholeskySolve)
def _cholesky_solve(
    op: CholeskySolve, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    system = _System.of(node, writer, inputs)
    if system is None:
        return None
    made, n, columns = system.made, system.n, system.columns

    def solve() -> None:
        info = status(writer)
        of_columns, of_rows = _letters(is_lower=op.lower)
        with operand(writer, system.matrix) as left:
            call(
                *(writer, made.dtype, "potrs", (left.is_by_rows, of_rows, of_columns), n, columns),
                *(left.array.data, left.lead, made.data, n, info),
            )
        writer.where(has_failed(writer, info), lambda: fill(writer, made, np.nan))

    return system.solved(writer, solve)


@write_node.register(LUFactor)
def _lu_factor(
    op: LUFactor, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    given = _matrices(node, writer, inputs, node.outputs[0])
    if given is None:
        return None
    (matrix,) = given
    n, m = matrix.shape
    result, made = _by_columns(writer, matrix)
    is_empty = _is_empty(writer, matrix)
    pivots = writer.allocate(np.int32, (writer.chosen(is_empty, n, m),))
    fill(writer, pivots, 0)

    def factor() -> None:
        info = status(writer)
        call(writer, made.dtype, "getrf", n, m, made.data, n, pivots.data, info)
        with writer.loop(m) as i:  # LAPACK counts from 1
            place = writer.entry(pivots, [i])
            code = writer.builder.sub(writer.builder.load(place), ir.IntType(32)(1))
            writer.builder.store(code, place)
        writer.where(has_failed(writer, info), lambda: fill(writer, made, np.nan))

    writer.where(writer.not_(is_empty), factor)
    return [result, pivots]


@write_node.register(PivotToPermutations)
def _permutation(
    op: PivotToPermutations, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    (value,) = inputs
    (variable,) = node.inputs
    if isinstance(value, Other) or np.dtype(variable.type.dtype).kind != "i":
        return None
    pivots = as_array(writer, value, 1)
    (n,) = pivots.shape
    builder = writer.builder
    made = writer.allocate(np.int64, (n,))
    with writer.loop(n) as i:
        builder.store(writer.code(i), writer.entry(made, [i]))
    with writer.loop(n) as i:
        at = writer.length(writer.load(writer.entry(pivots, [i]), pivots.dtype))
        at = writer.chosen(writer.is_less(at, 0), writer.add(at, n), at)
        places = [writer.entry(made, [row]) for row in (i, at)]
        one, other = (builder.load(place) for place in places)
        builder.store(other, places[0])
        builder.store(one, places[1])
    if op.inverse:
        return [made]
    found = _inverse(writer, made)
    writer.give_up(made.memory)
    return [found]


def _inverse(writer: GraphWriter, permutation: Array) -> Array:
    """Return the inverse of a permutation."""
    made = writer.allocate(np.int64, permutation.shape)
    with writer.loop(permutation.shape[0]) as i:
        at = writer.builder.load(writer.entry(permutation, [i]))
        writer.builder.store(writer.code(i), writer.entry(made, [at]))
    return made


@write_node.register(ArgSortOp)
def _order(
    op: ArgSortOp, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    """Write the order of a permutation, which is its inverse; PyTensor's gradients ask for it."""
    (variable, *_) = node.inputs
    owner = variable.owner
    if owner is None or not isinstance(owner.op, PivotToPermutations):
        return None
    value = inputs[0]
    return [_inverse(writer, value)] if isinstance(value, Array) else [writer.number(0, np.int64)]
