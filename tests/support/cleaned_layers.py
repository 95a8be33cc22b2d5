"""Check what `clean-ofg` makes of a graph, and what it leaves."""

from __future__ import annotations

from typing import Any

from scanopt_cli.ir.graph import Graph
from scanopt_cli.rules.graph_checking import check
from support.graph_building import graph_of, optimized
from support.layers import assert_equal_values, ends

PASS = "clean-ofg"


def assert_mended(*outputs: Any, left: list[tuple[int, int]]) -> Graph:
    """Check what is left, that values stay, and that nothing more is found."""
    graph = graph_of(*outputs)
    assert any(f.fix is not None for f in check(graph, select=["O001"]).findings)
    after, _ = optimized(graph, PASS)
    assert ends(after) == left
    assert not [f for f in check(after, select=["O001"]).findings if f.fix is not None]
    assert_equal_values(graph, after)
    assert not optimized(after, PASS)[1]
    return after


def assert_left(*outputs: Any, why: str) -> None:
    """Check that nothing is rewritten, that a remark says why, and that the finding has no fix."""
    graph = graph_of(*outputs)
    after, remarks = optimized(graph, PASS)
    assert ends(after) == ends(graph)
    assert [remark.partition(": nobody reads ")[2].partition(", but: ")[2] for remark in remarks]
    assert all(why in remark for remark in remarks)
    findings = check(graph, select=["O001"]).findings
    assert findings
    assert all(finding.fix is None for finding in findings)
