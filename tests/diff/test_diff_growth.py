"""Deep and large graphs: no recursion, and no work that grows with the square of the size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Variable

from scanopt_cli.diff.comparing import diff
from scanopt_cli.diff.matching.indexed_graph import IndexedGraph, two_sides
from scanopt_cli.diff.matching.match import match
from scanopt_cli.diff.trees import tree_diff
from scanopt_cli.ir.graph import Graph, as_graph, from_io
from support.benchmarks.growing_graphs import nest_of_layers
from support.graph_building import graph_of, scan
from support.growing import calls, exponent
from support.recurrences import chain, tensor

pytestmark = pytest.mark.deep

_DEEP = 50_000


@pytest.mark.deep
def test_one_node_in_a_chain_of_50_000() -> None:
    x = tensor("x")
    exp, tanh = (operator(x).owner.op.make_node for operator in (pt.exp, pt.tanh))
    operators = [lambda variable: exp(variable).outputs[0]] * _DEEP
    before = chain(operators)
    operators[_DEEP // 2] = lambda variable: tanh(variable).outputs[0]
    (change,) = diff(before, chain(operators)).changes
    assert (change.before, change.after) == ("Exp", "Tanh")


def test_the_tree_of_a_deep_chain_is_cut_and_says_so() -> None:
    before, after = chain([pt.exp] * 5_000), chain([pt.exp] * 4_999 + [pt.tanh])
    lines = tree_diff(as_graph(before).fgraph, as_graph(after).fgraph)
    assert lines[-1].startswith("@@")
    assert "cut" in lines[-1]
    assert "+Tanh" in lines


@contextmanager
def counted_digests(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Variable]]:
    """Keep what digests are looked up of."""
    variables: list[Variable] = []
    digest = IndexedGraph.digest

    def counted(self: IndexedGraph, variable: Variable) -> bytes:
        variables.append(variable)
        return digest(self, variable)

    with monkeypatch.context() as patch:
        patch.setattr(IndexedGraph, "digest", counted)
        yield variables


def test_bodies_that_are_applied_twice_in_each_other() -> None:
    """Written out there are ``2**levels``; a pair is compared once, and listed at few places."""
    small, large = (
        calls(lambda pair=(nest_of_layers(levels), nest_of_layers(levels, 2.5)): diff(*pair))
        for levels in (8, 16)
    )
    assert exponent(small, large, 2) < 1.5


def looked_up(monkeypatch: pytest.MonkeyPatch, count: int) -> int:
    """Count digests looked up while two graphs with ``count`` changed readers are matched."""
    x = tensor("x")
    before, after = (
        from_io([x], [sum((pt.exp(x * (shift + i)) for i in range(count)), start=x)]).fgraph
        for shift in (0.25, 0.75)
    )
    sides = two_sides(before, after, [(0, 0)])
    with counted_digests(monkeypatch) as variables:
        matching = match(*sides, [(0, 0)], [(0, 0)])
    assert len(matching.pairs) == 2 * len(before.apply_nodes)
    return len(variables)


def test_matching_many_readers_of_one_variable_is_near_linear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert looked_up(monkeypatch, 800) < 3 * looked_up(monkeypatch, 400)


def _one_for_each(n: int, *, merged: bool) -> Graph:
    """Return ``n`` loops over one sequence, or one loop that has the states of all."""
    x, start = tensor("x"), pt.dscalar("start")
    factors = [0.5 + i for i in range(n)]
    if merged:
        made = scan(
            lambda s, *h: [y * factor + s for y, factor in zip(h, factors, strict=True)],
            sequences=[x],
            outputs_info=[start] * n,
        )
    else:
        made = [
            scan(lambda s, h, f=factor: h * f + s, sequences=[x], outputs_info=[start])
            for factor in factors
        ]
    return graph_of(pt.stack([ys[-1] for ys in made]))


def test_many_loops_that_were_merged_into_one() -> None:
    """Each shares its start with the one that they were merged into."""
    counts = []
    for size in (20, 160):
        before, after = (_one_for_each(size, merged=merged) for merged in (False, True))
        assert diff(before, after).changes
        counts.append(calls(lambda b=before, a=after: diff(b, a)))
    assert exponent(*counts, 8) < 1.2


def test_a_node_that_reads_many_variables_is_looked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of them leads to the node, and each input of a node may be a constant."""
    inputs = [tensor(f"x{i}") for i in range(400)]
    before, after = (
        from_io(inputs, [pt.add(*(x * factor for x in inputs))]) for factor in (0.25, 0.75)
    )
    with counted_digests(monkeypatch) as variables:
        assert diff(before, after).changes
    assert len(variables) < 50 * len(inputs)
