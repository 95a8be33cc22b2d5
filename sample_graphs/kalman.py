"""A Kalman filter for the local-level model: a random walk observed with noise.

``kalman_logp`` is the log-likelihood of ``y``: two states (the level and its variance) and one
output per step that no step reads (a nit_sot: the log-likelihood's terms). Only the sum of the
terms is read, the traces of both states are not. ``kalman_dlogp`` is the gradient by the two
standard deviations, which needs those traces.
"""

from __future__ import annotations

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable


def build() -> dict[str, tuple[list[Variable], list[Variable]]]:
    """Return the log-likelihood of ``y`` and its gradient by ``sigma_obs`` and ``sigma_level``."""
    y = pt.vector("y", dtype="float64")
    level0 = pt.scalar("level0", dtype="float64")
    variance0 = pt.scalar("variance0", dtype="float64")
    sigma_obs = pt.scalar("sigma_obs", dtype="float64")
    sigma_level = pt.scalar("sigma_level", dtype="float64")

    def step(
        y: Variable, level: Variable, variance: Variable, sigma_obs: Variable, sigma_level: Variable
    ) -> list[Variable]:
        predicted = variance + sigma_level**2
        total = predicted + sigma_obs**2
        gain = predicted / total
        error = y - level
        term = -0.5 * (np.log(2 * np.pi) + pt.log(total) + error**2 / total)
        return [level + gain * error, (1 - gain) * predicted, term]

    _levels, _variances, terms = pytensor.scan(
        step,
        sequences=[y],
        outputs_info=[level0, variance0, None],
        non_sequences=[sigma_obs, sigma_level],
        name="kalman",
        return_updates=False,
    )
    logp = terms.sum()
    inputs = [y, level0, variance0, sigma_obs, sigma_level]
    return {
        "kalman_logp": (inputs, [logp]),
        "kalman_dlogp": (inputs, pt.grad(logp, [sigma_obs, sigma_level])),
    }


if __name__ == "__main__":
    from build import HERE, write

    write(build(), HERE)
