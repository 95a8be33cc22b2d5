"""The diff of dprint trees."""

from __future__ import annotations

import re

import pytensor.tensor as pt
from recurrences import base, chain, variant

from scanopt_cli.diffing.trees import LineKind, tree_diff
from scanopt_cli.graphs.graph import as_graph


def test_equal_graphs_have_no_lines() -> None:
    assert tree_diff(base.graph().fgraph, variant().fgraph) == ()


def test_a_changed_body_shows_where_it_changed() -> None:
    lines = tree_diff(base.graph().fgraph, variant(factor=0.75).fgraph)
    changed = {
        kind: [line.text.split()[-1] for line in lines if line.kind is kind]
        for kind in (LineKind.REMOVED, LineKind.ADDED)
    }
    assert changed == {LineKind.REMOVED: ["0.5"], LineKind.ADDED: ["0.75"]}
    assert lines[0].kind is LineKind.HUNK


def test_no_letters_and_no_numbers_that_move() -> None:
    lines = tree_diff(base.graph().fgraph, variant(after=pt.neg).fgraph)
    assert lines
    assert not any(re.search(r"\[id |\.0 \d+$|\} \d+$", line.text) for line in lines)


def test_depth_cuts_the_trees() -> None:
    before, after = chain([pt.tanh] + [pt.exp] * 9), chain([pt.sqrt] + [pt.exp] * 9)
    graphs = as_graph(before).fgraph, as_graph(after).fgraph
    assert tree_diff(*graphs)
    assert tree_diff(*graphs, depth=5) == ()


def test_trees_of_many_equal_lines_are_not_compared() -> None:
    """Difflib looks at every pair of them, once for each change."""
    x = pt.dscalar("x")
    (line,) = tree_diff(
        *(as_graph(([x], [x * factor, *[x + 1] * 2_000])).fgraph for factor in (2.0, 3.0))
    )
    assert "too long to compare" in line.text
