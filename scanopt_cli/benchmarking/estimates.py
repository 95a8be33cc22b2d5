"""Medians of measured times and of their ratios, with intervals of confidence.

Times of one process are alike for reasons that are not those of the graph: where its arrays are,
what else the machine did. So the interval is that of a bootstrap which draws rounds, each with
processes of its own, and then turns in them. With three rounds it reaches about as far as their
medians do.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import numpy as np

from scanopt_cli.benchmarking.result import Estimate

_DRAWS = 2_000
_CONFIDENCE = 0.95

type Rounds = Sequence[Sequence[float]]
"""One number for each turn of each round."""


def median(rounds: Rounds) -> Estimate:
    """Return the median of all turns."""
    values = [np.asarray(turns, dtype=np.float64) for turns in rounds if len(turns)]
    rng = np.random.default_rng(0)
    chosen = rng.integers(len(values), size=(_DRAWS, len(values)))
    medians = np.empty(_DRAWS)
    for draw, places in enumerate(chosen):
        picked = [
            values[place][rng.integers(len(values[place]), size=len(values[place]))]
            for place in places
        ]
        medians[draw] = np.median(np.concatenate(picked))
    edge = (1 - _CONFIDENCE) / 2
    low, high = np.quantile(medians, [edge, 1 - edge])
    value = float(np.median(np.concatenate(values)))
    return Estimate(value, min(float(low), value), max(float(high), value))


def ratio(times: Rounds, reference: Rounds) -> Estimate:
    """Return the median of the ratios of times in the same turn."""
    return median(
        [
            [one / other for one, other in zip(*pair, strict=True)]
            for pair in zip(times, reference, strict=True)
        ]
    )


def exponent(sizes: tuple[int, int], times: tuple[Estimate, Estimate]) -> Estimate:
    """Return ``e`` of a time that grows as ``size**e`` from one size to another.

    The interval is the widest that those of the times allow.
    """
    small, large = times
    factor = log(sizes[1] / sizes[0])
    return Estimate(
        log(large.value / small.value) / factor,
        log(large.low / small.high) / factor,
        log(large.high / small.low) / factor,
    )
