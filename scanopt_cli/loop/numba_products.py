"""Numba's code for `Product`: loops, and BLAS where arrays are large.

Importing this module registers it with PyTensor's Numba backend.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.extending import overload
from pytensor.link.numba.dispatch.basic import (
    numba_njit,
    register_funcify_default_op_cache_key,
)

from scanopt_cli.loop.products import Product

_VERSION = 2
"""Part of the key under which Numba's code is cached; raise it when the code changes."""
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


@numba_njit(**_OPTIONS)
def _rows_by(matrix: Any, vector: Any) -> Any:
    """Return ``matrix @ vector``, four rows at a time."""
    n_rows, n_columns = matrix.shape
    made = np.empty(n_rows, matrix.dtype)
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
    return made


@numba_njit(**_OPTIONS)
def _by_rows(vector: Any, matrix: Any) -> Any:
    """Return ``vector @ matrix``, four rows at a time."""
    n_rows, n_columns = matrix.shape
    made = np.zeros(n_columns, matrix.dtype)
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
    return made


@numba_njit(**_OPTIONS)
def _small(left: Any, right: Any) -> Any:
    """Return the product of two matrices."""
    made = np.zeros((left.shape[0], right.shape[1]), left.dtype)
    for i in range(left.shape[0]):
        for k in range(left.shape[1]):
            x = left[i, k]
            for j in range(right.shape[1]):
                made[i, j] += x * right[k, j]
    return made


def _matrix_by_vector(matrix: Any, vector: Any) -> Any:
    """Stand for the code that the next function chooses."""


@overload(_matrix_by_vector, inline="always")
def _by_layout(matrix: Any, vector: Any) -> Callable[..., Any]:  # noqa: ARG001
    def by_rows(matrix: Any, vector: Any) -> Any:
        if matrix.shape[1] != vector.shape[0]:
            raise ValueError(_MISMATCH)
        if matrix.size >= _LARGE:
            return np.dot(np.ascontiguousarray(matrix), np.ascontiguousarray(vector))
        return _rows_by(matrix, np.ascontiguousarray(vector))

    def by_columns(matrix: Any, vector: Any) -> Any:
        if matrix.shape[1] != vector.shape[0]:
            raise ValueError(_MISMATCH)
        if matrix.size >= _LARGE:
            return np.dot(matrix, np.ascontiguousarray(vector))
        return _by_rows(np.ascontiguousarray(vector), matrix.T)

    return by_columns if matrix.layout == "F" else by_rows


def _product(left: Any, right: Any) -> Any:
    """Stand for the code that the next function chooses."""


@overload(_product, inline="always")
def _by_dimensions(left: Any, right: Any) -> Callable[..., Any]:
    def matrix_by_vector(left: Any, right: Any) -> Any:
        return _matrix_by_vector(left, right)

    def vector_by_matrix(left: Any, right: Any) -> Any:
        return _matrix_by_vector(right.T, left)

    def matrices(left: Any, right: Any) -> Any:
        if left.shape[1] != right.shape[0]:
            raise ValueError(_MISMATCH)
        if left.shape[0] * left.shape[1] * right.shape[1] <= _SMALL:
            return _small(left, right)
        return np.dot(np.ascontiguousarray(left), np.ascontiguousarray(right))

    if right.ndim == 1:
        return matrix_by_vector
    return vector_by_matrix if left.ndim == 1 else matrices


@register_funcify_default_op_cache_key(Product)  # type: ignore[untyped-decorator]
def _product_op(op: Product, **_: Any) -> tuple[Callable[..., Any], int]:  # noqa: ARG001
    @numba_njit
    def product(left: Any, right: Any) -> Any:
        return _product(left, right)

    return product, _VERSION
