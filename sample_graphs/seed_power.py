"""The smallest loop with derivatives: a scalar ``x`` is squared 4 times, which gives ``x**16``.

``seed`` has one Scan with one state, of which only the last step is read: `save-mem` shortens its
buffer. ``seed_grad`` adds the Scan that runs backwards, with a mit_mot that collects the
derivative; it needs every step of the first. ``seed_hess`` differentiates that again: 4 Scans in
a chain, much of it arithmetic on zeros.
"""

from __future__ import annotations

import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable


def build() -> dict[str, tuple[list[Variable], list[Variable]]]:
    """Return the power, and its first and second derivative by ``x``."""
    x = pt.scalar("x", dtype="float64")
    powers = pytensor.scan(
        lambda power: power**2, outputs_info=[x], n_steps=4, name="power", return_updates=False
    )
    value = powers[-1]
    gradient = pt.grad(value, x)
    curvature = pt.grad(gradient, x)
    return {
        "seed": ([x], [value]),
        "seed_grad": ([x], [gradient]),
        "seed_hess": ([x], [curvature]),
    }


if __name__ == "__main__":
    from build import HERE, write

    write(build(), HERE)
