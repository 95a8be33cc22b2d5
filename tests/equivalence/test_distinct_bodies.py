"""The distinct bodies of a graph: at any depth, each once, and counted where they are applied."""

from __future__ import annotations

from random import Random
from typing import Any

import pytensor.tensor as pt
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph

from scanopt_cli.analysis.statistics import statistics
from scanopt_cli.equivalence.hashing import BodyDigest, hash_graph
from scanopt_cli.ir.graph import Graph, from_io
from support.generated.strategies import GeneratedScan, scan_graphs
from support.graph_building import graph_of, power, scan
from support.rewriting_alike import written_otherwise
from support.tiers import examples


def bodies(graph: Graph, **notion: bool) -> tuple[BodyDigest, ...]:
    found = hash_graph(graph, inner=True, **notion).inner
    assert found is not None
    return found


def outline(graph: Graph, **notion: bool) -> list[str]:
    """Return a line for each body: how deep, how often, what it is and its names."""
    return [
        f"{'. ' * body.depth}{body.times} {body.kind} {' '.join(body.names)}".strip()
        for body in bodies(graph, **notion)
    ]


def doubled(x: Any, name: str, steps: Any = 3) -> Any:
    return scan(lambda y: y * 2, outputs_info=[x], n_steps=steps, name=name)[-1]


def power_of(x: Any) -> Any:
    return scan(lambda y: y**2, outputs_info=[x], n_steps=3, name="power")[-1]


def rows(x: Variable, name: str = "rows") -> Any:
    return scan(lambda y: doubled(y, "elements") + 1, outputs_info=[x], n_steps=4, name=name)[-1]


def test_none() -> None:
    x = pt.dvector("x")
    assert bodies(graph_of(pt.exp(x) + x.sum())) == ()
    assert hash_graph(graph_of(pt.exp(x))).inner is None


def test_loop_within_a_loop() -> None:
    assert outline(graph_of(rows(pt.dscalar("x")))) == ["1 Scan rows", ". 1 Scan elements"]


def test_loop_in_an_op_from_graph() -> None:
    x, y = pt.dscalars("x", "y")
    layer = OpFromGraph([x], [rows(x)], name="layer")
    assert outline(graph_of(layer(layer(y)))) == [
        "2 OpFromGraph layer",
        ". 2 Scan rows",
        ". . 2 Scan elements",
    ]


def test_a_batch_of_a_loop_has_its_body() -> None:
    v, b = pt.dvector("v"), pt.dmatrix("b")
    one = doubled(v, "doubled")
    batch = vectorize_graph(one, {v: b})
    assert outline(graph_of(batch)) == ["1 Scan doubled"]
    assert outline(graph_of(one, batch)) == ["2 Scan doubled"]


def test_equal_bodies_are_one_whatever_they_are_called_and_fed() -> None:
    x, n = pt.dscalar("x"), pt.lscalar("n")
    graph = graph_of(doubled(x, "b"), doubled(x + 1, "a", steps=n))
    assert outline(graph) == ["2 Scan a b"]
    assert sorted(outline(graph, names=True)) == ["1 Scan a", "1 Scan b"]


def test_gradients_of_op_from_graphs_count_if_asked_for() -> None:
    x, y = pt.dscalars("x", "y")
    graph = graph_of(*(OpFromGraph([x], [x * 2], inline=inline)(y) for inline in (True, False)))
    assert outline(graph) == ["2 OpFromGraph"]
    assert outline(graph, gradients=True) == ["1 OpFromGraph", "1 OpFromGraph"]


def test_a_body_stands_where_it_is_outermost() -> None:
    """In the graph itself if it is there too, and then behind what is needed for it."""
    x = pt.dscalar("x")
    before = rows(doubled(x, "elements"))
    after = doubled(power_of(rows(x)), "elements")
    assert outline(graph_of(before)) == ["2 Scan elements", "1 Scan rows"]
    assert outline(graph_of(after)) == ["1 Scan rows", "1 Scan power", "2 Scan elements"]


def test_order_does_not_depend_on_how_a_graph_was_built() -> None:
    x = pt.dscalar("x")
    one, other = doubled(x, "doubled"), power_of(x)
    assert outline(graph_of(one + other)) == outline(graph_of(other + one))


def test_a_loop_stands_before_its_gradient() -> None:
    x, xs = power()
    assert outline(graph_of(pt.grad(xs[-1], x))) == ["1 Scan square", "1 Scan grad_of_square"]


@settings(max_examples=examples(8, 200))
@given(generated=scan_graphs(), seed=st.integers(0, 2**32))
def test_generated_graphs(generated: GeneratedScan, seed: int) -> None:
    """How a graph is written does not count, and its Scans add up to those of the statistics."""
    graph = from_io(generated.inputs, generated.outputs)
    again = written_otherwise(graph, Random(seed))
    found, others = bodies(graph), bodies(again)
    assert [(b.digest, b.kind, b.depth) for b in found] == [
        (b.digest, b.kind, b.depth) for b in others
    ]
    for each, listed in ((graph, found), (again, others)):
        scans = sum(body.times for body in listed if body.kind == "Scan")
        assert scans == statistics(each.fgraph).scans
