"""A Scan inside an OpFromGraph: exponential smoothing as an op with two outputs.

The graph reads the op's forecasts and not its errors. What computes the errors is inside the op,
and PyTensor itself does not remove it there before it compiles.
"""

from __future__ import annotations

import pytensor
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Variable


def build() -> dict[str, tuple[list[Variable], list[Variable]]]:
    """Return the level after each element of ``y``."""
    y = pt.vector("y", dtype="float64")
    alpha = pt.scalar("alpha", dtype="float64")

    def step(y: Variable, level: Variable, alpha: Variable) -> list[Variable]:
        error = y - level
        return [level + alpha * error, error]

    levels, errors = pytensor.scan(
        step,
        sequences=[y],
        outputs_info=[y[0], None],
        non_sequences=[alpha],
        name="smoothing",
        return_updates=False,
    )
    smoothing = OpFromGraph([y, alpha], [levels, errors], name="Smoothing")
    series = pt.vector("series", dtype="float64")
    rate = pt.scalar("rate", dtype="float64")
    forecasts, _errors = smoothing(series, rate)
    return {"wrapped": ([series, rate], [forecasts])}


if __name__ == "__main__":
    from build import HERE, write

    write(build(), HERE)
