"""A loop that gets the same things twice: two slices of one series, one scale computed twice.

``prices`` is walked through as two equal sequences, and ``exp(log_scale)`` was written down in two
places. `merge-duplicates` leaves one sequence and one non-sequence, and the body then shrinks.
"""

from __future__ import annotations

import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable


def build() -> dict[str, tuple[list[Variable], list[Variable]]]:
    """Return the running value of ``prices`` smoothed twice with the same scale."""
    prices = pt.vector("prices", dtype="float64")
    value0 = pt.scalar("value0", dtype="float64")
    log_scale = pt.scalar("log_scale", dtype="float64")
    values = pytensor.scan(
        lambda bid, ask, value, inner, outer: (
            0.9 * value + pt.tanh(bid / inner) + pt.tanh(ask / outer)
        ),
        sequences=[prices, prices],
        outputs_info=[value0],
        non_sequences=[pt.exp(log_scale), pt.exp(log_scale)],
        name="smoothed",
        return_updates=False,
    )
    return {"duplicates": ([prices, value0, log_scale], [values])}


if __name__ == "__main__":
    from build import HERE, write

    write(build(), HERE)
