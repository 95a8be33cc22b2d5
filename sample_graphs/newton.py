"""A while-loop: Newton's iteration for the square root of ``a``, until it is close enough.

The Scan stops by its condition, at ``max_steps`` at the latest. The root reads the last step and
the count reads the length, so one element of the buffer would do, but the number of steps is not
known beforehand.
"""

from __future__ import annotations

import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.scan.utils import until


def build() -> dict[str, tuple[list[Variable], list[Variable]]]:
    """Return the root and how many steps it took."""
    a = pt.scalar("a", dtype="float64")
    tolerance = pt.scalar("tolerance", dtype="float64")
    max_steps = pt.scalar("max_steps", dtype="int64")

    def step(root: Variable, a: Variable, tolerance: Variable) -> tuple[Variable, until]:
        better = 0.5 * (root + a / root)
        return better, until(abs(better**2 - a) < tolerance)

    roots = pytensor.scan(
        step,
        outputs_info=[a],
        non_sequences=[a, tolerance],
        n_steps=max_steps,
        name="newton",
        return_updates=False,
    )
    return {"newton": ([a, tolerance, max_steps], [roots[-1], roots.shape[0]])}


if __name__ == "__main__":
    from build import HERE, write

    write(build(), HERE)
