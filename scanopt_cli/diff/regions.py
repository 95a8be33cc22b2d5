"""Subgraphs that only one side has: one node of each is reported, with a count of the rest."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Hashable, Mapping
from dataclasses import dataclass

from pytensor.graph.basic import Apply

from scanopt_cli.diff.changes import Note
from scanopt_cli.diff.labels import op_label
from scanopt_cli.diff.matching.indexed_graph import IndexedGraph, SharedKeys
from scanopt_cli.facts import Fact

type Edge = tuple[Apply, int]
"""A node and the place of one of its inputs."""


@dataclass(frozen=True, slots=True)
class Regions:
    """The nodes that only one side has, in groups.

    Attributes
    ----------
    heads
        The nodes to report: remaining nodes or outputs read them, or they hold a graph.
    behind
        Counts by Op of the nodes that are not reported themselves: each reader is a head, counted
        with one, or part of another reported change. The key is the head, the key of the change
        that absorbs an edge, or ``("end", place)`` for an output that only one side has.
    """

    heads: tuple[Apply, ...]
    behind: Mapping[Hashable, Counter[str]]

    def note(self, key: Hashable, code: Note) -> tuple[Fact, ...]:
        """Return a note that counts the nodes behind ``key``, if there are any."""
        return counted(code, self.behind.get(key))


def regions(
    keys: SharedKeys, absorbed: Mapping[Edge, Hashable], paired_ends: Container[int]
) -> Regions:
    """Group the unmatched nodes of one side.

    ``absorbed`` maps edges that another change reports to the key of that change. ``paired_ends``
    are the places of the outputs that both sides have.
    """
    owners: dict[Apply, Hashable] = {}
    heads: list[Apply] = []
    behind: dict[Hashable, Counter[str]] = defaultdict(Counter)
    for node in reversed(keys.unmatched()):
        owner = _owner(keys.side, node, owners, absorbed, paired_ends)
        owners[node] = node if owner is None else owner
        if owner is None:
            heads.append(node)
        else:
            behind[owner][op_label(node.op).partition("{")[0]] += 1
    return Regions(tuple(reversed(heads)), behind)


def counted(code: Note, counts: Counter[str] | None) -> tuple[Fact, ...]:
    """Return a note with the numbers of nodes by Op, the most frequent first."""
    return (Fact(code, {"nodes": tuple(counts.most_common())}),) if counts else ()


def _owner(
    side: IndexedGraph,
    node: Apply,
    owners: Mapping[Apply, Hashable],
    absorbed: Mapping[Edge, Hashable],
    paired_ends: Container[int],
) -> Hashable:
    """Return the key of what ``node`` is reported with; ``None`` if it is a head."""
    if node in side.titles:
        return None
    first: Hashable = None
    for output in node.outputs:
        for edge in side.readers.get(output, ()):
            owner = owners.get(edge[0], absorbed.get(edge))
            if owner is None:
                return None
            first = owner if first is None else first
        for place in side.ends.get(output, ()):
            if place in paired_ends:
                return None
            first = ("end", place) if first is None else first
    return first
