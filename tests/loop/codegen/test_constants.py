"""Constants that are arrays."""

from __future__ import annotations

import numpy as np
import pytensor.tensor as pt

from support.direct_code import check


def test_constants_of_one_column_are_broadcast() -> None:
    column = np.array([[1.0], [2.0]])
    cases = [[np.arange(2.0 * n).reshape(2, n)] for n in (0, 1, 3, 9)]
    check(lambda one: one * pt.constant(column), [(None, None)], cases, lambda one: one * column)
