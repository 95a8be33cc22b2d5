"""Diffs of the bodies of matched nodes: each pair is compared once, however many nodes hold it.

What is found in a body is not copied to each of its places: what was found in the graph around it
refers to it. Written out, bodies that apply each other twice have ``2**levels`` places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field

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
        The changes of the graphs themselves, in the order of their nodes.
    inside
        Those of bodies, in the order of the nodes that hold them.
    behind
        For each graph, the nodes behind outputs that only it has; the caller reports them.
    unchanged
        How many nodes are on both sides without a change.
    loops
        What became of the loops of the graphs themselves and, where they are, of those in bodies.
    apart
        How many changes are of no loop that is in ``loops``, at any depth: ``added``, ``removed``
        and ``changed``.
    """

    changes: tuple[Change, ...]
    inside: tuple[Inside, ...]
    behind: tuple[Behind, Behind]
    unchanged: int
    loops: tuple[LoopChange | Inside, ...] = ()
    apart: Counter[str] = field(default_factory=Counter)

    @property
    def is_empty(self) -> bool:
        """Whether there is no change."""
        return not self.changes and not self.inside


@dataclass(frozen=True, slots=True)
class Inside:
    """What was found in the bodies of nodes, if that is any change.

    Attributes
    ----------
    holder
        A name for these nodes.
    times
        How many nodes they are.
    number
        Equal for equal changes in one comparison, so that equality and hashes take no time that
        grows with what is inside.
    found
        What was found.
    """

    holder: str
    times: int
    number: int
    found: Found = field(compare=False)


type _Changes = tuple[tuple[Change, ...], tuple[Inside, ...]]  # of a graph, and inside of it


class Known:
    """What was found in the bodies of one comparison, at any depth.

    Attributes
    ----------
    found
        It by the bodies and the names in them.
    numbers
        The numbers of equal changes.
    """

    def __init__(self) -> None:
        self.found: dict[Hashable, Found] = {}
        self.numbers: dict[_Changes, int] = {}


class BodyDiffs:
    """The differences found in bodies, and the nodes before that hold these bodies.

    What is found in a body does not depend on what is around it but for the names of its inputs:
    ``known`` keeps it for other graphs of the comparison. Else bodies that are applied twice in
    each other would be compared as often as they are written out.
    """

    def __init__(self, known: Known) -> None:
        self._known = known
        self._found: dict[Hashable, Found] = {}
        self._holders: dict[_Changes, list[Apply]] = {}
        self._of: dict[Apply, Found] = {}

    def compare(
        self, node: Apply, key: Hashable, names: Hashable, compare: Callable[[], Found]
    ) -> Found:
        """Return what ``compare`` finds in a body of ``node``, calling it once for each ``key``.

        It is called once for each key with these ``names``, of all graphs of the comparison.
        """
        if key not in self._found:
            named = key, names
            if named not in self._known.found:
                self._known.found[named] = compare()
            self._found[key] = self._known.found[named]
        found = self._of[node] = self._found[key]
        self._holders.setdefault((found.changes, found.inside), []).append(node)
        return found

    def of(self, node: Apply) -> Found | None:
        """Return what was found in the body of a node before, if it was compared."""
        return self._of.get(node)

    def inside(self, graph: IndexedGraph) -> Iterator[tuple[Apply, Inside]]:
        """Yield what was found in bodies with the first of the nodes of ``graph`` that hold them.

        It stands for all nodes in whose bodies the changes are equal.
        """
        numbers = self._known.numbers
        for changes, nodes in self._holders.items():
            found = self._of[nodes[0]]
            if not found.is_empty:
                number = numbers.setdefault(changes, len(numbers))
                yield nodes[0], Inside(_name_of_all(graph, nodes), len(nodes), number, found)


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
