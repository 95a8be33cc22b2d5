"""What is read of loops is what was there, once PyTensor has compiled what scanopt returned."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from support.axis_readers import ReadTraces, read_traces
from support.compiled_readers import ARGUMENTS, INPUTS, read_loops
from support.compiled_ways import BY_TIER, EVERY_WAY, NUMBA, assert_right
from support.tiers import examples

_EXAMPLES = examples(8, 100)


@pytest.mark.tiered(every=2)
@pytest.mark.parametrize("way", BY_TIER)
@settings(max_examples=_EXAMPLES)
@given(outputs=read_loops())
def test_rows_are_read_as_they_were(outputs: list[Any], way: str) -> None:
    assert_right(INPUTS, outputs, ARGUMENTS, EVERY_WAY[way])


@pytest.mark.tiered(every=2)
@pytest.mark.parametrize("way", BY_TIER)
@settings(max_examples=examples(4, 60))
@given(traces=read_traces())
def test_all_axes_are_read_as_they_were(traces: ReadTraces, way: str) -> None:
    assert_right(traces.inputs, traces.outputs, traces.with_steps, EVERY_WAY[way])


@pytest.mark.deep
@settings(max_examples=examples(1, 10))
@given(traces=read_traces(most=1))
def test_all_axes_are_read_by_numba(traces: ReadTraces) -> None:
    assert_right(
        traces.inputs, traces.outputs, traces.with_steps, EVERY_WAY["optimize -p loop"], NUMBA
    )
