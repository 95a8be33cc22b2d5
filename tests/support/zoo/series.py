"""Models of time series."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytensor.tensor as pt

from support.graph_building import scan
from support.zoo.model import Built, Model, drawn, numbers


def _garch() -> Built:
    returns = pt.dvector("returns")
    omega, alpha, beta = pt.dscalars("omega", "alpha", "beta")
    variances = scan(
        lambda r, v, omega, alpha, beta: omega + alpha * r**2 + beta * v,
        sequences=[returns[:-1]],
        outputs_info=[pt.var(returns)],
        non_sequences=[omega, alpha, beta],
        name="garch",
    )
    cost = -0.5 * (pt.log(variances) + returns[1:] ** 2 / variances).sum()
    return [returns, omega, alpha, beta], cost


def _garch_reference(returns: Any, omega: Any, alpha: Any, beta: Any) -> Any:
    variance, cost = np.mean((returns - np.mean(returns)) ** 2), 0.0
    for before, now in pairwise(returns):
        variance = omega + alpha * before * before + beta * variance
        cost -= (np.log(variance) + now * now / variance) / 2
    return cost


def _ar2() -> Built:
    """Steps of unknown number, from the two values before the first."""
    start = pt.tensor("start", shape=(2,), dtype="float64")
    a, b = pt.dscalars("a", "b")
    n = pt.lscalar("n")
    ys = scan(
        lambda before, last, a, b: pt.tanh(a * before + b * last) + 0.1,
        outputs_info=[{"initial": start, "taps": [-2, -1]}],
        non_sequences=[a, b],
        n_steps=n,
        name="ar2",
    )
    return [start, a, b, n], (ys**2).sum() + ys[-1]


def _ar2_reference(start: Any, a: Any, b: Any, n: Any) -> Any:
    before, last = start
    total = 0.0
    for _ in range(n):
        before, last = last, np.tanh(a * before + b * last) + 0.1
        total += last * last
    return total + last


def _arma() -> Built:
    """The sequence is read at three steps; the error of the step before is a state."""
    y, phi = pt.dvectors("y", "phi")
    mu, theta = pt.dscalars("mu", "theta")

    def step(now: Any, last: Any, before: Any, error: Any, phi: Any, mu: Any, theta: Any) -> Any:
        return now - mu - phi[0] * (last - mu) - phi[1] * (before - mu) - theta * error

    errors = scan(
        step,
        sequences=[{"input": y, "taps": [0, -1, -2]}],
        outputs_info=[pt.zeros(())],
        non_sequences=[phi, mu, theta],
        name="arma",
    )
    return [y, phi, mu, theta], (errors**2).sum() / 2


def _arma_reference(y: Any, phi: Any, mu: Any, theta: Any) -> Any:
    away, error, cost = y - mu, 0.0, 0.0
    for t in range(2, len(y)):
        error = away[t] - phi @ away[t - 2 : t][::-1] - theta * error
        cost += error * error / 2
    return cost


def _returns() -> Built:
    """Discounted sums of rewards, from the last step to the first, and their variance."""
    rewards, logit = pt.dvector("rewards"), pt.dscalar("logit")
    sums = scan(
        lambda reward, later, gamma: reward + gamma * later,
        sequences=[rewards],
        outputs_info=[pt.zeros(())],
        non_sequences=[pt.sigmoid(logit)],
        go_backwards=True,
        name="discounted",
    )[::-1]
    return [rewards, logit], ((sums - sums.mean()) ** 2).sum() + sums[0]


def _returns_reference(rewards: Any, logit: Any) -> Any:
    gamma = 1 / (1 + np.exp(-logit))
    sums = [
        sum(gamma**away * reward for away, reward in enumerate(rewards[first:]))
        for first in range(len(rewards))
    ]
    return np.var(sums) * len(sums) + sums[0]


def _var1() -> Built:
    """One step ahead from what the model said, not from the data."""
    data = pt.tensor("data", shape=(None, 3), dtype="float64")
    weights = pt.dmatrix("weights")
    bias = pt.dvector("bias")
    path = scan(
        lambda y, weights, bias: pt.dot(weights, y) + bias,
        outputs_info=[data[0]],
        non_sequences=[weights, bias],
        n_steps=data.shape[0] - 1,
        name="var1",
    )
    return [data, weights, bias], ((data[1:] - path) ** 2).mean()


def _var1_reference(data: Any, weights: Any, bias: Any) -> Any:
    y, errors = data[0], []
    for row in data[1:]:
        y = weights @ y + bias
        errors.extend(row - y)
    return np.mean(np.square(errors))


def _volatility() -> Built:
    """Stochastic volatility: the noise of the log variance is standard normal."""
    y, z = (pt.tensor(name, shape=(8,), dtype="float64") for name in "yz")
    mu, logit, log_sigma = pt.dscalars("mu", "logit", "log_sigma")
    phi, sigma = pt.tanh(logit), pt.exp(log_sigma)
    h = scan(
        lambda z, h, mu, phi, sigma: mu + phi * (h - mu) + sigma * z,
        sequences=[z[1:]],
        outputs_info=[mu + z[0] * sigma / pt.sqrt(1 - phi**2)],
        non_sequences=[mu, phi, sigma],
        name="volatility",
    )
    h = pt.concatenate([(mu + z[0] * sigma / pt.sqrt(1 - phi**2))[None], h])
    cost = -0.5 * (h + y**2 * pt.exp(-h)).sum() - 0.5 * (z**2).sum()
    return [y, z, mu, logit, log_sigma], cost


def _volatility_reference(y: Any, z: Any, mu: Any, logit: Any, log_sigma: Any) -> Any:
    phi, sigma = np.tanh(logit), np.exp(log_sigma)
    away, cost = 0.0, 0.0
    for step, (value, noise) in enumerate(zip(y, z, strict=True)):
        away = phi * away + sigma * noise if step else sigma * noise * (1 - phi * phi) ** -0.5
        cost -= (mu + away + value**2 / np.exp(mu + away) + noise**2) / 2
    return cost


def _holt_winters() -> Built:
    """A level, a trend and a season of four steps, each smoothed."""
    y = pt.dvector("y")
    level0, trend0 = pt.dscalars("level0", "trend0")
    season0 = pt.tensor("season0", shape=(4,), dtype="float64")
    rates = pt.dvector("rates")
    alpha, beta, gamma = (pt.sigmoid(rates[i]) for i in range(3))

    def step(y: Any, level: Any, trend: Any, season: Any, alpha: Any, beta: Any, gamma: Any) -> Any:
        forecast = level + trend + season
        new_level = alpha * (y - season) + (1 - alpha) * (level + trend)
        new_trend = beta * (new_level - level) + (1 - beta) * trend
        new_season = gamma * (y - new_level) + (1 - gamma) * season
        return new_level, new_trend, new_season, (y - forecast) ** 2

    *_, errors = scan(
        step,
        sequences=[y],
        outputs_info=[level0, trend0, {"initial": season0, "taps": [-4]}, None],
        non_sequences=[alpha, beta, gamma],
        name="holt_winters",
    )
    return [y, level0, trend0, season0, rates], errors.mean()


def _holt_winters_reference(y: Any, level: Any, trend: Any, season0: Any, rates: Any) -> Any:
    alpha, beta, gamma = 1 / (1 + np.exp(-rates))
    seasons, errors = list(season0), []
    for value in y:
        season, before = seasons[-4], level
        errors.append(value - level - trend - season)
        level = alpha * (value - season) + (1 - alpha) * (level + trend)
        trend = beta * (level - before) + (1 - beta) * trend
        seasons.append(gamma * (value - level) + (1 - gamma) * season)
    return np.mean(np.square(errors))


_SEASONS = np.tile([1.0, -0.5, -1.0, 0.5], 3)[:10] + 0.3 * np.arange(10) + drawn(31, 10) / 5

SERIES = (
    Model(
        "GARCH(1,1)",
        _garch,
        numbers(drawn(32, 10), 0.1, 0.15, 0.7),
        _garch_reference,
        ("returns", "omega", "alpha", "beta"),
    ),
    Model("AR(2)", _ar2, numbers([0.5, 0.4], 0.5, 0.3, 8), _ar2_reference, ("start", "a", "b")),
    Model(
        "ARMA(2,1)",
        _arma,
        numbers(drawn(41, 9), [0.5, -0.2], 0.1, 0.4),
        _arma_reference,
        ("y", "phi", "mu", "theta"),
    ),
    Model(
        "discounted sums, backwards",
        _returns,
        numbers(drawn(42, 7), 1.2),
        _returns_reference,
        ("rewards", "logit"),
    ),
    Model(
        "VAR(1)",
        _var1,
        numbers(drawn(33, 7, 3), drawn(34, 3, 3, scale=0.4), [0.1, 0.0, -0.2]),
        _var1_reference,
        ("data", "weights", "bias"),
    ),
    Model(
        "stochastic volatility",
        _volatility,
        numbers(drawn(35, 8), drawn(36, 8), -0.4, 0.9, -1.0),
        _volatility_reference,
        ("z", "mu", "logit", "log_sigma"),
    ),
    Model(
        "Holt-Winters",
        _holt_winters,
        numbers(_SEASONS, 0.1, 0.2, [0.8, -0.4, -0.9, 0.6], [0.2, -1.0, -0.5]),
        _holt_winters_reference,
        ("y", "level0", "trend0", "season0", "rates"),
    ),
)
