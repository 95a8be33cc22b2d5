"""What PyTensor does too, side by side: the same graph, cleaned by its rewriter and by ours.

Run with ``make bench``; the ratio of the two rows of a group is the figure.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import dfs_rewriter
from pytensor.scan.rewriting.io import scan_merge_duplicate_inputs

from scanopt_cli.ir.graph import Graph
from scanopt_cli.passes.merge_duplicates import MergeDuplicates
from scanopt_cli.pipeline.driver import PassDriver, RewriteBudget
from support.graph_building import graph_of, only_scan, scan

_DEPTH = 50


@cache
def _sequences(count: int, repeats: int, *, swapped: bool = False) -> Graph:
    """Return a loop with ``count`` deep sequences, of which each is there ``repeats`` times.

    They differ at the root only, so that telling two apart takes a walk down all of both.
    """
    x, y = pt.dvectors("x", "y")
    sequences = []
    for number in range(count):
        entry = x * (number // repeats + 2.0)
        for _ in range(_DEPTH):
            entry = pt.tanh(entry)
        sequences.append(entry + y if not swapped or number % 2 else y + entry)
    return graph_of(scan(lambda *entries: sum(entries), sequences=sequences))


def _by_pytensor(fgraph: FunctionGraph) -> None:
    dfs_rewriter(scan_merge_duplicate_inputs).rewrite(fgraph)


def _by_scanopt(fgraph: FunctionGraph) -> None:
    """The pass alone, as PyTensor's rewriter is: without the checks and rounds of a pipeline."""
    PassDriver(MergeDuplicates(), RewriteBudget()).run(fgraph)


@pytest.mark.parametrize("count", [100, 400])
@pytest.mark.parametrize("repeats", [1, 2, 20])
@pytest.mark.parametrize("merge", [_by_pytensor, _by_scanopt], ids=["pytensor", "scanopt"])
def test_merging_repeated_sequences(benchmark, merge: Callable, repeats: int, count: int) -> None:
    benchmark.group = f"merge {count} deep sequences, each there x{repeats}"
    cleaned: list[FunctionGraph] = []

    def copied() -> tuple[tuple[FunctionGraph], dict[str, object]]:
        cleaned[:] = [_sequences(count, repeats).copy().fgraph]
        return tuple(cleaned), {}

    benchmark.pedantic(merge, setup=copied, rounds=1)
    assert len(only_scan(cleaned[0]).slots) == count // repeats + 1


@pytest.mark.parametrize(("merge", "left"), [(_by_pytensor, 10), (_by_scanopt, 5)])
def test_merging_swapped_operands(merge: Callable, left: int) -> None:
    """Only ours finds that ``x + y`` is ``y + x``."""
    fgraph = _sequences(10, 2, swapped=True).copy().fgraph
    merge(fgraph)
    assert len(only_scan(fgraph).slots) == left + 1
