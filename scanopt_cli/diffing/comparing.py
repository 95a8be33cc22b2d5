"""`diff`: what has to be told to get from one graph to another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.diffing.graphs import Settings, compare
from scanopt_cli.diffing.pairing import pair_up
from scanopt_cli.diffing.regions import summary
from scanopt_cli.diffing.result import Change, ChangeKind, GraphDiff, merged
from scanopt_cli.diffing.sides import Pairs, Side, pair_inputs, two_sides
from scanopt_cli.diffing.wording import shortened, type_text, variable_text
from scanopt_cli.graphs.graph import GraphLike, as_graph
from scanopt_cli.graphs.statistics import statistics
from scanopt_cli.identity.canonical import digest


def diff(a: GraphLike, b: GraphLike, *, names: bool = False) -> GraphDiff:
    """Compare two graphs as graphs: their nodes are matched, not their texts.

    Inputs belong together by name, then by place; outputs by place, where both graphs have as
    many. Scans are one loop before and after through their slots, and their bodies are compared
    as graphs, at any depth. The growth is near linear in the number of nodes.

    Parameters
    ----------
    a, b
        Loaded graphs, FunctionGraphs or ``(inputs, outputs)`` pairs: before and after.
    names
        Whether to tell inputs and loops that were only renamed.

    Returns
    -------
    GraphDiff
        With changes exactly if the canonical digests differ (renamings aside). ``diff(b, a)`` finds
        the same changes the other way round.

    Raises
    ------
    ScanoptError
        If ``a`` or ``b`` is not a graph.
    """
    before, after = as_graph(a).fgraph, as_graph(b).fgraph
    digests = digest(before), digest(after)
    same = digests[0] == digests[1]
    changes: tuple[Change, ...] = ()
    if names or not same:
        inputs = (
            [(place, place) for place in range(len(before.inputs))]
            if same
            else pair_inputs(before.inputs, after.inputs)
        )
        settings = Settings(names=names, swapped=digests[0] > digests[1])
        changes = _by_loop(merged(_changes(before, after, inputs, settings)))
    return GraphDiff(
        same=same,
        changes=changes,
        before=statistics(before),
        after=statistics(after),
        digest_before=digests[0],
        digest_after=digests[1],
    )


def _by_loop(changes: tuple[Change, ...]) -> tuple[Change, ...]:
    """Return ``changes`` by loop, a loop behind what is around it, each loop in its own order."""
    first: dict[tuple[str, ...], int] = {}
    for change in changes:
        for depth in range(len(change.where) + 1):
            first.setdefault(change.where[:depth], len(first))

    def place(change: Change) -> list[int]:
        return [first[change.where[:depth]] for depth in range(len(change.where) + 1)]

    return tuple(sorted(changes, key=place))


def _changes(
    before: FunctionGraph, after: FunctionGraph, inputs: Pairs, settings: Settings
) -> Iterator[Change]:
    sides = two_sides(before, after, inputs)
    outputs = _pair_outputs(*sides)
    yield from _input_changes(*sides, inputs, names=settings.names)
    found = compare(*sides, inputs, outputs, settings)
    kept, kept_after = {first for first, _ in outputs}, {second for _, second in outputs}
    yield from _lost_outputs(ChangeKind.REMOVED, sides[0], kept, found.behind[0])
    yield from _lost_outputs(ChangeKind.ADDED, sides[1], kept_after, found.behind[1])
    order = [second for _, second in outputs]
    if order != sorted(order):
        told = (variable_text(sides[0], before.outputs[first]) for first, _ in outputs)
        retold = (variable_text(sides[1], after.outputs[second]) for second in sorted(order))
        yield _changed("outputs", "order", _listed(told), _listed(retold))
    yield from found.changes


def _pair_outputs(before: Side, after: Side) -> Pairs:
    """Pair outputs by place; if one side has more, by what they compute, then by name, by type."""
    outputs, later = before.graph.outputs, after.graph.outputs
    if len(outputs) == len(later):
        return [(place, place) for place in range(len(outputs))]
    return pair_up(
        outputs,
        later,
        (before.digest, after.digest),
        (_name, _name),
        (_type, _type),
        repeats=True,
    )


def _input_changes(before: Side, after: Side, inputs: Pairs, *, names: bool) -> Iterator[Change]:
    ours, theirs = before.graph.inputs, after.graph.inputs
    kept, kept_after = {first for first, _ in inputs}, {second for _, second in inputs}
    for place, variable in enumerate(ours):
        if place not in kept:
            yield _lost_input(ChangeKind.REMOVED, before, variable)
    for place, variable in enumerate(theirs):
        if place not in kept_after:
            yield _lost_input(ChangeKind.ADDED, after, variable)
    order = [second for _, second in inputs]
    if order != sorted(order):
        told = (variable_text(before, ours[first]) for first, _ in inputs)
        retold = (variable_text(after, theirs[second]) for second in sorted(order))
        yield _changed("inputs", "order", _listed(told), _listed(retold))
    for first, second in inputs:
        variable, other = ours[first], theirs[second]
        what = f"input `{variable_text(before, variable)}`"
        if variable.type != other.type:
            yield _changed(what, "type", type_text(variable), type_text(other))
        if names and variable.name != other.name:
            yield Change(
                kind=ChangeKind.RENAMED,
                where=(),
                what=what,
                before=variable.name or "no name",
                after=other.name or "no name",
            )


def _lost_input(kind: ChangeKind, side: Side, variable: Variable) -> Change:
    what = f"input `{variable_text(side, variable)}`"
    return Change(kind=kind, where=(), what=what, details=(type_text(variable),))


def _lost_outputs(
    kind: ChangeKind, side: Side, kept: set[int], behind: Mapping[int, Counter[str]]
) -> Iterator[Change]:
    for place, variable in enumerate(side.graph.outputs):
        if place not in kept:
            nodes = behind.get(place)
            yield Change(
                kind=kind,
                where=(),
                what=f"output {place}: {variable_text(side, variable)}",
                details=(f"with {summary(nodes)}",) if nodes else (),
            )


def _changed(what: str, aspect: str, before: str, after: str) -> Change:
    return Change(
        kind=ChangeKind.CHANGED, where=(), what=what, aspect=aspect, before=before, after=after
    )


def _listed(texts: Iterable[str]) -> str:
    return shortened(", ".join(texts))


def _name(variable: Variable) -> str | None:
    return variable.name or None


def _type(variable: Variable) -> str:
    return str(variable.type)
