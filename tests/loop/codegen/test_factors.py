"""Factors of matrices, and systems of equations, whose code is written in LLVM."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
import scipy.linalg
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.decomposition.lu import LUFactor, PivotToPermutations
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.linalg.solvers.psd import CholeskySolve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular

from support.direct_code import LAYOUTS, check, inside, outside, own

pytestmark = pytest.mark.deep

LENGTHS = (0, 1, 2, 3, 5, 17, 70)
SIDES: tuple[int | None, ...] = (None, 1, 4)
KINDS = [*(("float64", columns) for columns in SIDES), ("float32", 4)]


def matrix(n: int, dtype: str = "float64", *, is_definite: bool = True) -> np.ndarray:
    rng = np.random.default_rng(n)
    made = rng.normal(size=(n, n))
    if is_definite:
        made = made @ made.T + n * np.eye(n)
    found: np.ndarray = made.astype(dtype)
    return found


def right(n: int, columns: int | None, dtype: str = "float64") -> np.ndarray:
    rng = np.random.default_rng(n + 1)
    shape = (n,) if columns is None else (n, columns)
    found: np.ndarray = rng.normal(size=shape).astype(dtype)
    return found


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("lower", [True, False])
def test_cholesky(dtype: str, *, lower: bool) -> None:
    op = Cholesky(lower=lower)
    indefinite = matrix(5, dtype) - 9 * np.eye(5, dtype=dtype)
    cases = [*([matrix(n, dtype)] for n in LENGTHS), [indefinite], [np.zeros((0, 3), dtype)]]
    check(op, [(None, None)], cases)
    for n in (1, 3):
        check(op, [(n, n)], [[matrix(n, dtype)], [-matrix(n, dtype)]])


@pytest.mark.parametrize(("dtype", "columns"), KINDS)
@pytest.mark.parametrize("lower", [True, False])
def test_triangular_systems(dtype: str, columns: int | None, *, lower: bool) -> None:
    op = SolveTriangular(lower=lower, b_ndim=1 if columns is None else 2)
    cases = [[matrix(n, dtype), right(n, columns, dtype)] for n in LENGTHS]
    singular = matrix(5, dtype)
    singular[3, 3] = 0
    cases.append([singular, right(5, columns, dtype)])
    shape = (None,) if columns is None else (None, None if columns > 1 else 1)
    check(op, [(None, None), shape], cases)
    check(op, [v.shape for v in cases[3]], [cases[3]])


@pytest.mark.parametrize("b_ndim", [1, 2])
def test_systems_of_transposes(b_ndim: int) -> None:
    lower, upper = (SolveTriangular(lower=is_lower, b_ndim=b_ndim) for is_lower in (True, False))

    def build(one: Any, other: Any) -> Any:
        factor = Cholesky()(one + one)
        turned = other.T if b_ndim == 2 else other
        return [
            upper(factor.T, other),
            lower((one + one).T.T, turned.T),
            upper((one + one).T, other),
        ]

    cases = [[matrix(n), right(n, 4 if b_ndim == 2 else None)] for n in (1, 2, 5)]
    check(build, [(None, None), (None,) * b_ndim], cases)


@pytest.mark.parametrize("lower", [True, False])
def test_unit_triangular_systems(*, lower: bool) -> None:
    op = SolveTriangular(lower=lower, b_ndim=2, unit_diagonal=True)
    check(op, [(None, None)] * 2, [[matrix(n) / (n + 1), right(n, 4)] for n in (0, 1, 5, 17)])


@pytest.mark.parametrize(("dtype", "columns"), KINDS)
@pytest.mark.parametrize("kind", ["gen", "pos", "pos, lower"])
def test_systems(kind: str, dtype: str, columns: int | None) -> None:
    b_ndim = 1 if columns is None else 2
    assume, *lower = kind.split(", ")
    op = Solve(assume_a=assume, lower=bool(lower), b_ndim=b_ndim)
    is_definite = assume == "pos"
    cases = [
        [matrix(n, dtype, is_definite=is_definite), right(n, columns, dtype)] for n in LENGTHS[:-1]
    ]
    cases.append([-np.ones((4, 4), dtype), right(4, columns, dtype)])
    shape = (None,) if columns is None else (None, None if columns > 1 else 1)
    check(op, [(None, None), shape], cases)
    check(op, [v.shape for v in cases[3]], [cases[3]])


@pytest.mark.parametrize("columns", SIDES)
@pytest.mark.parametrize("lower", [True, False])
def test_systems_of_factors(columns: int | None, *, lower: bool) -> None:
    op = CholeskySolve(lower=lower, b_ndim=1 if columns is None else 2)
    cases = [
        [np.ascontiguousarray(scipy.linalg.cholesky(matrix(n), lower=lower)), right(n, columns)]
        for n in LENGTHS[1:]
    ]
    shape = (None,) if columns is None else (None, None)
    check(op, [(None, None), shape], [*cases, [matrix(0), right(0, columns)]])
    check(op, [v.shape for v in cases[2]], [cases[2]])


@pytest.mark.parametrize("op", [Solve(b_ndim=1), Solve(b_ndim=1, assume_a="pos")])
def test_systems_of_no_equations_have_any_matrix(op: Any) -> None:
    inputs = pt.dmatrix(), pt.dvector()
    for function in (outside(inputs, op), own(inputs, op)):
        (found,) = function(np.ones((2, 3)), np.ones(0))
        assert found.shape == (0,)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_factors_with_pivots(dtype: str) -> None:
    def build(one: Any) -> Any:
        factors, pivots = LUFactor()(one)
        orders = [PivotToPermutations(inverse=i)(pivots) for i in (True, False)]
        return [factors, pivots, *orders, *map(pt.argsort, orders)]

    cases = [[matrix(n, dtype, is_definite=False)] for n in LENGTHS]
    cases.append([np.zeros((3, 3), dtype)])
    check(build, [(None, None)], cases)
    for n in (1, 3):
        check(build, [(n, n)], [[matrix(n, dtype, is_definite=False)]])


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        (Cholesky(), [(2, 3)]),
        (SolveTriangular(b_ndim=1), [(2, 3), (2,)]),
        (SolveTriangular(b_ndim=2), [(3, 3), (2, 2)]),
        (SolveTriangular(b_ndim=1), [(3, 3), (0,)]),
        (Solve(b_ndim=1), [(2, 3), (2,)]),
        (Solve(b_ndim=2), [(3, 3), (2, 2)]),
        (Solve(b_ndim=1, assume_a="pos"), [(3, 3), (2,)]),
        (CholeskySolve(b_ndim=1), [(3, 3), (2,)]),
    ],
)
def test_lengths_that_do_not_fit(op: Any, shapes: Any) -> None:
    values = [np.ones(shape) for shape in shapes]
    inputs = [pt.tensor(dtype="float64", shape=(None,) * v.ndim) for v in values]
    errors = []
    for function, given in (
        (own(inputs, op), values),
        (outside(inputs, op), values),
        (inside(inputs, op), [np.stack([v] * 3) for v in values]),
    ):
        with pytest.raises(np.linalg.LinAlgError) as caught:
            function(*given)
        errors.append(str(caught.value).split("\n")[0])
    assert len(set(errors)) == 1


def test_all_layouts_are_tried() -> None:
    assert len(LAYOUTS) == 5  # which no number of arrays here divides
