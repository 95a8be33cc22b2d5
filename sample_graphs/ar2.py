"""An autoregression of order 2: each mean comes from the two before it, so the taps are -2, -1.

``ar2_logp`` is the log-likelihood of a series ``y`` around the means: a mit_sot state, started by
``mu0`` of shape (2,). ``ar2_dlogp`` is its gradient by ``phi``, ``mu0`` and ``sigma``; its mit_mot
has three taps, as each mean has two readers.
"""

from __future__ import annotations

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable


def build() -> dict[str, tuple[list[Variable], list[Variable]]]:
    """Return the log-likelihood of ``y`` and its gradient."""
    y = pt.vector("y", dtype="float64")
    mu0 = pt.vector("mu0", dtype="float64", shape=(2,))
    phi = pt.vector("phi", dtype="float64", shape=(2,))
    sigma = pt.scalar("sigma", dtype="float64")
    means = pytensor.scan(
        lambda before_last, last, phi: phi[0] * last + phi[1] * before_last,
        outputs_info=[{"initial": mu0, "taps": [-2, -1]}],
        non_sequences=[phi],
        n_steps=y.shape[0],
        name="ar2",
        return_updates=False,
    )
    z = (y - means) / sigma
    logp = (-0.5 * z**2 - pt.log(sigma) - 0.5 * np.log(2 * np.pi)).sum()
    inputs = [y, mu0, phi, sigma]
    return {
        "ar2_logp": (inputs, [logp]),
        "ar2_dlogp": (inputs, pt.grad(logp, [phi, mu0, sigma])),
    }


if __name__ == "__main__":
    from build import HERE, write

    write(build(), HERE)
