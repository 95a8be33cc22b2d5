"""Passes that make a graph slow or large are found, and such graphs made smaller."""

from __future__ import annotations

import sys

import numpy as np
import pytensor.tensor as pt
import pytest

import scanopt_cli as so
from scanopt_cli.culprits.cost_properties import Larger, Slower
from scanopt_cli.culprits.properties import Limits, Property, State
from scanopt_cli.errors import VerificationError
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.pipeline.contract import Pass
from support.faulty_passes import FAULTY, Slowing, SplitTanh, Swelling
from support.graph_building import scan

# A call of the graph takes a fifth of a millisecond, and with the faulty rewrite forty of them.
SLOW = Slower(compiled_by="vm", seconds=0.01)
LARGE = Larger(compiled_by="vm", size=100_000_000)


def graph_with_tanhs(n: int = 4) -> Graph:
    x = pt.dscalar("x")

    def step(x):  # type: ignore[no-untyped-def]
        for k in range(n):
            x = pt.tanh(x + k / 10)
        return x

    return from_io([x], [scan(step, outputs_info=[x], n_steps=5)[-1]])


@pytest.fixture(autouse=True)
def _in_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCANOPT_STRICT", "1")


@pytest.mark.deep
@pytest.mark.parametrize(("faulty", "wrong"), [(Slowing(), SLOW), (Swelling(), LARGE)])
def test_a_pass_that_makes_a_call_costly(faulty: Pass, wrong: Property) -> None:
    (culprit,) = so.bisect(graph_with_tanhs(), (faulty,), wrong=wrong).culprits
    assert (culprit.name, culprit.number, culprit.mode) == (faulty.name, FAULTY, "vm")
    assert culprit.why.startswith("a call takes")
    assert culprit.is_certain


@pytest.mark.deep
@pytest.mark.parametrize("wrong", [SLOW, LARGE])
def test_twin_a_pass_that_costs_nothing(wrong: Property) -> None:
    assert not so.bisect(graph_with_tanhs(), (SplitTanh(),), wrong=wrong).culprits


def test_time_of_a_call() -> None:
    """A sum of ten million numbers takes longer than the bound, and one of ten does not."""
    n = pt.lscalar("n")
    total = pt.cumsum(pt.alloc(pt.cast(n, "float64"), n))[-1]
    for count, state in ((10_000_000, State.BROKEN), (10, State.FINE)):
        graph = Graph(fgraph=from_io([n], [total]).fgraph, recorded=((np.int64(count),),))
        found = SLOW.of(graph, graph, Limits())
        assert (found.state, found.mode) == (state, "vm"), found


@pytest.mark.skipif(sys.platform != "linux", reason="peaks are forgotten on Linux only")
def test_memory_of_a_call() -> None:
    """An array of 160 MB is seen, and one of half the bound is within it."""
    n = pt.lscalar("n")
    total = pt.cumsum(pt.alloc(pt.cast(n, "float64"), n))[-1]
    for count, state in ((10_000_000, State.BROKEN), (3_000_000, State.FINE)):
        graph = Graph(fgraph=from_io([n], [total]).fgraph, recorded=((np.int64(count),),))
        found = LARGE.of(graph, graph, Limits())
        assert (found.state, found.mode) == (state, "vm"), found


@pytest.mark.deep
def test_more_memory_than_there_is() -> None:
    n = pt.lscalar("n")
    total = pt.cumsum(pt.alloc(pt.cast(n, "float64"), n))[-1]
    graph = Graph(fgraph=from_io([n], [total]).fgraph, recorded=((np.int64(10**10),),))
    found = LARGE.of(graph, graph, Limits(memory=4 << 30))
    assert found.state is State.UNKNOWN or "out of memory" in found.why, found
    within = Graph(fgraph=graph.fgraph, recorded=((np.int64(10),),))
    assert LARGE.of(within, within, Limits()).state is State.FINE


def test_what_cannot_be_called_is_not_costly() -> None:
    x = pt.dvector("x")
    graph = Graph(fgraph=from_io([x], [x[pt.constant(5)]]).fgraph, recorded=((np.zeros(3),),))
    found = SLOW.of(graph, graph, Limits())
    assert found.state is State.UNKNOWN
    assert "IndexError" in found.why


@pytest.mark.deep
def test_a_graph_that_is_slow_as_it_is() -> None:
    always = Slower(compiled_by="vm", seconds=1e-9)
    with pytest.raises(VerificationError, match="before any rewrite: a call takes"):
        so.bisect(graph_with_tanhs(1), (SplitTanh(),), wrong=always)


@pytest.mark.deep
def test_a_slow_graph_is_made_smaller() -> None:
    """What takes the time stays, and the rest goes."""
    x, v = pt.dscalar("x"), pt.dvector("v")
    slow = pt.cumsum(pt.alloc(x, 5_000_000))[-1]
    graph = from_io([x, v], [slow * 2, pt.exp(v).sum() + pt.tanh(v).prod()])
    found = so.reduce(graph, wrong=SLOW)
    assert found.after <= 3
    assert "Cumsum{axis=0}" in {str(node.op) for node in walk(found.graph.fgraph)}
