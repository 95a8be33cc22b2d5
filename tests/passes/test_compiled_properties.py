"""What generated loops compute once PyTensor has compiled them, with scanopt's hand in it.

All of PyTensor's rewrites run, its own of loops too, some of which are wrong: no loop that the
generator draws is left out for that.
"""

from __future__ import annotations

import pytest
from compiled_ways import WAYS, assert_right
from hypothesis import given, settings
from pytensor.configdefaults import config

from strategies import GeneratedScan, scan_graphs

if not config.scan__allow_output_prealloc:
    pytest.skip("loops are compiled otherwise", allow_module_level=True)

_EXAMPLES = 15 if settings.default.max_examples <= 50 else 40


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=_EXAMPLES)
@given(generated=scan_graphs(generators=True))
def test_generated_loops_compile_to_their_values(generated: GeneratedScan, way: str) -> None:
    assert_right(generated, WAYS[way])
