"""A Hessian whose rows are computed together: Scans inside Blockwise.

``jacobian(..., vectorize=True)`` differentiates the gradient once, for a symbolic direction, and
then puts all directions in as a batch. The Scans that see the direction end up as the core of
``Blockwise{Scan}``, where a walk that only looks for Scan nodes misses them.
"""

from __future__ import annotations

import pytensor
import pytensor.tensor as pt
from pytensor.gradient import jacobian
from pytensor.graph.basic import Variable


def build() -> dict[str, tuple[list[Variable], list[Variable]]]:
    """Return the Hessian, shape (n, n), of the last size of coupled populations by ``x``."""
    x = pt.vector("x", dtype="float64")

    def step(size: Variable, x: Variable) -> Variable:
        return size * pt.exp(-0.1 * size.sum()) + x

    sizes = pytensor.scan(
        step,
        outputs_info=[pt.zeros_like(x)],
        non_sequences=[x],
        n_steps=3,
        name="populations",
        return_updates=False,
    )
    gradient = pt.grad(sizes[-1].sum(), x)
    return {"vectorised": ([x], [jacobian(gradient, x, vectorize=True)])}


if __name__ == "__main__":
    from build import HERE, write

    write(build(), HERE)
