"""Bugs of PyTensor 3.3.7, each a strict xfail: forms that appear while it compiles."""

from __future__ import annotations

import numpy as np
import pytest

from support.evaluating import PLAIN
from support.later_forms import MISREAD
from support.upstream_modes import FAST, bug, value


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=bug(
                reason, ours="integration/compilation/sealing.py, passes/of_scans/compile_safe"
            ),
        )
        for name, (_, reason) in MISREAD.items()
    ],
)
def test_forms_that_appear_while_compiling(name: str) -> None:
    output, arguments = MISREAD[name][0]()
    np.testing.assert_allclose(value(output, arguments, FAST), value(output, arguments, PLAIN))
