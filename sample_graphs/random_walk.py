"""A random walk that carries its random generator from step to step.

A generator cannot be stacked, so it is an untraced state: the Scan returns the last one alone.
The graph returns the positions and the generator to go on with.
"""

from __future__ import annotations

import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random.type import random_generator_type


def build() -> dict[str, tuple[list[Variable], list[Variable]]]:
    """Return the walk's positions and the generator behind them."""
    rng = random_generator_type("rng")
    x0 = pt.scalar("x0", dtype="float64")
    sigma = pt.scalar("sigma", dtype="float64")
    n_steps = pt.scalar("n_steps", dtype="int64")

    def step(rng: Variable, x: Variable, sigma: Variable) -> list[Variable]:
        next_rng, noise = pt.random.normal(rng=rng, return_next_rng=True)
        return [next_rng, x + sigma * noise]

    last_rng, walk = pytensor.scan(
        step,
        outputs_info=[rng, x0],
        non_sequences=[sigma],
        n_steps=n_steps,
        name="walk",
        return_updates=False,
    )
    return {"random_walk": ([rng, x0, sigma, n_steps], [walk, last_rng])}


if __name__ == "__main__":
    from build import HERE, write

    write(build(), HERE)
