"""What rounding, overflow and underflow do to states that a loop computes several steps ahead."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.compile.mode import get_mode

from scanopt_cli.loop import scan
from support.tiers import examples

NUMBA = get_mode("NUMBA")
ALONE = NUMBA.excluding("distribute_loops")


@cache
def function_of(mode: Any) -> Any:
    """Return the last state and all states of ``y * h + x``, given x, y and the first ``h``."""
    x, y, start = pt.dvector("x"), pt.dvector("y"), pt.dscalar("h")
    last, trace = scan(lambda h, xs: ((new := xs[1] * h + xs[0]), new), start, (x, y))
    return pytensor.function([x, y, start], [last, trace], mode=mode)


def exact(x: np.ndarray, y: np.ndarray, h: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the states after each step, and by how much rounding of each step may change them."""
    state, size = np.longdouble(h), np.longdouble(abs(h))
    found = []
    for term, factor in zip(x, y, strict=True):
        state = factor * state + term
        size = abs(factor) * size + abs(term)
        found.append((state, size))
    states, sizes = zip(*found, strict=True)
    return np.array(states), np.finfo("float64").eps * np.array(sizes)


@pytest.mark.parametrize("factor", [-0.99, 0.5, 1.0, -1.0, 1.01, 3.0])
@given(seed=st.integers(0, 2**32), spread=st.sampled_from([0, 1e-3, 0.5]))
@settings(max_examples=examples(10, 100))
def test_rounding_is_bounded(factor: float, seed: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    n = 400
    y = factor * (1 + spread * rng.uniform(-1, 1, n))
    x = rng.normal(size=n) * 10 ** rng.uniform(-3, 3, n)
    _, trace = function_of(NUMBA)(x, y, np.asarray(1.0))
    states, bound = exact(x, y, 1.0)
    # Each step rounds a product and a sum, whose errors the later steps multiply.
    steps = np.arange(1, n + 1)
    assert (abs(trace - states) <= 8 * steps * bound).all()


EXTREME = {
    "factors that overflow together, of nothing": (0.0, 1e200, 0.0),
    "factors that underflow together": (1e300, 1e-100, 0.0),
    "factors that underflow and overflow": (1.0, [1e-160, 1e-160, 1e160, 1e160], 1.0),
    "terms that overflow together": (-1e308, 1.0, [1e308, 1e308, -1e308, -1e308]),
    "a state that overflows and a factor of nothing": (1e200, [1e100, 1e-100, 0.0, 1.0], 1.0),
    "products that overflow and terms that undo it": (
        1e200,
        [1e100, 1e100, 1.0, 0.0],
        [-1e300, 1, 1, 1],
    ),
    "infinite states": (1.0, 2.0, [0.0] * 40 + [np.inf, 1.0]),
    "NaN": (1.0, 0.5, [1.0] * 70 + [np.nan] + [1.0] * 70),
    "NaN that a step forgets": (1.0, [0.5] * 50 + [0.0] + [0.5] * 50, [1.0] * 30 + [np.inf]),
    "factors of nothing": (3.0, [0.5, 0.0, 0.5], 1.0),
    "the smallest numbers": (5e-324, 0.5, 5e-324),
}


@pytest.mark.parametrize("name", EXTREME)
def test_extreme_values(name: str) -> None:
    """Where the states of single steps are finite, so are these, and equal; else as those."""
    start, y, x = EXTREME[name]
    n = 9300  # long enough to try again
    x, y = (np.resize(np.asarray(v, "float64"), n) for v in (x, y))
    arguments = x, y, np.asarray(start)
    pairs = zip(function_of(NUMBA)(*arguments), function_of(ALONE)(*arguments), strict=True)
    for found, wanted in pairs:
        np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted))
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
