"""Numba's code for `Product`: loops, and BLAS where arrays are large.

Results are written into an array ``made``, which is contiguous and of their shape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.extending import overload, register_jitable

_LARGE = 1 << 16
"""Matrices of so many entries are multiplied by vectors by BLAS, which may use several threads."""
_SMALL = 512
"""Products of so many terms, at most, of two matrices are not computed by BLAS."""
# Sums may be added up in any order, as BLAS does.
_OPTIONS: dict[str, Any] = {
    "fastmath": {"reassoc", "contract"},
    "boundscheck": False,
    "error_model": "numpy",
}
_MISMATCH = "shapes not aligned in the product of a loop's step"


@register_jitable(**_OPTIONS)
def _rows_by(made: Any, matrix: Any, vector: Any) -> None:
    """Compute ``matrix @ vector``, four rows at a time."""
    n_rows, n_columns = matrix.shape
    n_fours = n_rows - n_rows % 4
    zero = matrix.dtype.type(0)
    for i in range(0, n_fours, 4):
        a, b, c, d = zero, zero, zero, zero
        for j in range(n_columns):
            x = vector[j]
            a += matrix[i, j] * x
            b += matrix[i + 1, j] * x
            c += matrix[i + 2, j] * x
            d += matrix[i + 3, j] * x
        made[i], made[i + 1], made[i + 2], made[i + 3] = a, b, c, d
    for i in range(n_fours, n_rows):
        a = zero
        for j in range(n_columns):
            a += matrix[i, j] * vector[j]
        made[i] = a


@register_jitable(**_OPTIONS)
def _by_rows(made: Any, vector: Any, matrix: Any) -> None:
    """Compute ``vector @ matrix``, four rows at a time."""
    n_rows, n_columns = matrix.shape
    for j in range(n_columns):
        made[j] = 0
    n_fours = n_rows - n_rows % 4
    for i in range(0, n_fours, 4):
        a, b, c, d = vector[i], vector[i + 1], vector[i + 2], vector[i + 3]
        for j in range(n_columns):
            made[j] += (
                matrix[i, j] * a
                + matrix[i + 1, j] * b
                + matrix[i + 2, j] * c
                + matrix[i + 3, j] * d
            )
    for i in range(n_fours, n_rows):
        a = vector[i]
        for j in range(n_columns):
            made[j] += matrix[i, j] * a


@register_jitable(**_OPTIONS)
def _small(made: Any, left: Any, right: Any) -> None:
    """Compute the product of two matrices."""
    for i in range(left.shape[0]):
        for j in range(right.shape[1]):
            made[i, j] = 0
        for k in range(left.shape[1]):
            x = left[i, k]
            for j in range(right.shape[1]):
                made[i, j] += x * right[k, j]


def matrix_by_vector(made: Any, matrix: Any, vector: Any) -> None:
    """Compute ``matrix @ vector`` into ``made``; compiled, by the code that the next chooses."""
    if matrix.shape[1] != vector.shape[0]:
        raise ValueError(_MISMATCH)
    np.dot(matrix, vector, made)


@overload(matrix_by_vector)
def _by_layout(made: Any, matrix: Any, vector: Any) -> Callable[..., Any]:  # noqa: ARG001
    def by_rows(made: Any, matrix: Any, vector: Any) -> Any:
        if matrix.shape[1] != vector.shape[0]:
            raise ValueError(_MISMATCH)
        if matrix.size >= _LARGE:
            np.dot(np.ascontiguousarray(matrix), np.ascontiguousarray(vector), made)
        else:
            _rows_by(made, matrix, np.ascontiguousarray(vector))

    def by_columns(made: Any, matrix: Any, vector: Any) -> Any:
        if matrix.shape[1] != vector.shape[0]:
            raise ValueError(_MISMATCH)
        if matrix.size >= _LARGE:
            np.dot(matrix, np.ascontiguousarray(vector), made)
        else:
            _by_rows(made, np.ascontiguousarray(vector), matrix.T)

    return by_columns if matrix.layout == "F" else by_rows


@register_jitable
def matrices(made: Any, left: Any, right: Any) -> None:
    """Compute the product of two matrices into ``made``."""
    if left.shape[1] != right.shape[0]:
        raise ValueError(_MISMATCH)
    if left.shape[0] * left.shape[1] * right.shape[1] <= _SMALL:
        _small(made, left, right)
    else:
        np.dot(np.ascontiguousarray(left), np.ascontiguousarray(right), made)
