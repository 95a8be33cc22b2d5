"""`diff`: the changes that lead from one graph to another."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from pytensor.graph.basic import Variable
from pytensor.graph.fg import AbstractFunctionGraph, FunctionGraph

from scanopt_cli.analysis.statistics import statistics
from scanopt_cli.diff.body_diffs import Behind, Found
from scanopt_cli.diff.changes import (
    ONLY_IN,
    Change,
    ChangeKind,
    GraphDiff,
    Note,
    Subject,
    SubjectKind,
)
from scanopt_cli.diff.ends import pair_inputs, pair_outputs
from scanopt_cli.diff.graph_changes import compare
from scanopt_cli.diff.labels import shortened, type_text, variable_text
from scanopt_cli.diff.listing import MOST_PLACES, listed
from scanopt_cli.diff.matching.indexed_graph import IndexedGraph, two_sides
from scanopt_cli.diff.matching.pairing import Pairs
from scanopt_cli.diff.regions import counted
from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.facts import Fact
from scanopt_cli.ir.graph import GraphLike, as_graph
from scanopt_cli.ir.inner_graphs import inner_graphs, op_name, walk

# The text of an opaque value starts with its type: for a class, that is its metaclass.
_CLASS = re.compile(r"^(type|MetaType|ABCMeta) ")


def diff(a: GraphLike, b: GraphLike, *, names: bool = False) -> GraphDiff:
    """Compare two graphs structurally: their nodes are matched, not their texts.

    Inputs are paired by name, then by place (before that by readers, if one graph has more inputs);
    outputs by place if both graphs have equally many, else by what computes them. Scans are matched
    through their slots, and their bodies are compared as graphs, at any depth. What a graph repeats
    is compared once, and what changed in a body is listed at each of its places, or at the first if
    there are more than 16. The time is near linear in the number of nodes.

    Parameters
    ----------
    a, b
        Loaded graphs, paths of their files, FunctionGraphs or ``(inputs, outputs)`` pairs: before
        and after.
    names
        Whether renamed inputs and loops count as differences. Renamed loops are reported in any
        case.

    Returns
    -------
    GraphDiff
        It has changes exactly if the canonical digests differ (renamings aside). ``diff(b, a)``
        finds the same changes in reverse.

    Raises
    ------
    ScanoptError
        If ``a`` or ``b`` is not a graph, or its file cannot be loaded.
    """
    before, after = as_graph(a).fgraph, as_graph(b).fgraph
    known = Sameness(), Sameness()
    digests = known[0].of_graph(before), known[1].of_graph(after)
    same = digests[0] == digests[1]
    counts = statistics(before), statistics(after)
    found = Found((), (), ({}, {}), counts[0].outer_nodes + counts[0].inner_nodes)
    if names or not same or _loop_names(before) != _loop_names(after):
        found = _found(before, after, same=same, swapped=digests[0] > digests[1], names=names)
    changes, loops, is_short = listed(found)
    if same:
        changes = tuple(change for change in changes if change.kind is ChangeKind.RENAMED)
    return GraphDiff(
        same=same and not (names and changes),
        changes=changes,
        loops=() if same else loops,
        before=counts[0],
        after=counts[1],
        digest_before=digests[0].hex(),
        digest_after=digests[1].hex(),
        unchanged=found.unchanged,
        notes=tuple(_notes(*known, is_short=is_short)),
    )


def _loop_names(fgraph: AbstractFunctionGraph) -> Counter[str]:
    """Count the names of the nodes that hold a graph, visiting each distinct body once."""
    return Counter(op_name(node.op) for node in walk(fgraph) if inner_graphs(node.op))


def _notes(*known: Sameness, is_short: bool) -> Iterator[str]:
    opaque = sorted({_CLASS.sub("class ", text) for one in known for text in one.opaque})
    if opaque:
        yield f"compared by identity, for lack of a value to compare: {_listed(opaque)}"
    if is_short:
        yield (
            f"what changed in a body that is at more than {MOST_PLACES} places is listed at the "
            "first, with the count of all"
        )


def _found(
    before: FunctionGraph, after: FunctionGraph, *, same: bool, swapped: bool, names: bool
) -> Found:
    inputs = (
        [(place, place) for place in range(len(before.inputs))]
        if same
        else pair_inputs(before, after)
    )
    sides = two_sides(before, after, inputs)
    outputs = pair_outputs(*sides, inputs, swapped=swapped)
    found = compare(*sides, inputs, outputs, swapped=swapped)
    changes = [
        *_input_changes(sides, inputs, names=names),
        *_lost_outputs(sides, outputs, found.behind),
        *_order(SubjectKind.OUTPUTS, *sides, outputs),
        *found.changes,
    ]
    return replace(found, changes=tuple(changes))


def _order(
    kind: SubjectKind, before: IndexedGraph, after: IndexedGraph, pairs: Pairs
) -> Iterator[Change]:
    order = [second for _, second in pairs]
    if order != sorted(order):
        is_of_inputs = kind is SubjectKind.INPUTS
        listed, later = (g.inputs if is_of_inputs else g.outputs for g in (before, after))
        old = (variable_text(before, listed[place]) for place, _ in pairs)
        new = (variable_text(after, later[place]) for place in sorted(order))
        yield Change.of_property(Subject(kind=kind), "order", _listed(old), _listed(new))


def _input_changes(
    sides: tuple[IndexedGraph, IndexedGraph], inputs: Pairs, *, names: bool
) -> Iterator[Change]:
    before, after = sides
    for side, graph in enumerate(sides):
        kept = {places[side] for places in inputs}
        for place, variable in enumerate(graph.inputs):
            if place not in kept:
                note = Fact(Note.TYPE, {"type": type_text(variable)})
                yield Change(kind=ONLY_IN[side], subject=_input(graph, variable), notes=(note,))
    yield from _order(SubjectKind.INPUTS, before, after, inputs)
    for first, second in inputs:
        variable, other = before.inputs[first], after.inputs[second]
        subject = _input(before, variable)
        if variable.type != other.type:
            yield Change.of_property(subject, "type", type_text(variable), type_text(other))
        if names and variable.name != other.name:
            yield Change(
                kind=ChangeKind.RENAMED,
                subject=subject,
                before=variable.name or "no name",
                after=other.name or "no name",
            )


def _input(graph: IndexedGraph, variable: Variable) -> Subject:
    return Subject(kind=SubjectKind.INPUT, variable=variable_text(graph, variable))


def _lost_outputs(
    sides: tuple[IndexedGraph, IndexedGraph], outputs: Pairs, behind: tuple[Behind, Behind]
) -> Iterator[Change]:
    for side, graph in enumerate(sides):
        kept = {places[side] for places in outputs}
        for place, variable in enumerate(graph.outputs):
            if place not in kept:
                text = variable_text(graph, variable)
                subject = Subject(kind=SubjectKind.OUTPUT, place=place, variable=text)
                notes = counted(Note.WITH, behind[side].get(place))
                yield Change(kind=ONLY_IN[side], subject=subject, notes=notes)


def _listed(texts: Iterable[str]) -> str:
    return shortened(", ".join(texts))
