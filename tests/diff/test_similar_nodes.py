"""Similar nodes, which are matched when nothing else says where a node went."""

from __future__ import annotations

from collections.abc import Callable

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.diff.matching.correspondence import Matching
from scanopt_cli.diff.matching.evidence import similar_pairs
from scanopt_cli.diff.matching.indexed_graph import two_sides
from support.recurrences import tensor

type Operator = Callable[[Variable], Variable]


def difference(*, by: Operator, read_by: Operator) -> FunctionGraph:
    x, y = tensor("x"), tensor("y")
    return FunctionGraph([x, y], [read_by(x - by(y))], clone=True)


def similar(before: FunctionGraph, after: FunctionGraph) -> list[tuple[str, str]]:
    """Name the similar nodes of two graphs of which only the inputs are matched."""
    sides = two_sides(before.clone(), after.clone(), [(0, 0), (1, 1)])
    matching = Matching(*sides, [])
    for variable, other in zip(sides[0].inputs, sides[1].inputs, strict=True):
        matching.link(variable, other)
    return [(str(node.op), str(other.op)) for node, other in similar_pairs(matching)]


def test_readers_without_a_match_count_on_either_side() -> None:
    """Less than half of what is known of the node that is read is known of the other, too."""
    alone = difference(by=pt.sin, read_by=lambda result: result)
    read = difference(by=pt.cos, read_by=pt.exp)
    assert similar(alone, read) == similar(read, alone) == []
    assert ("Sub", "Sub") in similar(alone, difference(by=pt.cos, read_by=lambda result: result))


def test_what_many_nodes_of_one_side_share_is_visited_from_either_side() -> None:
    x, y = tensor("x"), tensor("y")
    many = FunctionGraph([x, y], [x - pt.sin(y + i) for i in range(40)], clone=True)
    one = FunctionGraph([x, y], [x - pt.cos(y)], clone=True)
    forth, back = similar(many, one), similar(one, many)
    assert len(forth) == len(back) > 0
