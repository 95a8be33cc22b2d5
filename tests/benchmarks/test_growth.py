"""How time grows with the graph: loading, each pass, the whole pipeline, on 100 to 10,000 nodes.

Run with ``make bench``; a row that grows more than tenfold a step is not linear.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.analysis.statistics import statistics
from scanopt_cli.diff.comparing import diff
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.graph import Graph
from scanopt_cli.passes.clean_ofg.clean_ofg import CleanOfg
from scanopt_cli.passes.clean_slices.clean_slices import CleanSlices
from scanopt_cli.passes.factor_once import FactorOnce
from scanopt_cli.passes.fold_loops.fold_loops import FoldLoops
from scanopt_cli.passes.hoist_states import HoistStates
from scanopt_cli.passes.inline_ofg import InlineOfg
from scanopt_cli.passes.loop_to_scan.loop_to_scan import LoopToScan
from scanopt_cli.passes.loops_to_ops.loops_to_ops import LoopsToOps
from scanopt_cli.passes.normalize_reads.normalize_reads import NormalizeReads
from scanopt_cli.passes.of_scans.carry_reductions.carry_reductions import CarryReductions
from scanopt_cli.passes.of_scans.compile_safe.compile_safe import CompileSafe
from scanopt_cli.passes.of_scans.drop_taps import DropTaps
from scanopt_cli.passes.of_scans.mit_mot_to_sit_sot.mit_mot_to_sit_sot import MitMotToSitSot
from scanopt_cli.passes.of_traced_loops.checkpoint import Checkpoint
from scanopt_cli.passes.of_traced_loops.keep_values.keep_values import KeepValues
from scanopt_cli.passes.of_traced_loops.merge_products import MergeProducts
from scanopt_cli.passes.of_traced_loops.trace_to_last.trace_to_last import TraceToLast
from scanopt_cli.passes.of_traced_loops.unroll_loops import UnrollLoops
from scanopt_cli.passes.of_traced_loops.unroll_small.unroll_small import UnrollSmall
from scanopt_cli.passes.peel_first_step import PeelFirstStep
from scanopt_cli.passes.push_out.push_out import PushOut
from scanopt_cli.passes.push_out_batches.push_out_batches import PushOutBatches
from scanopt_cli.passes.push_out_products import PushOutProducts
from scanopt_cli.passes.push_out_sums.push_out_sums import PushOutSums
from scanopt_cli.passes.share_factors import ShareFactors
from scanopt_cli.passes.split_states.split_states import SplitStates
from scanopt_cli.passes.trim_steps.trim_steps import TrimSteps
from scanopt_cli.pipeline.grammar import parse
from scanopt_cli.pipeline.optimizing import optimize
from scanopt_cli.pipeline.registry import builtin
from scanopt_cli.pipeline.runner import run_pipeline
from scanopt_cli.serialization.loading import load
from scanopt_cli.serialization.saving import save
from support.benchmarks.sized_graphs import (
    SIZES,
    backward_loops_graph,
    constant_loops_graph,
    differentiated_graph,
    filters_graph,
    gates_graph,
    invariant_graph,
    layers_graph,
    loops_in_loops_graph,
    networks_graph,
    reading_graph,
    running_graph,
    sized_graph,
    small_arrays_graph,
    solves_graph,
    summing_graph,
    traced_graph,
    unread_taps_graph,
)

# Each pass runs on a graph that has work for it.
_OTHER_GRAPHS: dict[Callable[[int], Graph], Sequence[str]] = {
    differentiated_graph: (MitMotToSitSot.name, CleanSlices.name, "grad"),
    invariant_graph: (HoistStates.name, CompileSafe.name, PushOut.name),
    reading_graph: (NormalizeReads.name, PeelFirstStep.name, CarryReductions.name, TrimSteps.name),
    networks_graph: (PushOutProducts.name, PushOutBatches.name),
    summing_graph: (PushOutSums.name,),
    constant_loops_graph: (FoldLoops.name,),
    unread_taps_graph: (DropTaps.name,),
    running_graph: (LoopsToOps.name, ShareFactors.name),
    gates_graph: (MergeProducts.name,),
    solves_graph: (FactorOnce.name,),
    filters_graph: (SplitStates.name,),
    traced_graph: (TraceToLast.name, LoopToScan.name),
    small_arrays_graph: (UnrollSmall.name, Checkpoint.name),
    loops_in_loops_graph: (UnrollLoops.name,),
    backward_loops_graph: (KeepValues.name,),
    layers_graph: (CleanOfg.name, InlineOfg.name),
}
_MAKERS = {name: maker for maker, names in _OTHER_GRAPHS.items() for name in names}
# What mends mistakes has no work in graphs without any.
_MENDING = (
    *(
        "carry-generators",
        "initial-rows-alone",
        "safe-branches",
        "stop-at-fixed-point",
        "stable-log-sums",
        "widen-integers",
    ),
    *("match-precision",),
)
_PIPELINES = (
    *(cls.name for cls in builtin() if cls.name not in _MENDING),
    "default",
    "grad",
)


@cache
def _made(maker: Callable[[int], Graph], nodes: int) -> Graph:
    return maker(nodes)


@pytest.fixture(params=SIZES, ids=lambda nodes: f"{nodes}-nodes")
def graph(request: pytest.FixtureRequest) -> Graph:
    return _made(sized_graph, request.param)


@pytest.mark.parametrize("nodes", SIZES, ids=lambda nodes: f"{nodes}-nodes")
@pytest.mark.parametrize("pipeline", _PIPELINES)
def test_pipeline(benchmark, nodes: int, pipeline: str) -> None:
    if benchmark.disabled and nodes > 1_000:
        pytest.skip("a size that is there to be timed")
    _run_on_copies(benchmark, _made(_MAKERS.get(pipeline, sized_graph), nodes), pipeline)


def _run_on_copies(benchmark, graph: Graph, pipeline: str) -> None:
    benchmark.group = pipeline
    passes = parse(pipeline)

    def copied() -> tuple[tuple[Graph], dict[str, object]]:
        return (graph.copy(),), {}

    runs = benchmark.pedantic(
        lambda work: run_pipeline(work.fgraph, passes), setup=copied, rounds=3, warmup_rounds=1
    )
    assert any(run.changed for run in runs)


def test_load(benchmark, graph: Graph, tmp_path: Path) -> None:
    benchmark.group = "load"
    path = tmp_path / "graph.pkl"
    save(graph, path)
    loaded = benchmark.pedantic(load, args=(path,), rounds=3, warmup_rounds=1)
    assert len(loaded.fgraph.apply_nodes) == len(graph.fgraph.apply_nodes)


def test_save(benchmark, graph: Graph, tmp_path: Path) -> None:
    benchmark.group = "save"
    path = tmp_path / "graph.pkl"
    benchmark.pedantic(save, args=(graph, path), rounds=3, warmup_rounds=1)
    assert path.exists()


def test_digest(benchmark, graph: Graph) -> None:
    benchmark.group = "digest"
    assert benchmark.pedantic(digest, args=(graph.fgraph,), rounds=3, warmup_rounds=1)


def test_digest_of_a_long_chain(benchmark) -> None:
    benchmark.group = "digest of 100,000 nodes"
    x = pt.dvector("x")
    y = x
    for _ in range(50_000):
        y = pt.tanh(y) + x
    fgraph = FunctionGraph([x], [y], clone=False)
    assert benchmark.pedantic(digest, args=(fgraph,), rounds=3)


def test_statistics(benchmark, graph: Graph) -> None:
    benchmark.group = "statistics"
    counted = benchmark.pedantic(statistics, args=(graph.fgraph,), rounds=3, warmup_rounds=1)
    assert counted.scans


def test_diff(benchmark, graph: Graph) -> None:
    benchmark.group = "diff"
    after = optimize(graph).graph
    found = benchmark.pedantic(diff, args=(graph, after), rounds=3, warmup_rounds=1)
    assert found.changes
