"""Windows of a buffer, against what NumPy's slices do."""

from __future__ import annotations

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytensor.tensor.subtensor import get_idx_list

from scanopt_cli.analysis.accesses.indices import rows_index
from scanopt_cli.analysis.accesses.row_ranges import RowRange
from scanopt_cli.analysis.affine import AffineExpr
from scanopt_cli.analysis.lengths import Lengths

N = pt.lscalar("n")
ROWS = 6


def taken(window: RowRange) -> list[int]:
    """The rows of a window of constant places."""
    assert window.low.is_constant
    assert window.length.is_constant
    rows = list(range(window.low.constant, window.high.constant))
    return rows[::-1] if window.is_reversed else rows


def index_of(read) -> object:
    return get_idx_list(read.owner.inputs, read.owner.op.idx_list)[0]


bounds = st.none() | st.integers(-ROWS - 2, ROWS + 2)
slices = st.builds(slice, bounds, bounds, st.sampled_from([None, 1, -1]))


@given(first=slices, second=slices)
def test_slices_of_slices(first: slice, second: slice) -> None:
    """What is decided is right, and what is in bounds is decided."""
    rows = np.arange(ROWS)
    window: RowRange | None = RowRange(AffineExpr(), AffineExpr(ROWS))
    for part in (first, second):
        assert window is not None
        cut = window.cut(index_of(pt.dvector()[part]), Lengths())
        rows = rows[part]
        if cut is None:
            return
        window = cut
        assert taken(window) == rows.tolist()


@pytest.mark.parametrize(
    "part",
    [
        slice(None),
        slice(1, None),
        slice(None, -1),
        slice(None, None, -1),
        slice(-2, None, -1),
        slice(-1, None, -1),
        slice(-1, -4, -1),
        slice(4, 1, -1),
    ],
)
def test_slices_that_are_decided(part: slice) -> None:
    window = RowRange(AffineExpr(), AffineExpr(ROWS)).cut(index_of(pt.dvector()[part]), Lengths())
    assert window is not None
    assert taken(window) == np.arange(ROWS)[part].tolist()


@given(index=st.integers(-ROWS - 2, ROWS + 2), turned=st.booleans())
def test_single_rows(index: int, turned: bool) -> None:
    rows = np.arange(ROWS)[::-1] if turned else np.arange(ROWS)
    window = RowRange(AffineExpr(), AffineExpr(ROWS), turned)
    place = window.place(pt.constant(index), Lengths())
    if -ROWS <= index < ROWS:
        assert place == AffineExpr(int(rows[index]))
    else:
        assert place is None


def test_symbolic_lengths() -> None:
    lengths = Lengths(N)
    steps = lengths.value_of(N)
    window = RowRange(AffineExpr(), steps + AffineExpr(1))
    last = window.cut(slice(pt.constant(-1), None), lengths)
    assert last == RowRange(steps, AffineExpr(1))
    assert window.cut(slice(pt.constant(-2), None), lengths) is None
    start = slice(None, pt.dvector("v")[:1].shape[0])
    assert window.cut(start, lengths) is None
    assert window.cut(start, lengths, n_initial=1) == RowRange(AffineExpr(), AffineExpr(1))


def test_index_of_the_rows_alone() -> None:
    matrix = pt.dmatrix("m")
    assert rows_index(matrix[0].owner, 0) is not None
    assert rows_index(matrix[1:, :].owner, 0) is not None
    assert rows_index(matrix[:, 1:].owner, 1) is not None
    assert rows_index(matrix[1:].inc(1.0).owner, 0) is not None
    assert rows_index(matrix[1:, 0].owner, 0) is None
    assert rows_index(matrix[0, 1:].owner, 1) is None
    assert rows_index((matrix * 2).owner, 0) is None
