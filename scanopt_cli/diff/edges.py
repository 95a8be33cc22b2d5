"""Rewired edges: inputs of matched nodes that read another variable than before, by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from pytensor.graph.basic import Apply, Constant, Variable

from scanopt_cli.diff.changes import Subject, SubjectKind
from scanopt_cli.diff.labels import reader_subject
from scanopt_cli.diff.matching.correspondence import Matching
from scanopt_cli.diff.regions import Edge


@dataclass(frozen=True, slots=True)
class Rewiring:
    """One input of a matched node, or one output, that reads another variable than before.

    ``rank`` is the place of the reader among the nodes, which orders the report.
    """

    reader: Subject
    rank: int
    variable: Variable
    counterpart: Variable


@dataclass(slots=True)
class Rewirings:
    """All rewired edges, by whether the old node was removed and the new node added.

    Attributes
    ----------
    constants
        From one constant to another.
    replaced
        From a removed node to an added one, keyed by both.
    bypassed
        From a removed node to a variable that was there before, keyed by the removed node.
    inserted
        From a variable that is still there to an added node, keyed by the added node.
    moved
        From a variable that is still there to one that was there before.
    """

    constants: list[Rewiring] = field(default_factory=list)
    replaced: dict[tuple[Apply, Apply], list[Rewiring]] = field(default_factory=dict)
    bypassed: dict[Apply, list[Rewiring]] = field(default_factory=dict)
    inserted: dict[Apply, list[Rewiring]] = field(default_factory=dict)
    moved: list[Rewiring] = field(default_factory=list)


def rewirings(matching: Matching, reported: tuple[Container[Edge], Container[Edge]]) -> Rewirings:
    """Return the rewired inputs and outputs, except edges that other changes have ``reported``."""
    found = Rewirings()
    for rewiring in _mismatches(matching, reported):
        _sort_in(found, matching, rewiring)
    _keep_clear_replacements(found, matching)
    return found


def _mismatches(
    matching: Matching, reported: tuple[Container[Edge], Container[Edge]]
) -> Iterator[Rewiring]:
    before, after = matching.first, matching.second
    for node in before.nodes:
        other = matching.nodes.get(node)
        if other is None:
            continue
        for place, other_place in matching.alignments[node].inputs:
            variable, counterpart = node.inputs[place], other.inputs[other_place]
            if matching.correspond(variable, counterpart):
                continue
            if (node, place) in reported[0] or (other, other_place) in reported[1]:
                continue
            reader = reader_subject(before, node, place)
            yield Rewiring(reader, before.rank[node], variable, counterpart)
    for place, other_place in matching.outputs:
        variable, counterpart = before.outputs[place], after.outputs[other_place]
        if not matching.correspond(variable, counterpart):
            reader = Subject(kind=SubjectKind.OUTPUT, place=place)
            yield Rewiring(reader, len(before.nodes), variable, counterpart)


def _sort_in(found: Rewirings, matching: Matching, rewiring: Rewiring) -> None:
    variable, counterpart = rewiring.variable, rewiring.counterpart
    if isinstance(variable, Constant) and isinstance(counterpart, Constant):
        found.constants.append(rewiring)
        return
    node, maker = variable.owner, counterpart.owner
    is_gone = node is not None and node not in matching.nodes
    is_new = maker is not None and maker not in matching.counterparts
    if is_gone and is_new:
        found.replaced.setdefault((node, maker), []).append(rewiring)
    elif is_gone:
        found.bypassed.setdefault(node, []).append(rewiring)
    elif is_new:
        found.inserted.setdefault(maker, []).append(rewiring)
    else:
        found.moved.append(rewiring)


def _keep_clear_replacements(found: Rewirings, matching: Matching) -> None:
    """Keep a replacement if it is the only one of either node, and neither is used otherwise.

    Other pairs are reported as two nodes, one removed and one added. So are nodes that hold graphs.
    """
    gone = Counter(node for node, _ in found.replaced)
    new = Counter(maker for _, maker in found.replaced)
    for (node, maker), readers in list(found.replaced.items()):
        is_clear = gone[node] == new[maker] == 1
        is_used_otherwise = node in found.bypassed or maker in found.inserted
        holds = node in matching.first.titles or maker in matching.second.titles
        if not is_clear or is_used_otherwise or holds:
            del found.replaced[node, maker]
            found.bypassed.setdefault(node, []).extend(readers)
            found.inserted.setdefault(maker, []).extend(readers)
