"""Lengths in bodies are told by those of what is around each node that has the body."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph

from scanopt_cli.analysis.call_costs import operations
from scanopt_cli.analysis.statistics import statistics
from support.graph_building import graph_of, scan


def _products() -> OpFromGraph:
    a, b = pt.dvectors("a", "b")
    rows = scan(lambda u, v: u * v, sequences=[a, b])
    return OpFromGraph([a, b], [rows])


def test_nodes_that_share_a_body_have_lengths_of_their_own() -> None:
    products = _products()
    x, y, z, w = pt.dvectors("x", "y", "z", "w")
    graph = graph_of(products(x, y), products(z, w)).fgraph
    minima = "{0}min(x.shape[0],y.shape[0])+{0}min(z.shape[0],w.shape[0])"
    assert statistics(graph).buffer_bytes == minima.format("8*")
    assert str(operations(graph)) == f"{minima.format('')}+2"  # the minima themselves


def test_equal_minima_of_one_node_are_added_up() -> None:
    products = _products()
    x, y = pt.dvectors("x", "y")
    graph = graph_of(products(x, y), products(x, y + 1.0)).fgraph
    assert statistics(graph).buffer_bytes == "16*min(x.shape[0],y.shape[0])"


def test_numbers_that_a_step_is_given_are_told_as_well() -> None:
    n, x = pt.lscalar("n"), pt.dvector("x")

    def step(start: Any, n: Any) -> Any:
        inner = scan(lambda s: s * 0.5, outputs_info=[start], n_steps=n)
        return inner.sum()

    sums = scan(step, sequences=[x], non_sequences=[n])
    assert statistics(graph_of(sums).fgraph).buffer_bytes == "8*n+8*x.shape[0]+8"
