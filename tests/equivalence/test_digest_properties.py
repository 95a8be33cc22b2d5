"""Digests of generated graphs: blind to how a graph is written, not to what it computes."""

from __future__ import annotations

from random import Random

from hypothesis import assume, given
from hypothesis import strategies as st

from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.graph import from_io
from support.generated.strategies import GeneratedScan, scan_graphs
from support.rewriting_alike import mutated, written_otherwise


@given(generated=scan_graphs(), seed=st.integers(0, 2**32))
def test_how_a_graph_is_written_does_not_count(generated: GeneratedScan, seed: int) -> None:
    graph = from_io(generated.inputs, generated.outputs)
    again = written_otherwise(graph, Random(seed))
    assert digest(again) == digest(graph)


@given(generated=scan_graphs(), seed=st.integers(0, 2**32))
def test_what_a_graph_computes_counts(generated: GeneratedScan, seed: int) -> None:
    graph = from_io(generated.inputs, generated.outputs)
    other = mutated(graph, Random(seed))
    assume(other is not None)
    assert other is not None
    assert digest(other) != digest(graph)
