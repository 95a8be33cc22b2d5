"""A loop that computes more than is read: what a model keeps after its outputs were dropped.

Of its four states only ``stock`` is read. ``mood`` and ``trend`` feed each other and nothing else,
``squares`` feeds itself. The sequence ``rain`` and the factor ``fee`` are handed in and not used.
`remove-unused` leaves one state, one sequence and one non-sequence.
"""

from __future__ import annotations

import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable


def build() -> dict[str, tuple[list[Variable], list[Variable]]]:
    """Return the stock after each delivery."""
    deliveries = pt.vector("deliveries", dtype="float64")
    rain = pt.vector("rain", dtype="float64")
    stock0 = pt.scalar("stock0", dtype="float64")
    loss = pt.scalar("loss", dtype="float64")
    fee = pt.scalar("fee", dtype="float64")

    def step(
        delivery: Variable,
        _rain: Variable,
        stock: Variable,
        mood: Variable,
        trend: Variable,
        squares: Variable,
        loss: Variable,
        _fee: Variable,
    ) -> list[Variable]:
        new = (1 - loss) * stock + delivery
        return [new, 0.5 * (mood + trend), pt.tanh(mood), squares + delivery**2]

    stocks, *_unread = pytensor.scan(
        step,
        sequences=[deliveries, rain],
        outputs_info=[stock0, stock0, stock0, stock0],
        non_sequences=[loss, fee],
        name="stock",
        return_updates=False,
    )
    return {"unused": ([deliveries, rain, stock0, loss, fee], [stocks])}


if __name__ == "__main__":
    from build import HERE, write

    write(build(), HERE)
