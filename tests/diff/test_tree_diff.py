"""The diff of dprint trees."""

from __future__ import annotations

import re

import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.replace import clone_replace

from scanopt_cli.diff import trees
from scanopt_cli.diff.trees import tree_diff
from scanopt_cli.ir.graph import as_graph
from scanopt_cli.ir.inner_graphs import inner_graphs, walk
from support.recurrences import base, chain, variant


def test_equal_graphs_have_no_lines() -> None:
    assert tree_diff(base.graph().fgraph, variant().fgraph) == ()


def test_a_changed_body_shows_where_it_changed() -> None:
    lines = tree_diff(base.graph().fgraph, variant(factor=0.75).fgraph)
    changed = {sign: [line.split()[-1] for line in lines if line[0] == sign] for sign in "-+"}
    assert changed == {"-": ["0.5"], "+": ["0.75"]}
    assert lines[0].startswith("@@")


def test_no_letters_and_no_numbers_that_move() -> None:
    lines = tree_diff(base.graph().fgraph, variant(after=pt.neg).fgraph)
    assert lines
    assert not any(re.search(r"\[id |\.0 \d+$|\} \d+$", line) for line in lines)


def test_depth_cuts_the_trees() -> None:
    before, after = chain([pt.tanh] + [pt.exp] * 9), chain([pt.sqrt] + [pt.exp] * 9)
    graphs = as_graph(before).fgraph, as_graph(after).fgraph
    assert tree_diff(*graphs)
    assert tree_diff(*graphs, depth=5) == ()


def test_names_that_begin_with_signs_are_lines_like_others() -> None:
    graphs = (as_graph(([x], [x])).fgraph for x in map(pt.dscalar, ("-- old", "++ new")))
    _, *lines = tree_diff(*graphs)
    assert [line.split(" [")[0] for line in lines] == ["--- old", "+++ new"]


def test_graphs_that_are_held_again_and_again_are_looked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = pt.dvector("x")
    held = x + 1
    for _ in range(12):
        inner = pt.dvector()
        op = OpFromGraph([inner], [clone_replace(held, {x: inner})])
        held = op(op(x))
    calls = 0

    def counted(op: Op) -> tuple[AbstractFunctionGraph, ...]:
        nonlocal calls
        calls += 1
        return inner_graphs(op)

    monkeypatch.setattr(trees, "walk", lambda graph: walk(graph, counted))
    assert not trees._is_deep(as_graph(([x], [held])).fgraph)
    assert calls < 100


def test_trees_of_many_equal_lines_are_not_compared() -> None:
    """Difflib looks at every pair of them, once for each change."""
    x = pt.dscalar("x")
    (line,) = tree_diff(
        *(as_graph(([x], [x * factor, *[x + 1] * 2_000])).fgraph for factor in (2.0, 3.0))
    )
    assert "too long to compare" in line
