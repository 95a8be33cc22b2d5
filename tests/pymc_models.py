"""Small PyMC models with loops; made when called, since PyMC is an extra."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt

from graph_building import scan


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


MODELS = {"garch": garch, "sir": sir, "rnn": rnn}
