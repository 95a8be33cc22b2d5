"""Whatever a graph is: locked, it is clean, and so is the same graph written otherwise."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from scanopt_cli.gates.comparing import State, status_of
from scanopt_cli.gates.locking import locked_graph
from scanopt_cli.ir.graph import from_io
from support.generated.strategies import GeneratedScan, scan_graphs
from support.rewriting_alike import written_otherwise
from support.tiers import examples

OF_THE_FORM = {"C003", "N002", "P009"}
"""Rules about how an expression is written, and about what a loop becomes once compiled: the form
of the graph may decide both."""


@settings(max_examples=examples(8, 30), deadline=None)
@given(scan_graphs(), st.randoms(use_true_random=False))
def test_the_same_graph_has_the_same_findings(example: GeneratedScan, random: Random) -> None:
    graph = from_io(example.inputs, example.outputs)
    locked = locked_graph(graph, b"before")
    assert locked_graph(graph, b"before") == locked
    status = status_of("a", locked, locked_graph(written_otherwise(graph, random), b"after"))
    assert status.state is State.SAME
    assert {found.rule for found in (*status.found, *status.gone)} <= OF_THE_FORM
