"""Intervals hold what they are of, and ratios are those of turns, whatever a machine does."""

from __future__ import annotations

import numpy as np
import pytest

from scanopt_cli.benchmarking.estimates import exponent, median, ratio
from scanopt_cli.benchmarking.result import Estimate


def test_a_median_and_its_interval() -> None:
    found = median([[1.0, 2.0, 9.0], [2.0, 2.0, 3.0]])
    assert found.value == 2
    assert 1 <= found.low <= 2 <= found.high <= 9
    assert median([[1.0, 2.0, 9.0], [2.0, 2.0, 3.0]]) == found


def test_the_interval_reaches_over_the_rounds() -> None:
    """Many turns of one process tell nothing of the next process."""
    found = median([[1.0] * 100, [2.0] * 100, [3.0] * 100])
    assert (found.low, found.value, found.high) == (1, 2, 3)


def test_what_slows_all_alike_changes_no_ratio() -> None:
    rng = np.random.default_rng(0)
    machine = rng.uniform(1, 5, (3, 20))
    found = ratio((1.5 * machine).tolist(), machine.tolist())
    assert found.value == pytest.approx(1.5)
    assert found.high - found.low < 1e-9


def test_noise_widens_the_interval_around_the_ratio() -> None:
    rng = np.random.default_rng(1)
    times, reference = rng.lognormal(0, 0.3, (2, 3, 20))
    found = ratio(times.tolist(), reference.tolist())
    assert found.low < 1 < found.high


def test_an_exponent() -> None:
    one = Estimate(1.0, 0.9, 1.1)
    found = exponent((10, 1000), (one, Estimate(100.0, 90.0, 110.0)))
    assert found.value == pytest.approx(1)
    assert found.low < 1 < found.high
    assert exponent((10, 1000), (one, Estimate(10_000.0, 9_000.0, 11_000.0))).value > 1.9
