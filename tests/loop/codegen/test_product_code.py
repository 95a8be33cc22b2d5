"""Products whose code is written in LLVM."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest

from scanopt_cli.loop.products import Product
from support.direct_code import check, inside, outside

pytestmark = pytest.mark.deep

LENGTHS = (0, 1, 2, 3, 5, 17, 70)
FORMS = {
    "matrix by vector": ("nk", "k"),
    "vector by matrix": ("k", "km"),
    "matrices": ("nk", "km"),
}


def arrays(form: str, dtype: str, n: int, k: int, m: int) -> list[np.ndarray]:
    rng = np.random.default_rng(n + 100 * k + 10000 * m)
    lengths = {"n": n, "k": k, "m": m}
    return [rng.normal(size=[lengths[axis] for axis in axes]).astype(dtype) for axes in FORMS[form]]


def multiplied(left: Any, right: Any) -> Any:
    """Multiply by `Product`; by PyTensor's own product where there is no loop."""
    return Product()(left, right)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("form", FORMS)
def test_products_of_unknown_lengths(form: str, dtype: str) -> None:
    lengths = [
        *product((0, 1, 2, 5), (0, 1, 3, 17), (1, 4)),
        (70, 70, 3),
        (5, 70, 17),
        (300, 260, 9),
    ]
    cases = [arrays(form, dtype, *at) for at in lengths]
    check(
        multiplied if dtype == "float64" else pt.dot,
        [(None,) * v.ndim for v in cases[0]],
        cases,
        np.dot,
    )


@pytest.mark.parametrize(
    "at",
    [(1, 1, 1), (2, 2, 2), (3, 1, 2), (2, 0, 3), (1, 9, 1), (5, 17, 4), (1, 90, 70), (70, 20, 1)],
)
@pytest.mark.parametrize("form", FORMS)
def test_products_of_known_lengths(form: str, at: tuple[int, int, int]) -> None:
    values = arrays(form, "float64", *at)
    check(pt.dot, [v.shape for v in values], [values], np.dot)


@pytest.mark.parametrize("form", FORMS)
def test_products_of_transposes(form: str) -> None:
    cases = [arrays(form, "float64", *at) for at in [(2, 3, 4), (9, 17, 5), (300, 260, 40)]]

    def build(left: Any, right: Any) -> Any:
        return Product()((left * 2).T, (right * 2).T)

    cases = [[v.T.copy() for v in values] for values in cases]
    check(build, [(None,) * v.ndim for v in cases[0]], cases, lambda a, b: 4 * (a.T @ b.T))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("known", [False, True])
def test_lengths_that_differ(form: str, *, known: bool) -> None:
    left, right = arrays(form, "float64", 4, 3, 5)
    right = np.concatenate([right, right])
    shapes = [v.shape if known else (None,) * v.ndim for v in (left, right)]
    inputs = [pt.tensor(dtype="float64", shape=shape) for shape in shapes]
    with pytest.raises(ValueError, match="not aligned"):
        outside(inputs, multiplied)(left, right)
    with pytest.raises(ValueError):  # noqa: PT011  # by NumPy, if the loop has steps is not known
        inside(inputs, multiplied)(*(np.stack([v] * 3) for v in (left, right)))


def test_several_products_in_one_graph() -> None:
    """Those of arguments of a kind are one function, whatever the order of the entries."""

    def build(left: Any, right: Any, x: Any) -> Any:
        by_columns = (left * 2).T
        made = [Product()(m, x) for m in (left, right, by_columns, right.T)]
        return sum(made) + pt.dot(left, pt.dot(right, by_columns))[0]

    def wanted(left: Any, right: Any, x: Any) -> Any:
        products = left @ x + right @ x + 2 * left.T @ x + right.T @ x
        return products + (left @ right @ (2 * left).T)[0]

    rng = np.random.default_rng(3)
    cases = [
        [rng.normal(size=(n, n)), rng.normal(size=(n, n)), rng.normal(size=n)]
        for n in (1, 2, 7, 70, 300)
    ]
    check(build, [(None, None), (None, None), (None,)], cases, wanted)
