"""Expressions as short code."""

from __future__ import annotations

import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.analysis import expression_text
from scanopt_cli.analysis.expression_text import describe
from scanopt_cli.analysis.inspection import inspect_graph
from scanopt_cli.analysis.lengths import Lengths


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
    original = expression_text._Describer.describe

    def counted(*arguments):
        nonlocal described
        described += 1
        return original(*arguments)

    monkeypatch.setattr(expression_text._Describer, "describe", counted)
    total = pt.dvector("x")
    for _ in range(4):
        total = pt.add(*[total] * 300)
    assert len(describe(total)) == 60
    assert described < 1_000


def test_inspecting_a_loop_reads_its_trip_count_once_for_all_sequences(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The trip count is a minimum of as many lengths as there are sequences."""
    minima: list[int] = []
    original = Lengths._value

    def counted(self, variable):
        node = variable.owner
        minima.append(node is not None and "minimum" in str(node.op).lower())
        return original(self, variable)

    monkeypatch.setattr(Lengths, "_value", counted)
    counts = []
    for n_sequences in (5, 10):
        minima.clear()
        vectors = [pt.dvector() for _ in range(n_sequences)]
        outputs = pytensor.scan(
            lambda *rows: pt.add(*rows), sequences=vectors, return_updates=False
        )
        inspect_graph(FunctionGraph(vectors, [outputs], clone=False))
        counts.append(sum(minima))
    assert counts[1] <= 3 * counts[0]
