"""`simplify`: bodies without needless arithmetic, and the same values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.gradient import pushforward

from evaluating import assert_same_outcomes, evaluate
from graph_building import arguments, graph_of, only_scan, optimized, scan
from scanopt_cli.graphs.graph import Graph
from scanopt_cli.graphs.statistics import statistics


def _same(graph: Graph, work: Graph, **values: object) -> None:
    data = arguments(graph, **values)
    assert_same_outcomes(
        evaluate(graph.inputs, graph.outputs, data), evaluate(work.inputs, work.outputs, data)
    )


def test_case_1_bodies() -> None:
    x = pt.dscalar("x")
    graph = graph_of(scan(lambda y: (y * 1.0 + 0.0) ** 1 + y - y, outputs_info=[x], n_steps=3))
    work, remarks = optimized(graph, "simplify")
    assert statistics(work.fgraph).inner_nodes < statistics(graph.fgraph).inner_nodes
    assert statistics(work.fgraph).outer_nodes == statistics(graph.fgraph).outer_nodes
    assert remarks[0].startswith("changed scan_fn: simplified: ")
    _same(graph, work, x=1.5)


def test_case_1_bodies_of_op_from_graphs_and_the_graph_itself() -> None:
    x = pt.dscalar("x")
    y = pt.dscalar("y")
    layer = OpFromGraph([x], [x * 1.0 + 0.0 * x])
    graph = graph_of(layer(y) * 1.0)
    work, remarks = optimized(graph, "simplify{outer=true}")
    assert [remark.split(":")[0] for remark in remarks] == [
        "changed OpFromGraph",
        "changed graph",
    ]
    _same(graph, work, y=1.5)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_forward_derivatives_have_one_state_an_order(order: int) -> None:
    """Simplified and merged, the 2^n states of the n-th forward derivative are n+1."""
    x = pt.dscalar("x")
    graph = graph_of(scan(lambda y: y - 0.001 * y**2, outputs_info=[x], n_steps=20)[-1])
    for _ in range(order):
        (x,), (last,) = graph.inputs, graph.outputs
        (forward,) = pushforward([last], [x], [pt.ones_like(x)], use_op_pushforward=True)
        raw = graph_of(forward)
        graph, _ = optimized(raw, "merge-equal,simplify,merge-states,remove-unused")
        _same(raw, graph, x=1.5)
    assert len(only_scan(graph.fgraph).slots) == order + 1


@pytest.mark.parametrize(
    ("step", "left"),
    [
        (lambda y: y * y, 1),
        (lambda y: y**2 * y**3, 1),
        (lambda y: (2 * y) * (3 * y), 1),
        (lambda y: pt.exp(y) * pt.exp(y), 2),
        (lambda y: pt.tanh(y + 1) * 2 - 3 * pt.tanh(1 + y), 5),
    ],
    ids=["square", "powers", "factors", "exponents", "common"],
)
def test_common_factors_and_subexpressions(step: Callable[[Any], Any], left: int) -> None:
    """Powers of a common factor are one power, and what is computed twice is computed once."""
    x = pt.dscalar("x")
    graph = graph_of(scan(step, outputs_info=[x], n_steps=3))
    work, _ = optimized(graph, "merge-equal,simplify")
    assert statistics(work.fgraph).inner_nodes <= left
    _same(graph, work, x=0.4)


def test_reversed_slices_of_known_lengths_stay_right() -> None:
    """PyTensor 3.3.7 itself reads `x[0]` here, where `x[4]` is right."""
    s = pt.matrix("s", shape=(3, 5), dtype="float64")
    graph = graph_of(scan(lambda row: row[:-2:-1].sum(), sequences=[s]))
    work, _ = optimized(graph, "simplify{outer=true}")
    _same(graph, work, s=np.arange(15.0).reshape(3, 5))


def test_limit() -> None:
    from scanopt_cli.passes.grammar import parse
    from scanopt_cli.passes.pipeline import run_pipeline

    x = pt.dscalar("x")
    work = graph_of(scan(lambda y: y * 1.0 + 0.0, outputs_info=[x], n_steps=3))
    before = statistics(work.fgraph)
    run_pipeline(work.fgraph, parse("simplify"), limit=0)
    assert statistics(work.fgraph) == before
