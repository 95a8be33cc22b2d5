"""Loops over hidden states, and loops that draw: Markov chains."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.random.type import random_generator_type

from support.graph_building import scan
from support.zoo.model import Built, Model, drawn, numbers

_P = np.array([[0.7, 0.2, 0.1], [0.15, 0.6, 0.25], [0.3, 0.3, 0.4]])
_EMISSION = np.array([[0.5, 0.3, 0.1, 0.1], [0.1, 0.2, 0.4, 0.3], [0.25, 0.25, 0.2, 0.3]])
_START = np.array([0.5, 0.3, 0.2])
_SYMBOLS = [0, 2, 3, 1, 1, 2, 0, 3]


def _forward() -> Built:
    """Probabilities, scaled to a sum of one at each step."""
    symbols = pt.lvector("symbols")
    start = pt.dvector("start")
    p, emission = pt.dmatrices("P", "emission")

    def step(symbol: Any, alpha: Any, p: Any, emission: Any) -> Any:
        alpha = pt.dot(alpha, p) * emission[:, symbol]
        total = alpha.sum()
        return alpha / total, pt.log(total)

    _, logs = scan(
        step,
        sequences=[symbols],
        outputs_info=[start, None],
        non_sequences=[p, emission],
        name="forward",
    )
    return [symbols, start, p, emission], logs.sum()


def _forward_reference(symbols: Any, start: Any, p: Any, emission: Any) -> Any:
    alpha = start
    for symbol in symbols:
        alpha = (alpha[:, None] * p).sum(axis=0) * emission[:, symbol]
    return np.log(alpha.sum())


def _log_forward() -> Built:
    """Logarithms of probabilities, and normal emissions."""
    y = pt.tensor("y", shape=(8,), dtype="float64")
    start, mu = (pt.tensor(name, shape=(3,), dtype="float64") for name in ("start", "mu"))
    log_p = pt.tensor("logP", shape=(3, 3), dtype="float64")
    log_sigma = pt.dscalar("log_sigma")

    def density(y: Any) -> Any:
        return -0.5 * ((y - mu) / pt.exp(log_sigma)) ** 2 - log_sigma - 0.5 * np.log(2 * np.pi)

    alphas = scan(
        lambda y, alpha: pt.logsumexp(alpha[:, None] + log_p, axis=0) + density(y),
        sequences=[y[1:]],
        outputs_info=[start + density(y[0])],
        name="log_forward",
    )
    return [y, start, mu, log_p, log_sigma], pt.logsumexp(alphas[-1])


def _log_forward_reference(y: Any, start: Any, mu: Any, log_p: Any, log_sigma: Any) -> Any:
    sigma = np.exp(log_sigma)

    def density(value: Any) -> Any:
        return np.exp(-((value - mu) ** 2) / (2 * sigma**2)) / (sigma * np.sqrt(2 * np.pi))

    alpha = np.exp(start) * density(y[0])
    for value in y[1:]:
        alpha = alpha @ np.exp(log_p) * density(value)
    return np.log(alpha.sum())


def _viterbi() -> Built:
    """The best path: a maximum and its place forwards, the places followed backwards."""
    symbols = pt.lvector("symbols")
    start = pt.dvector("start")
    p, emission = pt.dmatrices("P", "emission")
    log_p, log_emission = pt.log(p), pt.log(emission)

    def forwards(symbol: Any, delta: Any, log_p: Any, log_emission: Any) -> Any:
        scores = delta[:, None] + log_p
        return scores.max(axis=0) + log_emission[:, symbol], scores.argmax(axis=0)

    first = pt.log(start) + log_emission[:, symbols[0]]
    deltas, places = scan(
        forwards,
        sequences=[symbols[1:]],
        outputs_info=[first, None],
        non_sequences=[log_p, log_emission],
        name="viterbi",
    )
    last = deltas[-1].argmax()
    path = scan(
        lambda place, state: place[state],
        sequences=[places],
        outputs_info=[last],
        go_backwards=True,
        name="backtrace",
    )
    return [symbols, start, p, emission], [
        pt.concatenate([path[::-1], last[None]]),
        deltas[-1].max(),
    ]


def _viterbi_reference(symbols: Any, start: Any, p: Any, emission: Any) -> Any:
    """Score every path there is."""
    states = range(len(start))
    best: tuple[float, tuple[int, ...]] = (-np.inf, ())
    paths: list[tuple[int, ...]] = [()]
    for _ in symbols:
        paths = [(*path, state) for path in paths for state in states]
    for path in paths:
        score = np.log(start[path[0]] * emission[path[0], symbols[0]])
        for before, state, symbol in zip(path, path[1:], symbols[1:], strict=False):
            score += np.log(p[before, state] * emission[state, symbol])
        best = max(best, (score, path))
    return [np.array(best[1]), best[0]]


def _metropolis() -> Built:
    """A random walk on a double well; the generator is a state of the loop."""
    rng = random_generator_type("rng")
    x0, width = pt.dscalars("x0", "width")
    n = pt.lscalar("n")

    def log_density(x: Any) -> Any:
        return -((x**2 - 1) ** 2)

    def step(rng: Any, x: Any, accepted: Any, width: Any) -> Any:
        rng, jump = pt.random.normal(0, width, rng=rng, return_next_rng=True)
        rng, u = pt.random.uniform(rng=rng, return_next_rng=True)
        proposed = x + jump
        better = pt.lt(pt.log(u), log_density(proposed) - log_density(x))
        return rng, pt.switch(better, proposed, x), accepted + better

    rng_end, xs, accepted = scan(
        step,
        outputs_info=[rng, x0, pt.zeros((), dtype="int64")],
        non_sequences=[width],
        n_steps=n,
        name="metropolis",
    )
    return [rng, x0, width, n], [xs, accepted[-1], rng_end]


def _metropolis_reference(rng: Any, x: Any, width: Any, n: Any) -> Any:
    rng, xs, accepted = deepcopy(rng), [], 0
    for _ in range(n):
        proposed = x + width * rng.standard_normal()
        if np.log(rng.random()) < (x**2 - 1) ** 2 - (proposed**2 - 1) ** 2:
            x, accepted = proposed, accepted + 1
        xs.append(x)
    return [np.array(xs), accepted, rng]


def _gibbs() -> Built:
    """Two normal numbers of correlation ``rho``, each drawn given the other."""
    rng = random_generator_type("rng")
    start = pt.tensor("start", shape=(2,), dtype="float64")
    rho = pt.dscalar("rho")

    def step(x: Any, y: Any, rng: Any, rho: Any) -> Any:
        spread = pt.sqrt(1 - rho**2)
        rng, x = pt.random.normal(rho * y, spread, rng=rng, return_next_rng=True)
        rng, y = pt.random.normal(rho * x, spread, rng=rng, return_next_rng=True)
        return x, y, rng

    xs, ys, rng_end = scan(
        step,
        outputs_info=[start[0], start[1], rng],
        non_sequences=[rho],
        n_steps=10,
        name="gibbs",
    )
    return [rng, start, rho], [pt.stack([xs, ys], axis=1), (xs * ys).mean(), rng_end]


def _gibbs_reference(rng: Any, start: Any, rho: Any) -> Any:
    rng, rows = deepcopy(rng), np.empty((10, 2))
    _, y = start
    for row in rows:
        x = rng.normal(rho * y, np.sqrt(1 - rho**2))
        y = rng.normal(rho * x, np.sqrt(1 - rho**2))
        row[:] = x, y
    return [rows, (rows[:, 0] * rows[:, 1]).mean(), rng]


CHAINS = (
    Model(
        "HMM, scaled probabilities",
        _forward,
        numbers(_SYMBOLS, _START, _P, _EMISSION),
        _forward_reference,
        ("start", "P", "emission"),
    ),
    Model(
        "HMM, log space",
        _log_forward,
        numbers(drawn(21, 8), np.log(_START), [-1.0, 0.2, 1.1], np.log(_P), -0.2),
        _log_forward_reference,
        ("y", "start", "mu", "logP", "log_sigma"),
    ),
    Model(
        "Viterbi",
        _viterbi,
        numbers(_SYMBOLS, _START, _P, _EMISSION),
        _viterbi_reference,
        order=0,
        note="a path of whole numbers",
    ),
    Model(
        "Metropolis",
        _metropolis,
        numbers(np.random.default_rng(22), 0.3, 0.8, 12),
        _metropolis_reference,
        order=0,
        note="draws, and accepts or not",
    ),
    Model(
        "Gibbs",
        _gibbs,
        numbers(np.random.default_rng(23), [0.5, -0.2], 0.6),
        _gibbs_reference,
        order=0,
        note="draws; the start of x is never read",
    ),
)
