"""A Scan inside a Scan: the outer loop walks the rows of ``X``, the inner one each row's elements.

The inner Scan carries a second state, ``peak``, whose trace the outer loop stacks up though no
output of the graph reads it: what computes it is dead on both levels, which a pass only sees when
it looks from the outer loop into the inner one.
"""

from __future__ import annotations

import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable


def build() -> dict[str, tuple[list[Variable], list[Variable]]]:
    """Return the state after the last row."""
    X = pt.matrix("X", dtype="float64")  # noqa: N806
    h0 = pt.scalar("h0", dtype="float64")
    w = pt.scalar("w", dtype="float64")

    def element(x: Variable, h: Variable, peak: Variable, w: Variable) -> list[Variable]:
        new = pt.tanh(w * h + x)
        return [new, pt.maximum(peak, new)]

    def row(x: Variable, h: Variable, w: Variable) -> list[Variable]:
        states, peaks = pytensor.scan(
            element,
            sequences=[x],
            outputs_info=[h, h],
            non_sequences=[w],
            name="elements",
            return_updates=False,
        )
        return [states[-1], peaks[-1]]

    states, _peaks = pytensor.scan(
        row,
        sequences=[X],
        outputs_info=[h0, None],
        non_sequences=[w],
        name="rows",
        return_updates=False,
    )
    return {"nested": ([X, h0, w], [states[-1]])}


if __name__ == "__main__":
    from build import HERE, write

    write(build(), HERE)
