"""The running product of rows, with a derivative that is right where a factor is zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.scan.basic import scan
from pytensor.tensor.extra_ops import CumOp


class RunningProduct(CumOp):
    """The products of the first rows, for each number of rows: PyTensor's Op for cumprod.

    That one's derivative divides by the factors, and is NaN where one is zero. This one's runs
    backwards through the rows, as that of a loop does, so that second derivatives are right as
    well.
    """

    __props__ = ("axis", "mode")

    def __init__(self, axis: int = 0, mode: str = "mul") -> None:
        if axis != 0 or mode != "mul":
            raise ValueError(f"{type(self).__name__} multiplies rows, not {mode} along {axis}")
        super().__init__(axis, mode)

    def pullback(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        output_gradients: Sequence[Variable],
    ) -> list[Variable]:
        """Return the cotangent: of a row, all before times what later rows make of theirs."""
        factors: Any = inputs[0]
        products: Any = outputs[0]
        cotangents: Any = output_gradients[0]
        # What is behind the last row counts for nothing.
        later = pt.join(0, factors[1:], pt.ones_like(factors[:1]))
        sums = scan(
            lambda cotangent, factor, total: cotangent + factor * total,
            sequences=[cotangents[::-1], later[::-1]],
            outputs_info=[pt.zeros(factors.shape[1:], dtype=factors.type.dtype)],
            return_updates=False,
        )
        before = pt.join(0, pt.ones_like(products[:1]), products[:-1])
        return [before * sums[::-1]]
