"""The code of softplus, which log-densities have where a scale is positive, beside PyTensor's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import scanopt_cli as so
from scanopt_cli.loop.codegen.writer import Writer
from support.graph_building import scan

_EDGES = (-np.inf, -1000, -37.1, -37, -36.9, -1, -1e-9, 0, 1e-9, 2, 17.9, 18, 18.1, 33.2, 33.3)
_OF_SOFTPLUS = {"softplus", "cast_scalar_outputs"}
"""What PyTensor calls its own function, with a cast of the result around it or without."""
_VALUES = np.array([*_EDGES, 33.4, 800, np.inf, np.nan])


@pytest.fixture
def called(monkeypatch) -> Iterator[list[str]]:
    """The names of the functions that Numba compiles apart."""
    found: list[str] = []
    call = Writer.call

    def noted(self: Writer, function: Any, *others: Any, **named: Any) -> Any:
        found.append(getattr(function, "__name__", ""))
        return call(self, function, *others, **named)

    monkeypatch.setattr(Writer, "call", noted)
    with pytensor.config.change_flags(numba__cache=False):  # of code that is read, none is written
        yield found


def _graph(dtype: str) -> tuple[list[Any], list[Any], list[Any]]:
    x, rows = pt.vector("x", dtype=dtype), pt.matrix("rows", dtype=dtype)
    number, n = pt.scalar("number", dtype=dtype), pt.lscalar("n")
    of_rows = scan(lambda row, v: pt.softplus(row) - v * 0.5, sequences=[rows], outputs_info=[x])
    of_numbers = scan(lambda v: pt.softplus(v) - 1, outputs_info=[number], n_steps=n)
    outputs = [of_rows, of_numbers, pt.softplus(x), pt.softplus(number), pt.softplus(rows).sum(0)]
    values = _VALUES.astype(dtype)
    return [x, rows, number, n], outputs, [values, np.vstack([values] * 3), values.dtype.type(2), 4]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_values_are_those_of_pytensor(called, dtype):
    inputs, outputs, values = _graph(dtype)
    with so.enabled(cache=False):
        function = pytensor.function(inputs, outputs, mode="NUMBA")
    made = function(*values)
    assert not _OF_SOFTPLUS & {*called}
    for one, other in zip(made, pytensor.function(inputs, outputs)(*values), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13 if dtype == "float64" else 1e-5)
        assert one.dtype == dtype


def test_of_integers_it_is_called(called):
    n, x = pt.bvector("n"), pt.dvector("x")
    outputs = [scan(lambda v: v * 0.5, outputs_info=[x], n_steps=3)[-1] + pt.softplus(n)]
    given = np.array([-3, 0, 40], "int8"), np.ones(3)
    with so.enabled(cache=False):
        function = pytensor.function([n, x], outputs, mode="NUMBA")
    made = function(*given)
    assert _OF_SOFTPLUS & {*called}
    np.testing.assert_allclose(made, pytensor.function([n, x], outputs)(*given), rtol=1e-3)
