"""Diffs of the bodies of matched nodes: each pair is compared once, however many nodes hold it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from scanopt_cli.diff.changes import Change, LoopChange
from scanopt_cli.diff.matching.indexed_graph import IndexedGraph
from scanopt_cli.ir.inner_graphs import inner_graphs, op_name

type Behind = Mapping[int, Counter[str]]
"""Maps the place of an output that one side lacks to the nodes that only feed it, by Op."""


@dataclass(frozen=True, slots=True)
class Found:
    """The differences between two graphs, their bodies included.

    Attributes
    ----------
    changes
        The changes; their ``where`` starts inside of these graphs.
    behind
        For each graph, the nodes behind outputs that only it has; the caller reports them.
    unchanged
        How many nodes are on both sides without a change.
    loops
        What became of the loops; their ``path`` starts inside of these graphs.
    """

    changes: tuple[Change, ...]
    behind: tuple[Behind, Behind]
    unchanged: int
    loops: tuple[LoopChange, ...] = ()


type Known = dict[Hashable, Found]
"""What was found in bodies of one comparison, at any depth, by the bodies and the names in them."""


class BodyDiffs:
    """The differences found in bodies, and the nodes before that hold these bodies.

    What is found in a body does not depend on what is around it but for the names of its inputs:
    ``known`` keeps it for other graphs of the comparison. Else bodies that are applied twice in
    each other would be compared as often as they are written out.
    """

    def __init__(self, known: Known) -> None:
        self._known = known
        self._found: dict[Hashable, Found] = {}
        self._holders: dict[tuple[Change, ...], list[Apply]] = {}
        self._of: dict[Apply, Found] = {}

    def compare(
        self, node: Apply, key: Hashable, names: Hashable, compare: Callable[[], Found]
    ) -> Found:
        """Return what ``compare`` finds in a body of ``node``, calling it once for each ``key``.

        It is called once for each key with these ``names``, of all graphs of the comparison.
        """
        if key not in self._found:
            named = key, names
            if named not in self._known:
                self._known[named] = compare()
            self._found[key] = self._known[named]
        found = self._of[node] = self._found[key]
        self._holders.setdefault(found.changes, []).append(node)
        return found

    def of(self, node: Apply) -> Found | None:
        """Return what was found in the body of a node before, if it was compared."""
        return self._of.get(node)

    def changes(self, graph: IndexedGraph) -> Iterator[tuple[Apply, Change]]:
        """Yield every change with the first of the nodes of ``graph`` in whose bodies it is.

        One change stands for all these nodes.
        """
        for changes, nodes in self._holders.items():
            around = _name_of_all(graph, nodes)
            for change in changes:
                where, count = (around, *change.where), change.count * len(nodes)
                yield nodes[0], replace(change, where=where, count=count)

    def loops(self, graph: IndexedGraph) -> Iterator[tuple[Apply, LoopChange]]:
        """Yield what became of each loop in the bodies, as `changes` does."""
        for nodes in self._holders.values():
            around = _name_of_all(graph, nodes)
            for loop in self._of[nodes[0]].loops:
                yield nodes[0], loop.times_inside(around, len(nodes))


def nodes_inside(op: Op) -> int:
    """Return how many nodes the inner graphs of ``op`` have, nested ones included."""
    known: dict[Op, int] = {}

    def count(op: Op) -> int:
        if op not in known:
            nodes = (node for inner in inner_graphs(op) for node in inner.toposort())
            known[op] = sum(1 + count(node.op) for node in nodes)
        return known[op]

    return count(op)


def _name_of_all(graph: IndexedGraph, nodes: list[Apply]) -> str:
    """Return a name for several nodes: the name they share, if no other node has it."""
    if len(nodes) == 1:
        return graph.titles[nodes[0]]
    name = op_name(nodes[0].op)
    if set(nodes) == {node for node in graph.titles if op_name(node.op) == name}:
        return name
    return f"{graph.titles[nodes[0]]} and {len(nodes) - 1} more"
