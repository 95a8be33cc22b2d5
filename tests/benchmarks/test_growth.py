"""How time grows with the graph: loading, each pass, the whole pipeline, on 100 to 10,000 nodes.

Run with ``make bench``; a row that grows more than tenfold a step is not linear.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from sized_graphs import (
    SIZES,
    differentiated_graph,
    invariant_graph,
    reading_graph,
    sized_graph,
    small_arrays_graph,
    summing_graph,
    traced_graph,
)

from scanopt_cli.analysis.statistics import statistics
from scanopt_cli.diff.comparing import diff
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.graph import Graph
from scanopt_cli.passes.carry_reductions import CarryReductions
from scanopt_cli.passes.clean_slices.clean_slices import CleanSlices
from scanopt_cli.passes.compile_safe.compile_safe import CompileSafe
from scanopt_cli.passes.constant_states import ConstantStates
from scanopt_cli.passes.hoist_states import HoistStates
from scanopt_cli.passes.loop_to_scan import LoopToScan
from scanopt_cli.passes.mit_mot_to_sit_sot.mit_mot_to_sit_sot import MitMotToSitSot
from scanopt_cli.passes.normalize_reads.normalize_reads import NormalizeReads
from scanopt_cli.passes.peel_first_step import PeelFirstStep
from scanopt_cli.passes.push_out import PushOut
from scanopt_cli.passes.push_out_sums import PushOutSums
from scanopt_cli.passes.trace_to_last import TraceToLast
from scanopt_cli.passes.trim_steps.trim_steps import TrimSteps
from scanopt_cli.passes.unroll_small.unroll_small import UnrollSmall
from scanopt_cli.pipeline.grammar import parse
from scanopt_cli.pipeline.optimizing import optimize
from scanopt_cli.pipeline.registry import builtin
from scanopt_cli.pipeline.runner import run_pipeline
from scanopt_cli.serialization.loading import load
from scanopt_cli.serialization.saving import save

_ON_GRADIENTS = (MitMotToSitSot.name, CleanSlices.name, "grad")
_ON_INVARIANTS = (HoistStates.name, CompileSafe.name, PushOut.name)
_ON_READERS = (NormalizeReads.name, PeelFirstStep.name, CarryReductions.name, TrimSteps.name)
_ON_LOOPS = (TraceToLast.name, ConstantStates.name, LoopToScan.name)
_PIPELINES = [
    name
    for name in (*(cls.name for cls in builtin()), "default")
    if name not in (*_ON_GRADIENTS, *_ON_INVARIANTS, *_ON_READERS, *_ON_LOOPS)
    and name not in (PushOutSums.name, UnrollSmall.name)
]
graph_of_size = cache(sized_graph)
differentiated = cache(differentiated_graph)


@pytest.fixture(params=SIZES, ids=lambda nodes: f"{nodes}-nodes")
def graph(request: pytest.FixtureRequest) -> Graph:
    return graph_of_size(request.param)


@pytest.mark.parametrize("pipeline", _PIPELINES)
def test_pipeline(benchmark, graph: Graph, pipeline: str) -> None:
    _run_on_copies(benchmark, graph, pipeline)


@pytest.mark.parametrize("nodes", SIZES, ids=lambda nodes: f"{nodes}-nodes")
@pytest.mark.parametrize("pipeline", _ON_GRADIENTS)
def test_pipeline_on_gradients(benchmark, nodes: int, pipeline: str) -> None:
    _run_on_copies(benchmark, differentiated(nodes), pipeline)


@pytest.mark.parametrize("nodes", SIZES, ids=lambda nodes: f"{nodes}-nodes")
@pytest.mark.parametrize("pipeline", _ON_INVARIANTS)
def test_pipeline_on_invariants(benchmark, nodes: int, pipeline: str) -> None:
    _run_on_copies(benchmark, cache(invariant_graph)(nodes), pipeline)


@pytest.mark.parametrize("nodes", SIZES, ids=lambda nodes: f"{nodes}-nodes")
@pytest.mark.parametrize("pipeline", _ON_READERS)
def test_pipeline_on_readers(benchmark, nodes: int, pipeline: str) -> None:
    _run_on_copies(benchmark, cache(reading_graph)(nodes), pipeline)


@pytest.mark.parametrize("nodes", SIZES, ids=lambda nodes: f"{nodes}-nodes")
@pytest.mark.parametrize("pipeline", _ON_LOOPS)
def test_pipeline_on_traced_loops(benchmark, nodes: int, pipeline: str) -> None:
    _run_on_copies(benchmark, cache(traced_graph)(nodes), pipeline)


@pytest.mark.parametrize("nodes", SIZES, ids=lambda nodes: f"{nodes}-nodes")
def test_sums(benchmark, nodes: int) -> None:
    _run_on_copies(benchmark, cache(summing_graph)(nodes), PushOutSums.name)


@pytest.mark.parametrize("nodes", SIZES, ids=lambda nodes: f"{nodes}-nodes")
def test_small_arrays(benchmark, nodes: int) -> None:
    _run_on_copies(benchmark, cache(small_arrays_graph)(nodes), UnrollSmall.name)


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
