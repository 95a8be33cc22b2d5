"""Small PyMC models with loops; made when called, since PyMC is an extra."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt

from support.graph_building import scan


def garch() -> Any:
    """GARCH(1,1): the variance of today from yesterday's return and variance."""
    import pymc as pm

    returns = np.random.default_rng(0).normal(size=200) * 0.1
    with pm.Model() as model:
        omega, first = pm.HalfNormal("omega", 1.0), pm.HalfNormal("first", 1.0)
        alpha, beta = pm.Beta("alpha", 1, 1), pm.Beta("beta", 1, 1)
        variance = scan(
            lambda x, v, omega, alpha, beta: omega + alpha * x**2 + beta * v,
            sequences=[pt.as_tensor(returns)],
            outputs_info=[first**2],
            non_sequences=[omega, alpha, beta],
        )
        pm.Normal("returns", 0, pt.sqrt(variance), observed=returns)
    return model


def simulated_garch() -> Any:
    """GARCH(1,1) of 500 returns that were drawn from one, which samplers find their way in."""
    import pymc as pm

    rng = np.random.default_rng(6)
    returns, v = np.empty(500), 1.0
    for t in range(len(returns)):
        returns[t] = rng.normal() * np.sqrt(v)
        v = 0.2 + 0.2 * returns[t] ** 2 + 0.6 * v
    with pm.Model() as model:
        omega = pm.HalfNormal("omega", 0.5)
        alpha, beta = pm.Beta("alpha", 2, 5), pm.Beta("beta", 5, 2)
        variance = scan(
            lambda x, v, omega, alpha, beta: omega + alpha * x**2 + beta * v,
            sequences=[pt.as_tensor(returns[:-1])],
            outputs_info=[pt.ones(())],
            non_sequences=[omega, alpha, beta],
        )
        pm.Normal("returns", 0, pt.sqrt(variance), observed=returns[1:])
    return model


def sir() -> Any:
    """An epidemic: three states that feed each other."""
    import pymc as pm

    def step(s: Any, i: Any, r: Any, beta: Any, gamma: Any) -> Any:
        infected, recovered = beta * s * i, gamma * i
        return s - infected, i + infected - recovered, r + recovered

    with pm.Model() as model:
        beta, gamma = pm.HalfNormal("beta", 1.0), pm.HalfNormal("gamma", 1.0)
        _, infectious, _ = scan(
            step,
            outputs_info=[pt.constant(share, dtype="float64") for share in (0.99, 0.01, 0.0)],
            non_sequences=[beta, gamma],
            n_steps=50,
        )
        pm.Normal("cases", infectious, 0.05, observed=np.full(50, 0.1))
    return model


def rnn() -> Any:
    """A recurrent network with four hidden units."""
    import pymc as pm

    data = np.random.default_rng(1).normal(size=(30, 4))
    with pm.Model() as model:
        w, u = (pm.Normal(name, 0, 0.3, shape=(4, 4)) for name in ("w", "u"))
        hidden = scan(
            lambda x, h, w, u: pt.tanh(h @ w + x @ u),
            sequences=[pt.as_tensor(data)],
            outputs_info=[pt.zeros(4)],
            non_sequences=[w, u],
        )
        pm.Normal("output", hidden.sum(axis=1), 1.0, observed=data[:, 0])
    return model


def ar2() -> Any:
    """AR(2) as a CustomDist, whose log-density PyMC derives from the draw."""
    import pymc as pm
    from pymc.pytensorf import collect_default_updates
    from pytensor import scan as scan_of_draws

    def series(a: Any, b: Any, start: Any, noise: Any, size: Any) -> Any:
        def step(before: Any, last: Any, a: Any, b: Any, noise: Any) -> Any:
            draw = pm.Normal.dist(a * before + b * last, noise)
            return draw, collect_default_updates([draw])

        draws, _ = scan_of_draws(
            step,
            outputs_info=[{"initial": start, "taps": [-2, -1]}],
            non_sequences=[a, b, noise],
            n_steps=100,
        )
        return draws

    data = np.cumsum(np.random.default_rng(2).normal(size=102)) * 0.1
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 0.5), pm.Normal("b", 0, 0.5)
        noise = pm.HalfNormal("noise", 1.0)
        start = pt.constant(data[:2])
        pm.CustomDist("series", a, b, start, noise, dist=series, observed=data[2:])
    return model


def local_level() -> Any:
    """A local level, filtered: a Kalman filter of one state, as numbers."""
    import pymc as pm

    series = np.cumsum(np.random.default_rng(3).normal(size=200))
    with pm.Model() as model:
        level, noise = pm.HalfNormal("level", 1.0), pm.HalfNormal("noise", 1.0)

        def step(y: Any, mean: Any, spread: Any, level: Any, noise: Any) -> Any:
            spread = spread + level**2
            variance, error = spread + noise**2, y - mean
            gain = spread / variance
            term = -0.5 * (pt.log(2 * np.pi * variance) + error**2 / variance)
            return mean + gain * error, (1 - gain) * spread, term

        *_, terms = scan(
            step,
            sequences=[pt.as_tensor(series)],
            outputs_info=[pt.zeros(()), pt.constant(10.0, dtype="float64"), None],
            non_sequences=[level, noise],
        )
        pm.Potential("filtered", terms.sum())
    return model


def hidden_markov() -> Any:
    """A hidden Markov model of three states, summed over its paths in log space."""
    import pymc as pm

    series = np.random.default_rng(4).normal(size=200)
    with pm.Model() as model:
        means = pm.Normal("means", 0, 1, shape=3)
        moves = pm.Dirichlet("moves", np.ones(3), shape=(3, 3))
        emitted = -0.5 * (pt.as_tensor(series)[:, None] - means) ** 2
        logs = scan(
            lambda e, logs, moves: e + pt.logsumexp(logs[:, None] + moves, axis=0),
            sequences=[emitted],
            outputs_info=[pt.constant(np.log(np.full(3, 1 / 3)))],
            non_sequences=[pt.log(moves)],
        )
        pm.Potential("paths", pt.logsumexp(logs[-1]))
    return model


def statespace() -> Any:
    """A SARIMA model of pymc-extras: a Kalman filter of matrices."""
    import pymc as pm
    from pymc_extras.statespace import BayesianSARIMAX

    series = np.cumsum(np.random.default_rng(5).normal(size=(100, 1)), axis=0) * 0.1
    filtered = BayesianSARIMAX(order=(2, 0, 1), verbose=False, stationary_initialization=True)
    with pm.Model() as model:
        pm.Normal("ar_params", 0, 0.2, shape=2)
        pm.Normal("ma_params", 0, 0.2, shape=1)
        pm.HalfNormal("sigma_state", 1.0)
        filtered.build_statespace_graph(series)
    return model


MODELS = {"garch": garch, "sir": sir, "rnn": rnn}
REAL_MODELS = {
    "GARCH": garch,
    "SIR": sir,
    "AR(2) as CustomDist": ar2,
    "local level": local_level,
    "HMM": hidden_markov,
    "statespace SARIMA": statespace,
    "RNN of 4 units": rnn,
}
