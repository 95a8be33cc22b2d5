"""A recurrent network whose input never changes: two of its sequences have equal rows.

``gain`` is a Constant of ones and ``drive`` an Alloc of zeros, both of shape (20, 4), as they come
out of a model with a switched-off input. `inline-constants` turns both into constants of the body.
``rnn_grad`` is the gradient of the loss by ``W``, where they are sequences of two Scans.
"""

from __future__ import annotations

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

STEPS, WIDTH = 20, 4


def build() -> dict[str, tuple[list[Variable], list[Variable]]]:
    """Return the squared length of the last hidden state, and its gradient by ``W``."""
    h0 = pt.vector("h0", dtype="float64", shape=(WIDTH,))
    W = pt.matrix("W", dtype="float64", shape=(WIDTH, WIDTH))  # noqa: N806
    gain = pt.constant(np.ones((STEPS, WIDTH)), name="gain")
    drive = pt.zeros((STEPS, WIDTH), dtype="float64")
    drive.name = "drive"
    hidden = pytensor.scan(
        lambda gain, drive, h, W: pt.tanh(gain * pt.dot(h, W) + drive),  # noqa: N803
        sequences=[gain, drive],
        outputs_info=[h0],
        non_sequences=[W],
        name="rnn",
        return_updates=False,
    )
    loss = (hidden[-1] ** 2).sum()
    return {"rnn": ([h0, W], [loss]), "rnn_grad": ([h0, W], [pt.grad(loss, W)])}


if __name__ == "__main__":
    from build import HERE, write

    write(build(), HERE)
