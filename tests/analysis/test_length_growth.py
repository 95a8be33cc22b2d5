"""Lengths of wide joins and of loops with many outputs are read off in linear time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytensor.tensor as pt
import pytest

from scanopt_cli.analysis.lengths import Lengths
from support.benchmarks.growing_graphs import sequences
from support.graph_building import only_scan, scan
from support.growing import calls, exponent

_SMALL, _FACTOR = 40, 8


def _joined(n: int) -> list[Any]:
    return [pt.concatenate([pt.dvector(f"x{i}") for i in range(n)])]


def _outputs_of_one_loop(n: int) -> list[Any]:
    starts = [pt.dscalar(f"y{i}") for i in range(n)]
    made = scan(lambda *h: [y * 2 for y in h], outputs_info=starts, n_steps=pt.lscalar("n"))
    return [ys.owner.inputs[0] for ys in made]


@pytest.mark.parametrize("made", [_joined, _outputs_of_one_loop])
def test_lengths_take_linear_time(made: Callable[[int], list[Any]]) -> None:
    counts = []
    for size in (_SMALL, _SMALL * _FACTOR):
        variables, lengths = made(size), Lengths()
        counts.append(calls(lambda v=variables, k=lengths: [k.length_of(each) for each in v]))
    assert exponent(*counts, _FACTOR) < 1.1


def test_minima_are_opened_once() -> None:
    """The steps of a loop over n sequences are the least of n lengths, in n nested minima."""
    counts = []
    for size in (50, 100):
        n_steps = only_scan(sequences(size).fgraph).n_steps
        counts.append(calls(lambda v=n_steps: Lengths(v)))
    assert counts[0] < 250_000
    assert counts[1] < 1.5 * counts[0]
