"""Bugs of PyTensor 3.3.7, each a strict xfail: loops that its rewrites cannot make again.

`upstream_modes` says what this directory is. None of these gets wrong values: the rewrite fails,
which PyTensor logs, and the loop stays as slow or as large as it was.
"""

from __future__ import annotations

import pytensor
import pytest
from pytensor.configdefaults import config

from support.unit_lengths import FORMS
from support.upstream_modes import FAST, bug


@bug(
    "a rewrite fails on a loop once a length of 1 is known outside that the body leaves open:"
    " Scan.make_node wants the same lengths of 1 in both, and Scan's constructor in both ends of a"
    " state",
    ours="passes/of_scans/compile_safe/unit_lengths.py",
    raises=(TypeError, ValueError),
)
@pytest.mark.parametrize("form", FORMS)
def test_a_length_of_one_that_is_found_later(form: str) -> None:
    graph = FORMS[form]()
    with config.change_flags(on_opt_error="raise"):
        pytensor.function(graph.inputs, graph.outputs, mode=FAST)
