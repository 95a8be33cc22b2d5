"""BodyDiffs of matched nodes: each two of them are compared once, however many nodes hold them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from scanopt_cli.diff.changes import Change
from scanopt_cli.diff.matching.indexed_graph import IndexedGraph
from scanopt_cli.ir.inner_graphs import inner_graphs, op_name

type Behind = Mapping[int, Counter[str]]
"""Nodes, counted by Op, that only feed an output which only one side has: by its place."""


@dataclass(frozen=True, slots=True)
class Found:
    """What is found in two graphs, their bodies included.

    Attributes
    ----------
    changes
        The changes; where they are is told from these graphs on.
    behind
        For both sides, what is left for the holder of the graphs to tell.
    unchanged
        How many nodes are on both sides, with nothing to tell about them.
    """

    changes: tuple[Change, ...]
    behind: tuple[Behind, Behind]
    unchanged: int


class BodyDiffs:
    """What was found in bodies, and which nodes of the first side hold them."""

    def __init__(self) -> None:
        self._found: dict[Hashable, Found] = {}
        self._holders: dict[tuple[Change, ...], list[Apply]] = {}

    def compare(self, node: Apply, key: Hashable, compare: Callable[[], Found]) -> Found:
        """Return what ``compare`` finds in a body of ``node``, asked once for each ``key``."""
        if key not in self._found:
            self._found[key] = compare()
        found = self._found[key]
        self._holders.setdefault(found.changes, []).append(node)
        return found

    def changes(self, side: IndexedGraph) -> Iterator[tuple[Apply, Change]]:
        """Yield every change, told once for all the nodes of ``side`` in whose bodies it is.

        With it comes the first of these nodes.
        """
        for changes, nodes in self._holders.items():
            around = _name_of_all(side, nodes)
            for change in changes:
                where, count = (around, *change.where), change.count * len(nodes)
                yield nodes[0], replace(change, where=where, count=count)


def nodes_inside(op: Op) -> int:
    """Return how many nodes the inner graphs of ``op`` have, those within them included."""
    return sum(1 + nodes_inside(node.op) for inner in inner_graphs(op) for node in inner.toposort())


def _name_of_all(side: IndexedGraph, nodes: list[Apply]) -> str:
    """What to call several nodes: by their name, if no other node has it."""
    if len(nodes) == 1:
        return side.titles[nodes[0]]
    name = op_name(nodes[0].op)
    if set(nodes) == {node for node in side.titles if op_name(node.op) == name}:
        return name
    return f"{side.titles[nodes[0]]} and {len(nodes) - 1} more"
