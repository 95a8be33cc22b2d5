"""Diagonals whose code is written in LLVM."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.tensor.basic import ExtractDiag

from support.direct_code import check, compare, outside

pytestmark = pytest.mark.deep

SHAPES = ((0, 0), (0, 2), (1, 1), (2, 2), (3, 5), (5, 3), (17, 17))
OFFSETS = (0, 1, -1, 2, -4)
DTYPES = ("float64", "float32", "int64", "bool")


def matrices(dtype: str) -> list[list[np.ndarray]]:
    rng = np.random.default_rng(0)
    return [[rng.integers(0, 2, size=shape).astype(dtype)] for shape in SHAPES]


@pytest.mark.parametrize("offset", OFFSETS)
def test_diagonals(offset: int) -> None:
    def build(one: Any) -> Any:
        return [ExtractDiag(offset=offset, view=view)(one) for view in (False, True)]

    def expected(one: np.ndarray) -> Any:
        return [one.diagonal(offset)] * 2

    for dtype in ("float64", "int64"):
        check(build, [(None, None)], matrices(dtype), expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_diagonals_of_known_lengths(shape: tuple[int, int]) -> None:
    values = [np.random.default_rng(0).normal(size=shape)]
    for offset in (0, 1, -2):
        check(
            lambda matrix, offset=offset: pt.diagonal(matrix, offset),
            [shape],
            [values],
            lambda matrix, offset=offset: matrix.diagonal(offset),
        )


def test_diagonals_of_other_axes() -> None:
    values = [np.random.default_rng(0).normal(size=(3, 4, 5))]
    for axes in ((0, 2), (2, 1)):
        check(
            lambda array, axes=axes: pt.diagonal(array, 1, *axes),
            [(None,) * 3],
            [values],
            lambda array, axes=axes: array.diagonal(1, *axes),
        )


@pytest.mark.parametrize("offset", OFFSETS)
def test_matrices_of_diagonals(offset: int) -> None:
    cases = [[np.random.default_rng(0).normal(size=n)] for n in (0, 1, 2, 5, 17)]
    check(lambda v: pt.diag(v, offset), [(None,)], cases, lambda v: np.diag(v, offset))
    for values in cases[:3]:
        check(lambda v: pt.diag(v, offset), [values[0].shape], [values])


@pytest.mark.parametrize("dtype", DTYPES)
def test_unit_matrices(dtype: str) -> None:
    n, m, k = pt.lscalars("n", "m", "k")
    f = outside([n, m, k], lambda n, m, k: pt.eye(n, m, k, dtype=dtype))
    for lengths in ((0, 0, 0), (1, 1, 0), (2, 3, 0), (3, 2, 1), (3, 3, -2), (5, 17, 30)):
        compare(f(*map(np.asarray, lengths)), [np.eye(*lengths, dtype=dtype)])
    for lengths in ((1, 1, 0), (2, 3, -1)):
        f = outside([n], lambda n, lengths=lengths: pt.eye(*lengths, dtype=dtype) * n.astype(dtype))
        compare(f(np.asarray(1)), [np.eye(*lengths, dtype=dtype)])
    f = outside([n, m, k], lambda n, m, k: pt.eye(n, m, k, dtype=dtype))
    with pytest.raises(ValueError, match="negative dimensions"):
        f(*map(np.asarray, (3, -1, 0)))
