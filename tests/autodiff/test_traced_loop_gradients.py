"""`grad` differentiates TracedLoops as it does Scans, by every strategy."""

from __future__ import annotations

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Variable

import scanopt_cli as so
from scanopt_cli import loop
from scanopt_cli.autodiff.pedigree.pedigree import Pedigree, pedigree
from scanopt_cli.ir.graph import Graph
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.ir.scan_view import scan_op
from scanopt_cli.loop import TracedLoop
from scanopt_cli.reports.grad_report import headings, rows
from support.evaluating import evaluate
from support.graph_building import arguments, graph_of

x, w = pt.dscalars("x", "w")
v = pt.dvector("v")


def derivative(graph: Graph, order: int, strategy: str) -> Graph:
    found: Graph = so.grad(graph, order=order, strategy=strategy).graph
    return found


COSTS = {
    "last value": lambda: loop.scan(
        lambda s, _, c: (pt.sin(s) * c + 0.1, None), x, None, w, max_steps=5
    )[0],
    "two states": lambda: loop.scan(
        lambda s, _, c: ((s[1] * 0.5, s[0] * s[1] + c), s[0] * c), (x, w), None, w, max_steps=4
    )[1].sum(),
    "rows of a sequence": lambda: loop.scan(
        lambda s, row: (s * row + s, s**2 * pt.tanh(row)), x, pt.stack([x, w, x * w])
    )[1].sum(),
    "a condition": lambda: loop.while_loop(
        lambda s, _: s < 10.0, lambda s, c: s * s + c, x, w, max_steps=20
    ),
}


@pytest.mark.tiered(every=4)
@pytest.mark.parametrize("name", COSTS)
@pytest.mark.parametrize("strategy", ["forward", "forward-over-reverse"])
@pytest.mark.parametrize("order", [1, 2])
def test_strategies_agree(name: str, strategy: str, order: int) -> None:
    graph = graph_of(COSTS[name]())
    found, wanted = (derivative(graph, order, by) for by in (strategy, "reverse"))
    assert not any(scan_op(node) for node in walk(found.fgraph))
    values = arguments(graph, x=0.7, w=1.3)
    got = evaluate(found.inputs, found.outputs, values)
    expected = evaluate(wanted.inputs, wanted.outputs, values)
    for new, old in zip(got, expected, strict=True):
        assert not isinstance(new, Exception)
        assert not isinstance(old, Exception)
        np.testing.assert_allclose(new, old, rtol=1e-10)


def test_forward_mode_keeps_one_loop() -> None:
    graph = graph_of(COSTS["last value"]())
    found = derivative(graph, 2, "forward")
    assert sum(isinstance(node.op, TracedLoop) for node in walk(found.fgraph)) == 1


def origins(found: Pedigree) -> list[tuple[str, int | None, str | None, str]]:
    return [(r.name, r.generation, r.parent, r.direction.value) for r in found.scans]


def two_orders(cost: Variable) -> list[tuple[str, int | None, str | None, str]]:
    """Check that a graph's pedigree is inferred from it as it was recorded, and return it."""
    made = so.grad(graph_of(cost), order=2, strategy="reverse")
    known = origins(made.pedigree)
    assert origins(pedigree(made.graph)) == known
    return known


def test_the_pedigree_of_pullbacks() -> None:
    cost = loop.scan(lambda s, row: (pt.sin(s) * row, None), x, v, name="f")[0]
    assert two_orders(cost) == [
        ("f", 0, None, "forward"),
        ("grad_of_f#1", 1, "f", "backward"),
        ("grad_of_grad_of_f", 2, "grad_of_f#1", "forward"),
        ("grad_of_f#2", 1, "f", "backward"),
    ]


def test_the_pedigree_of_loops_of_one_name() -> None:
    cost = x
    for _ in range(2):
        cost = loop.scan(lambda s, row: (pt.sin(s) * row, None), cost, v, name="f")[0]
    first = so.grad(graph_of(cost), order=1, strategy="reverse")
    assert origins(pedigree(first.graph)) == origins(first.pedigree)
    assert [parent for _, _, parent, _ in origins(first.pedigree)] == [None, None, "f#2", "f#1"]


def test_twin_a_loop_with_the_name_of_a_pullback() -> None:
    named = loop.scan(lambda s, row: (s + row, None), x, v, name="f")[0]
    other = loop.scan(lambda s, row: (s + row, None), named, v[::-1], name="grad_of_f")[0]
    reader = loop.scan(lambda s, row: (s + row, None), other, v, name="grad_of_f")[0]
    graph = pedigree(graph_of(reader)).scans
    assert [record.parent for record in graph] == [None, "f", None]


def test_tangents_and_what_a_step_computes() -> None:
    cost = loop.while_loop(lambda s: s < 9, lambda s: s * s + 1, x, max_steps=5, name="f")
    made = so.grad(graph_of(cost), strategy="forward")
    (record,) = made.pedigree.scans
    assert (record.name, record.tangents_of, record.design) == ("rop_of_f", "f", "TracedLoop")
    assert (record.states, record.sit_sot) == (2, 0)
    shown = made.show("rop_of_f")
    assert shown.startswith("TracedLoop{rop_of_f}")
    assert "goes on while" in shown


def test_the_counts_of_loops() -> None:
    cost = loop.scan(lambda s, row: (pt.sin(s) * row, None), x, v, name="f")[0]
    rows_ = rows(so.grad(graph_of(cost), strategy="reverse"))
    assert [row.counts[:4] for row in rows_] == [("1", "0", "1", "0"), ("2", "0", "3", "0")]
    assert "loops" in headings(so.grad(graph_of(cost), strategy="reverse"))
