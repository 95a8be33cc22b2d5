"""Whatever a graph is: locked, it is clean, and so is the same graph written otherwise."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scanopt_cli.gates.comparing import State, status_of
from scanopt_cli.gates.locking import locked_graph
from scanopt_cli.ir.graph import from_io
from support.generated.strategies import GeneratedScan, scan_graphs
from support.rewriting_alike import written_otherwise
from support.sample_building import samples
from support.tiers import examples

OF_THE_FORM = {"C003", "N002", "P007", "P009"}
"""Rules about how an expression is written, about what a loop becomes once compiled, and about the
loops of one derivative, which their names tell: the form of the graph may decide all three."""


@settings(max_examples=examples(3, 30), deadline=None)
@given(scan_graphs(), st.randoms(use_true_random=False))
def test_the_same_graph_is_the_same(example: GeneratedScan, random: Random) -> None:
    graph = from_io(example.inputs, example.outputs)
    locked = locked_graph(graph, "before")
    assert locked_graph(graph, "before") == locked
    status = status_of("a", locked, locked_graph(written_otherwise(graph, random), "after"))
    assert status.state is State.SAME


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("name", samples())
def test_the_same_graph_has_the_same_findings(name: str) -> None:
    """Of graphs made at random, a rule sees something in one form alone once in some 400."""
    graph = samples()[name]
    locked = locked_graph(graph, "before")
    for seed in range(examples(2, 10)):
        other = written_otherwise(graph, Random(seed))
        status = status_of("a", locked, locked_graph(other, "after"))
        assert status.state is State.SAME
        assert {found.rule for found in (*status.found, *status.gone)} <= OF_THE_FORM
