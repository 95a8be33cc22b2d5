"""normalize-reads: its legal cases by number, and a twin that must not fire for each."""

from __future__ import annotations

import pytensor.tensor as pt
import pytest
from pytensor.scan.utils import until

from support.graph_building import graph_of, optimized, power, scan
from support.step_counts import check, rows_of, trimmed_to, unchanged

N = pt.lscalar("n")
LESS = "min(n,max(n-{k},0))"
PASSES = "normalize-reads,trim-steps"


def test_case_1_counted_by_the_steps() -> None:
    _, xs = power(N)
    assert trimmed_to(graph_of(xs[N - 1]), PASSES)[1] == ["min(1,n)+1"]


def test_case_1_twin_further_from_the_end() -> None:
    """``xs[n-2]`` of one row is its only row, ``xs[-2]`` an error."""
    _, xs = power(N)
    assert unchanged(graph_of(xs[N - 2]), PASSES) == []


def test_case_2_lengths() -> None:
    start = pt.dvector("start")
    ys = scan(lambda a: a * 0.9, outputs_info=[start], n_steps=N)
    graph = graph_of(ys.shape[0] * ys[-1], pt.zeros_like(ys), ys.shape)
    after, _ = optimized(graph, "normalize-reads,trim-steps,save-mem")
    assert rows_of(after) == ["min(1,n)+1"]
    check(graph, after)


def test_case_2_twin_while_loop() -> None:
    x = pt.dscalar("x")
    xs = scan(lambda y: (y * 1.5, until(y > 3)), outputs_info=[x], n_steps=N)
    unchanged(graph_of(xs.shape[0], xs[-1]), PASSES)


@pytest.mark.parametrize("steps", [N, 30])
def test_case_3_start_joined_again(steps) -> None:
    x, xs = power(steps)
    joined = pt.concatenate([x[None], xs])
    assert trimmed_to(graph_of(joined[-1]), PASSES)[1] == [f"{'min(1,n)+1' if steps is N else 2}"]
    assert trimmed_to(graph_of(joined[-3:]), PASSES)[1] == [f"{'min(2,n)+1' if steps is N else 3}"]


def test_case_3_twin_another_start() -> None:
    x, xs = power(N)
    assert unchanged(graph_of(pt.concatenate([x[None] * 2, xs])[-1]), PASSES) == []


def test_case_3_twin_more_is_joined() -> None:
    x, xs = power(N)
    assert unchanged(graph_of(pt.concatenate([x[None], xs, x[None] * 2])[-1]), PASSES) == []


def test_case_2_twin_a_length_without_a_count() -> None:
    """Its coefficients do not fit in 64 bits, so nothing computes it."""
    _, xs = power(N * 2**62 + N * 2**62)
    assert unchanged(graph_of(xs.shape[0], pt.zeros_like(xs).sum()), PASSES) == []
