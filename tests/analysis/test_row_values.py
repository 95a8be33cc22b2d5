"""Rows of initial buffers: which are shown to be zero or equal, and which must not be."""

from __future__ import annotations

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph

from scanopt_cli.analysis.affine import AffineExpr
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.row_runs import Rows, Run, is_positive_zero
from scanopt_cli.analysis.row_values import RowAnalysis

N = pt.lscalar("n")
K = pt.lscalar("k")
G = pt.dscalar("g")
R = pt.dvector("r")
M = pt.dmatrix("m")


def zeros(rows=N + 1):
    return pt.zeros((rows,))


def rows_of(buffer) -> Rows:
    return RowAnalysis(Lengths(N)).of(buffer)


def told(rows: Rows) -> list[str]:
    def value(run: Run) -> object:
        return "?" if run.value is None else "0" if is_positive_zero(run.value) else run.value

    return [f"{run.length}: {value(run)}" for run in rows.runs]


@pytest.mark.parametrize(
    ("buffer", "expected"),
    [
        (zeros(), ["n+1: 0"]),
        (pt.zeros_like(zeros() + R[0]), ["n+1: 0"]),
        (pt.alloc(G, N), ["n: g"]),
        (pt.constant(np.zeros(3)), ["3: 0"]),
        (zeros()[0].set(G), ["1: g", "n: 0"]),
        (zeros()[-1].inc(G), ["n: 0", "1: g"]),
        (zeros()[-1].inc(G)[::-1], ["1: g", "n: 0"]),
        (zeros()[-1].inc(G)[:-1], ["n: 0"]),
        (zeros()[1:].inc(pt.alloc(G, N))[::-1], ["n: g", "1: 0"]),
        (zeros()[1:].set(R[:N])[:1], ["1: 0"]),
        (zeros()[::-1].set(zeros()[0].set(G)), ["n: 0", "1: g"]),
        (zeros()[0].inc(G)[0].inc(G), ["1: ?", "n: 0"]),
        (zeros()[0].set(G)[0].set(0.0), ["1: 0", "n: 0"]),
        (pt.join(0, zeros(N), pt.alloc(G, K)), ["n: 0", "k: g"]),
        (zeros(4)[0].inc(G) + zeros(4)[-1].inc(G), ["1: g", "2: 0", "1: g"]),
        # Of no steps, the first row is the last one.
        (zeros()[0].inc(G) + zeros()[-1].inc(G), ["n+1: ?"]),
        (zeros() + pt.alloc(G, N + 1), ["n+1: g"]),
    ],
)
def test_runs(buffer, expected: list[str]) -> None:
    assert told(rows_of(buffer)) == expected


@pytest.mark.parametrize(
    "buffer",
    [
        R,
        zeros()[K].inc(G),
        zeros()[::2].inc(G),
        zeros()[:K].set(G),
        zeros() * 0,
        zeros() - zeros(),
        pt.constant(np.array([0.0, -0.0])),
        pt.constant(np.array([1.0, 2.0])),
        pt.zeros((N + 1,), dtype="float32")[0].set(G.astype("float32")) + zeros(),
    ],
)
def test_nothing_is_known_of_other_buffers(buffer) -> None:
    assert all(run.value is None for run in rows_of(buffer).runs)


def test_negative_zero_is_not_zero() -> None:
    (run,) = rows_of(pt.alloc(pt.constant(np.float64(-0.0)), N)).runs
    assert run.value is not None
    assert not is_positive_zero(run.value)


def test_rows_of_a_matrix() -> None:
    """A row counts as the row it is written to if it has its length, and is not broadcast."""
    wide = pt.zeros((N + 1, R.shape[0]))
    assert rows_of(wide[0].set(R)).runs[0].value is R
    other = pt.zeros((N + 1, K))[0].set(R)
    assert rows_of(other).runs[0].value is None
    assert not rows_of(other).is_certain
    assert rows_of(pt.alloc(R, N, R.shape[0])).runs[0].value is R


@pytest.mark.parametrize(
    ("buffer", "is_certain"),
    [
        (zeros()[-1].inc(G), True),
        (zeros(N)[-1].inc(G), False),
        (zeros()[1].inc(G), False),
        (zeros(5)[4].inc(G), True),
        (zeros()[1:].inc(R), False),
    ],
)
def test_rows_out_of_bounds_are_an_error_that_may_be(buffer, is_certain: bool) -> None:
    assert rows_of(buffer).is_certain == is_certain


def test_common_value() -> None:
    lengths = Lengths(N)
    rows = rows_of(zeros()[-1].inc(G)[::-1])
    one, count = lengths.value_of(pt.constant(1)), lengths.value_of(N)
    assert is_positive_zero(rows.common(one, one + count, lengths))
    assert rows.common(one - one, one, lengths) is G
    assert rows.common(one - one, one + one, lengths) is None


def test_rows_behind_a_batch() -> None:
    buffer = pt.zeros((N + 1,)) + R[0] * 0
    batched = vectorize_graph(pt.zeros_like(buffer)[-1].inc(G)[::-1], {R: M})
    rows = RowAnalysis(Lengths(N), axis=1).of(batched)
    assert told(rows)[-1].endswith(": 0")


def test_value_that_reaches_up_to_the_rows_is_no_row() -> None:
    """Along the second axis, `v` is spread over the columns, not the one column."""
    v = pt.tensor("v", dtype="float64", shape=(2,))
    lengths = Lengths()
    rows = RowAnalysis(lengths, 1).of(pt.alloc(v, 2, 2))
    assert rows.common(AffineExpr(0), AffineExpr(1), lengths) is None
    along = RowAnalysis(lengths, 0).of(pt.alloc(v, 2, 2))
    assert along.common(AffineExpr(0), AffineExpr(1), lengths) is v
