"""Subgraphs that only one side has: one node of each is reported, with a count of the rest."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from pytensor.graph.basic import Apply

from scanopt_cli.diff.changes import Note
from scanopt_cli.diff.labels import op_label
from scanopt_cli.diff.matching.correspondence import Matching
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


def regions(matching: Matching, side: int, absorbed: Mapping[Edge, Hashable]) -> Regions:
    """Group the unmatched nodes of one side, 0 before or 1 after.

    ``absorbed`` maps edges that another change reports to the key of that change.
    """
    graph, paired_ends = matching.graphs[side], {places[side] for places in matching.outputs}
    owners: dict[Apply, Hashable] = {}
    heads: list[Apply] = []
    behind: dict[Hashable, Counter[str]] = defaultdict(Counter)

    def owner_of(node: Apply) -> Hashable:
        """Return the key of what ``node`` is reported with; ``None`` if it is a head."""
        if node in graph.titles:
            return None
        found: list[Hashable] = []
        for output in node.outputs:
            edges, ends = graph.readers.get(output, ()), graph.output_positions.get(output, ())
            found += (owners.get(edge[0], absorbed.get(edge)) for edge in edges)
            found += (None if place in paired_ends else ("end", place) for place in ends)
        return None if None in found else next(iter(found), None)

    for node in reversed(matching.unmatched(graph)):
        owner = owner_of(node)
        owners[node] = node if owner is None else owner
        if owner is None:
            heads.append(node)
        else:
            behind[owner][op_label(node.op).partition("{")[0]] += 1
    return Regions(tuple(reversed(heads)), behind)


def counted(code: Note, counts: Counter[str] | None) -> tuple[Fact, ...]:
    """Return a note with the numbers of nodes by Op, the most frequent first."""
    return (Fact(code, {"nodes": tuple(counts.most_common())}),) if counts else ()
