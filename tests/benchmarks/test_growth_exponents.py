"""Work grows in proportion to a graph, in whichever way it is large.

Counted are calls of functions, which no busy machine changes. Loops inside of functions in C are
not seen so: those show in the times, which the table reports.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scanopt_cli.analysis.inspection import inspect_graph
from scanopt_cli.diff.comparing import diff
from scanopt_cli.ir.graph import Graph
from scanopt_cli.pipeline.optimizing import optimize
from scanopt_cli.reports.inspect_report import inspect_report
from scanopt_cli.rules.graph_checking import check
from support.benchmarks.growing_graphs import (
    chain_before,
    constants,
    gradients_apart,
    joined_sequence,
    long_body,
    many_taps,
    readers_in_a_step,
    readers_of_a_trace,
    scans_apart,
    scans_of_one_input,
    sequences,
    states,
    traces,
)
from support.growing import calls, exponent

_MAKERS = (
    chain_before,
    constants,
    joined_sequence,
    long_body,
    many_taps,
    readers_in_a_step,
    readers_of_a_trace,
    scans_apart,
    scans_of_one_input,
    sequences,
    states,
    traces,
)
_SMALL, _FACTOR = 25, 8
_MOST = 1.2


def _inspecting(graph: Graph) -> Callable[[], object]:
    return lambda: list(inspect_report(inspect_graph(graph.fgraph)))


def _by_default(graph: Graph) -> Callable[[], object]:
    return lambda: optimize(graph, "default")


def _to_loops(graph: Graph) -> Callable[[], object]:
    return lambda: optimize(graph, "loop")


def _comparing(graph: Graph) -> Callable[[], object]:
    after = optimize(graph, "default").graph
    return lambda: diff(graph, after)


def _checking(graph: Graph) -> Callable[[], object]:
    return lambda: check(graph)


_WORKS = (_inspecting, _by_default, _to_loops, _comparing)


@pytest.mark.parametrize(
    ("work", "maker"),
    [
        *((work, maker) for work in _WORKS for maker in _MAKERS),
        (_inspecting, gradients_apart),  # of which all else takes minutes
        *((_checking, maker) for maker in (scans_apart, states)),
    ],
    ids=lambda one: one.__name__.removeprefix("_"),
)
def test_growth(
    benchmark, work: Callable[[Graph], Callable[[], object]], maker: Callable[[int], Graph]
) -> None:
    benchmark.group = f"{work.__name__[1:].replace('_', ' ')}, growth"
    work(maker(2))()  # Imports and tables that are made once are not counted.
    counts = [calls(work(maker(size))) for size in (_SMALL, _SMALL * _FACTOR)]
    if not benchmark.disabled:
        benchmark.pedantic(work(maker(_SMALL * _FACTOR)), rounds=1)
    found = exponent(*counts, _FACTOR)
    benchmark.extra_info["exponent"] = found
    assert found <= _MOST
