"""Expressions as short code."""

from __future__ import annotations

import pytensor.tensor as pt
import pytest

from scanopt_cli.analysis import describing
from scanopt_cli.analysis.describing import describe


def test_sums_and_products_of_matrices_read_as_written() -> None:
    x, y, w = pt.dmatrix("x"), pt.dmatrix("y"), pt.dmatrix("w")
    assert describe(pt.tanh(pt.dot(w, x) + y)) == "tanh(((w @ x) + y))"


def test_a_product_whose_first_factor_is_long_is_cut() -> None:
    long = pt.add(*(pt.dmatrix(f"matrix_{i}") for i in range(20)))
    text = describe(pt.dot(long, long))
    assert text.startswith("((matrix_0 + matrix_1 +")
    assert (len(text), text[-1]) == (60, "…")


def test_operands_that_are_not_shown_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum of 300 sums of 300 sums, each the same: 300**3 places."""
    described = 0
    original = describing._describe

    def counted(*arguments):
        nonlocal described
        described += 1
        return original(*arguments)

    monkeypatch.setattr(describing, "_describe", counted)
    total = pt.dvector("x")
    for _ in range(4):
        total = pt.add(*[total] * 300)
    assert len(describe(total)) == 60
    assert described < 1_000
