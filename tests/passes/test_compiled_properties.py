"""What generated loops compute once PyTensor has compiled them, with scanopt's hand in it.

All of PyTensor's rewrites run, its own of loops too, some of which are wrong: no loop that the
generator draws is left out for that.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings

from support.compiled_programs import PROGRAMS
from support.compiled_ways import (
    BACKENDS,
    BY_TIER,
    EVERY_WAY,
    NUMBA,
    VM,
    assert_right,
    right_sums,
    saved,
)
from support.generated.strategies import GeneratedScan, scan_graphs
from support.tiers import deep, examples

_EXAMPLES = examples(6, 60)


@pytest.fixture(autouse=True, scope="module")
def _right_sums() -> Iterator[None]:
    with right_sums():
        yield


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("way", BY_TIER)
@settings(max_examples=_EXAMPLES)
@given(generated=scan_graphs(generators=True))
def test_generated_loops_compile_to_their_values(generated: GeneratedScan, way: str) -> None:
    assert_right(generated.inputs, generated.outputs, generated.arguments, EVERY_WAY[way])


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize(
    "passes",
    [
        "push-out",
        "hoist-states",
        *deep("push-out-batches", "push-out-products", "factor-once", "loops-to-ops", "fold-loops"),
    ],
)
@settings(max_examples=examples(4, 40))
@given(generated=scan_graphs(generators=True))
def test_passes_by_themselves_compile_to_values(generated: GeneratedScan, passes: str) -> None:
    for mode in BACKENDS:
        way = saved(f"{passes},compile-safe")
        assert_right(generated.inputs, generated.outputs, generated.arguments, way, mode)


@pytest.mark.deep
@pytest.mark.parametrize("way", EVERY_WAY)
@pytest.mark.parametrize("program", PROGRAMS)
def test_chosen_loops_compile_to_their_values(program: str, way: str) -> None:
    assert_right(*PROGRAMS[program](), EVERY_WAY[way], VM)


@pytest.mark.deep
@pytest.mark.parametrize("way", ["optimize -p grad", "enabled('grad')", "enabled('loop')"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_chosen_loops_compile_with_numba(program: str, way: str) -> None:
    assert_right(*PROGRAMS[program](), EVERY_WAY[way], NUMBA)
