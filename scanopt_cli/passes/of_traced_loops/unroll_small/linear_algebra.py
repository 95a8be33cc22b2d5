"""Linear algebra of small matrices, entry by entry.

Where LAPACK says that a matrix is singular, or not positive definite, PyTensor's solvers return
NaN, and so do these.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce, singledispatch

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.inverse import MatrixInverse
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.linalg.solvers.psd import CholeskySolve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.linalg.summary import Det, SLogDet
from pytensor.tensor.math import Dot

from scanopt_cli.passes.of_traced_loops.unroll_small.array_entries import (
    Entries,
    Symbolic,
    entrywise,
    filled,
)

type Found = Sequence[Entries]
"""The entries of the outputs of a node. Rules raise a ValueError if they know none."""

_MOST_PRODUCTS = 64
"""How many entries a product of matrices may have, whatever the size of small arrays."""


@singledispatch
def of_matrices(op: Op, *_parts: Entries) -> Found:
    """Return the entries of what an Op makes of matrices.

    Raises
    ------
    ValueError
        If there is no rule for it, or none for such matrices.
    """
    raise ValueError(f"there is no rule for {op}")


@of_matrices.register
def _dot(_op: Dot, a: Entries, b: Entries) -> Found:
    check_product(a, b)
    rows, columns = a.reshape(-1, a.shape[-1]), b.reshape(b.shape[0], -1)
    made = np.empty((len(rows), columns.shape[1]), dtype=object)
    for i, j in np.ndindex(*made.shape):
        made[i, j] = _total([x * y for x, y in zip(rows[i], columns[:, j], strict=True)])
    return [made.reshape(*a.shape[:-1], *b.shape[1:])]


def check_product(a: Entries, b: Entries) -> None:
    """Check that a product of two vectors or matrices is defined, and small.

    Raises
    ------
    ValueError
        If it is not. Of an outer product, more would be made than the factors have.
    """
    length = a.shape[-1]
    if length != b.shape[0] or a.size * b.size > _MOST_PRODUCTS * length**2:
        raise ValueError("a product is too large, or undefined")


@of_matrices.register
def _cholesky(op: Cholesky, a: Entries) -> Found:
    return [_cholesky_factor(_square(a), lower=op.lower)]


@of_matrices.register
def _solve_triangular(op: SolveTriangular, a: Entries, b: Entries) -> Found:
    _check_system(a, b)
    found = _substituted(a, b, lower=op.lower, unit=op.unit_diagonal)
    return [found if op.unit_diagonal else _where(_is_regular(a), found)]


@of_matrices.register
def _cholesky_solve(op: CholeskySolve, factor: Entries, b: Entries) -> Found:
    _check_system(factor, b)
    return [_solved_by(factor, b, lower=op.lower)]


@of_matrices.register
def _solve(op: Solve, a: Entries, b: Entries) -> Found:
    _check_system(a, b)
    match op.assume_a:
        case "gen":
            return [_solved(a, b)]
        case "sym" | "her":
            lower = np.tril(np.ones(a.shape, dtype=bool)) == op.lower
            return [_solved(np.where(lower | np.eye(len(a), dtype=bool), a, a.T), b)]
        case "pos":
            return [_solved_by(_cholesky_factor(a, lower=op.lower), b, lower=op.lower)]
    raise ValueError(f"there is no rule for {op}")


@of_matrices.register
def _inverse(_op: MatrixInverse, a: Entries) -> Found:
    square = _square(a)
    others = [entry for (i, j), entry in np.ndenumerate(square) if i != j]
    if others and all(map(_is_zero, others)):
        # PyTensor makes reciprocals of a diagonal matrix, where a zero is no error.
        made = a.copy()
        for i, entry in enumerate(np.diagonal(a)):
            made[i, i] = 1 / entry
        return [made]
    dtype = a.flat[0].type.dtype
    identity = entrywise(lambda one: pt.constant(one, dtype=dtype), np.eye(len(a)).astype(object))
    upper, right, _ = _eliminated(a, identity)
    # As NumPy does. Every entry is computed from the last pivot.
    check = CheckAndRaise(np.linalg.LinAlgError, "Singular matrix")
    upper[-1, -1] = check(upper[-1, -1], _is_regular(upper))
    return [_substituted(upper, right, lower=False)]


@of_matrices.register
def _det(_op: Det, a: Entries) -> Found:
    sign, pivots = _pivots(a)
    return [filled((), pt.mul(sign, *pivots))]


@of_matrices.register
def _slogdet(_op: SLogDet, a: Entries) -> Found:
    sign, pivots = _pivots(a)
    logarithm = _total([pt.log(pt.abs(pivot)) for pivot in pivots])
    return [
        filled((), pt.mul(sign, *(pt.sign(pivot) for pivot in pivots))),
        filled((), logarithm),
    ]


def _pivots(a: Entries) -> tuple[Symbolic, Entries]:
    """Return the sign of the permutation of the rows of a matrix, and its pivots."""
    upper, _, sign = _eliminated(_square(a), filled((len(a), 0), None))
    return sign, np.diagonal(upper)


def _solved(a: Entries, b: Entries) -> Entries:
    upper, right, _ = _eliminated(a, b.reshape(len(b), -1))
    found = _substituted(upper, right, lower=False)
    return _where(_is_regular(upper), found).reshape(b.shape)


def _cholesky_factor(a: Entries, *, lower: bool) -> Entries:
    """Return a Cholesky factor; of a symmetric matrix, only that triangle is read."""
    given = a if lower else a.T
    made = filled(a.shape, pt.constant(0.0, dtype=a.flat[0].type.dtype))
    pivots = []
    for j in range(len(a)):
        pivots.append(_minus(given[j, j], [made[j, k] ** 2 for k in range(j)]))
        made[j, j] = pt.sqrt(pivots[j])
        for i in range(j + 1, len(a)):
            terms = [made[i, k] * made[j, k] for k in range(j)]
            made[i, j] = _minus(given[i, j], terms) / made[j, j]
    made = _where(_all([pt.gt(pivot, 0) for pivot in pivots]), made)
    return made if lower else made.T


def _solved_by(factor: Entries, b: Entries, *, lower: bool) -> Entries:
    """Solve by a Cholesky factor, which is the lower or the upper one."""
    below = factor if lower else factor.T
    return _substituted(below.T, _substituted(below, b, lower=True), lower=False)


def _eliminated(a: Entries, right: Entries) -> tuple[Entries, Entries, Symbolic]:
    """Make a matrix upper triangular, and apply the same steps to a right-hand side.

    Gaussian elimination with partial pivoting: Golub and Van Loan, Matrix Computations, 3.4. The
    third result is the sign of the permutation of the rows.
    """
    n = len(a)
    zero = pt.constant(0.0, dtype=a.flat[0].type.dtype)
    rows = np.concatenate([a, right], axis=1)
    sign: Symbolic = pt.constant(1.0, dtype=zero.type.dtype)
    for k in range(n):
        for i in range(k + 1, n):
            is_larger = pt.gt(pt.abs(rows[i, k]), pt.abs(rows[k, k]))
            for j in range(k, rows.shape[1]):
                upper, lower = rows[k, j], rows[i, j]
                rows[k, j] = pt.switch(is_larger, lower, upper)
                rows[i, j] = pt.switch(is_larger, upper, lower)
            sign = pt.switch(is_larger, -sign, sign)
        for i in range(k + 1, n):
            # A column that is zero stays: the matrix is singular.
            factor = pt.switch(pt.eq(rows[k, k], 0), zero, rows[i, k] / rows[k, k])
            rows[i, k] = zero
            for j in range(k + 1, rows.shape[1]):
                rows[i, j] = rows[i, j] - factor * rows[k, j]
    return rows[:, :n], rows[:, n:], sign


def _substituted(a: Entries, b: Entries, *, lower: bool, unit: bool = False) -> Entries:
    """Solve a triangular system."""
    n = len(a)
    columns = b.reshape(n, -1)
    found = np.empty(columns.shape, dtype=object)
    for i in range(n) if lower else reversed(range(n)):
        known = range(i) if lower else range(i + 1, n)
        for j in range(columns.shape[1]):
            value = _minus(columns[i, j], [a[i, k] * found[k, j] for k in known])
            found[i, j] = value if unit else value / a[i, i]
    return found.reshape(b.shape)


def _is_zero(entry: Symbolic) -> bool:
    return isinstance(entry, Constant) and bool(entry.data == 0)


def _total(terms: Sequence[Symbolic]) -> Symbolic:
    return terms[0] if len(terms) == 1 else pt.add(*terms)


def _minus(value: Symbolic, terms: Sequence[Symbolic]) -> Symbolic:
    return value - _total(terms) if terms else value


def _all(conditions: Sequence[Symbolic]) -> Symbolic:
    return reduce(pt.and_, conditions)


def _is_regular(triangular: Entries) -> Symbolic:
    """Return the condition that a triangular matrix has an inverse."""
    return _all([pt.neq(pivot, 0) for pivot in np.diagonal(triangular)])


def _where(condition: Symbolic, entries: Entries) -> Entries:
    """Return ``entries``, or NaN where the condition does not hold."""
    return entrywise(lambda v: pt.switch(condition, v, np.array(np.nan, v.type.dtype)), entries)


def _square(a: Entries) -> Entries:
    """Return a matrix, if it is one of real numbers, and square."""
    if a.ndim != 2 or a.shape[0] != a.shape[1] or not _is_real(a):
        raise ValueError("not a square matrix of real numbers")
    return a


def _check_system(a: Entries, b: Entries) -> None:
    if not _is_real(b) or len(_square(a)) != len(b):
        raise ValueError("not a system of equations of real numbers")


def _is_real(entries: Entries) -> bool:
    return entries.flat[0].type.dtype in ("float32", "float64")
