"""Lengths in bodies are told by those of what is around each node that has the body."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pytensor import scan
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.analysis.call_costs import operations
from scanopt_cli.analysis.statistics import statistics


def _graph(inputs: list[Variable], *outputs: Variable) -> FunctionGraph:
    return FunctionGraph(inputs, list(outputs), clone=False)


def _products() -> OpFromGraph:
    a, b = pt.dvectors("a", "b")
    rows = scan(lambda u, v: u * v, sequences=[a, b], return_updates=False)
    return OpFromGraph([a, b], [rows])


def test_nodes_that_share_a_body_have_lengths_of_their_own() -> None:
    products = _products()
    x, y, z, w = inputs = pt.dvectors("x", "y", "z", "w")
    graph = _graph(inputs, products(x, y), products(z, w))
    minima = "{0}min(x.shape[0],y.shape[0])+{0}min(z.shape[0],w.shape[0])"
    assert statistics(graph).buffer_bytes == minima.format("8*")
    assert str(operations(graph)) == f"{minima.format('')}+2"  # the minima themselves


def test_equal_minima_of_one_node_are_added_up() -> None:
    products = _products()
    x, y = inputs = pt.dvectors("x", "y")
    graph = _graph(inputs, products(x, y), products(x, y + 1.0))
    assert statistics(graph).buffer_bytes == "16*min(x.shape[0],y.shape[0])"


def test_numbers_that_a_step_is_given_are_told_as_well() -> None:
    n, x = pt.lscalar("n"), pt.dvector("x")

    def step(start: Any, n: Any) -> Any:
        inner = scan(lambda s: s * 0.5, outputs_info=[start], n_steps=n, return_updates=False)
        return inner.sum()

    sums = scan(step, sequences=[x], non_sequences=[n], return_updates=False)
    assert statistics(_graph([n, x], sums)).buffer_bytes == "8*n+8*x.shape[0]+8"
