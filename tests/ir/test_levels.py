"""Levels against what their definition says, on random graphs; deep graphs; lazy branches."""

from __future__ import annotations

import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.ir.levels import IfElse, always_computed, levels

_PLACES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=30)


def _longest(node: Apply, counted: set[Apply]) -> int:
    before = [v.owner for v in node.inputs if v.owner is not None]
    return max((_longest(other, counted) for other in before), default=0) + (node in counted)


@given(_PLACES, st.sets(st.integers(0, 29)))
def test_longest_path(reads: list[tuple[int, int]], marked: set[int]) -> None:
    """Node ``i`` reads two of the variables before it; a path is counted by brute force."""
    variables: list[Variable] = [pt.dscalar()]
    for left, right in reads[:10]:
        count = len(variables)
        variables.append(variables[left % count] + variables[right % count])
    nodes = [variable.owner for variable in variables[1:]]
    counted = {node for place, node in enumerate(nodes) if place in marked}
    expected = {node: _longest(node, counted) for node in counted}
    assert levels(list(counted)) == expected
    lone = {node for node in nodes if not _longest(node, counted)}
    assert levels(list(counted), lone) == expected


@pytest.mark.deep
def test_deep_graphs() -> None:
    x = pt.dscalar()
    first = variable = pt.exp(x)
    for _ in range(20_000):
        variable = first.owner.op.make_node(variable).outputs[0]
    assert levels([first.owner, variable.owner]) == {first.owner: 1, variable.owner: 2}


def test_always_computed() -> None:
    x, c = pt.dscalar(), pt.bscalar()
    always, branch, other, tested = pt.exp(x), pt.tanh(x), pt.sin(x), pt.neg(c)
    lazy = IfElse(1)(tested, branch + always, other)
    fgraph = FunctionGraph([x, c], [lazy, always], clone=False)
    assert always_computed(fgraph.outputs) == {lazy.owner, tested.owner, always.owner}
