"""The digest of a graph, and those of the distinct bodies in it, at any depth, with their counts.

The list of bodies is as canonical as its digests: equal graphs list equal bodies in the same order,
whatever order their nodes were created in. Only the counts distinguish a node that is written twice
from one that is shared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.graph.op import Op
from pytensor.scan.op import Scan

from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.ir.graph import Graph
from scanopt_cli.ir.inner_graphs import core_op, inner_graphs, op_name
from scanopt_cli.ir.levels import levels
from scanopt_cli.ir.written import written


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyDigest:
    """One distinct body of a graph; a batched loop (``Blockwise{Scan}``) has that loop's body.

    Attributes
    ----------
    digest
        Identifies the body, independent of what it is applied to.
    kind
        ``Scan``, ``OpFromGraph``, or the class of any other Op that holds a graph.
    names
        The names of the Ops that hold the body, sorted; empty if none has a name.
    places
        Where the loops that have it were written, sorted; none if that is not known.
    times
        How many nodes apply it. A node inside of a body counts once for each occurrence of that
        body, so the ``times`` of all Scans add up to the ``scans`` of the graph's statistics.
    depth
        The number of bodies around its outermost occurrence, 0 in the graph itself.
    """

    digest: str
    kind: str
    names: tuple[str, ...]
    places: tuple[str, ...] = ()
    times: int
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDigest:
    """The digest of one graph.

    Attributes
    ----------
    source
        The name of the graph: the path of its file.
    digest
        What `scanopt_cli.digest` returns.
    inner
        The distinct bodies in it, each after the one that contains it; ``None`` if not requested.
    opaque
        Descriptions of the values that cannot be encoded. If there are any, the digests differ in
        every process.
    """

    source: str
    digest: str
    inner: tuple[BodyDigest, ...] | None
    opaque: tuple[str, ...]


def hash_graph(
    graph: Graph, *, inner: bool = False, names: bool = False, gradients: bool = False
) -> GraphDigest:
    """Return the digest of ``graph``, with those of its bodies if ``inner``.

    ``names`` and ``gradients`` mean the same as in `scanopt_cli.digest`.
    """
    sameness = Sameness(names=names, gradients=gradients)
    digest = sameness.of_graph(graph.fgraph).hex()
    bodies = _inner_digests(graph.fgraph, sameness) if inner else None
    return GraphDigest(
        source=graph.source,
        digest=digest,
        inner=bodies,
        opaque=tuple(dict.fromkeys(sameness.opaque)),
    )


@dataclass(slots=True)
class _Body:
    op: Op
    depth: int
    times: int = 0
    names: set[str] = field(default_factory=set)
    places: set[str] = field(default_factory=set)
    # The bodies whose outermost occurrence is in this one, each with its level there.
    inside: dict[bytes, int] = field(default_factory=dict)


# A graph, how often it occurs, and the dict that records the level of each body in it.
type _Holder = tuple[AbstractFunctionGraph, int, dict[bytes, int]]


def _inner_digests(graph: AbstractFunctionGraph, sameness: Sameness) -> tuple[BodyDigest, ...]:
    """Return each distinct body in ``graph`` once, at its outermost occurrence.

    A body follows the one that contains it. Sibling bodies are sorted by level: first those that
    depend on no other, then those that depend on one of these, and so on.
    """
    bodies: dict[bytes, _Body] = {}
    first: dict[bytes, int] = {}
    # By id; the entry keeps the graph alive, so that its id is not used again.
    applied: dict[int, tuple[AbstractFunctionGraph, list[tuple[int, Op]]]] = {}
    # The graphs of one depth.
    holders: list[_Holder] = [(graph, 1, first)]
    depth = 0
    while holders:
        deeper: dict[tuple[bytes, int], _Holder] = {}
        for holder, occurs, inside in holders:
            if id(holder) not in applied:
                applied[id(holder)] = (holder, _applied(holder))
            for level, op in applied[id(holder)][1]:
                core = core_op(op)
                key = sameness.of_op(core)
                body = bodies.setdefault(key, _Body(core, depth))
                body.times += occurs
                body.names.add(op_name(core))
                if (found := written(core)) is not None and found.place is not None:
                    body.places.add(found.place)
                if body.depth == depth:
                    inside[key] = min(level, inside.get(key, level))
                for inner in inner_graphs(core):
                    _, before, _ = deeper.get((key, id(inner)), (inner, 0, first))
                    deeper[key, id(inner)] = (inner, before + occurs, body.inside)
        holders = list(deeper.values())
        depth += 1
    return tuple(_in_order(bodies, first))


def _applied(graph: AbstractFunctionGraph) -> list[tuple[int, Op]]:
    """Return the Ops that ``graph`` itself applies and that hold bodies, each with its level."""
    nodes = [node for node in graph.toposort() if inner_graphs(node.op)]
    return [(level, node.op) for node, level in levels(nodes).items()]


def _in_order(bodies: dict[bytes, _Body], first: dict[bytes, int]) -> Iterator[BodyDigest]:
    listed: set[bytes] = set()
    waiting = _latest_first(first)
    while waiting:
        key = waiting.pop()
        if key in listed:
            continue
        listed.add(key)
        body = bodies[key]
        kind = _kind(body.op)
        yield BodyDigest(
            digest=key.hex(),
            kind=kind,
            names=tuple(sorted(body.names - {kind})),
            places=tuple(sorted(body.places)),
            times=body.times,
            depth=body.depth,
        )
        waiting += _latest_first(body.inside)


def _latest_first(inside: dict[bytes, int]) -> list[bytes]:
    return sorted(inside, key=lambda key: (inside[key], key), reverse=True)


def _kind(op: Op) -> str:
    known = next((cls for cls in (Scan, OpFromGraph) if isinstance(op, cls)), type(op))
    return known.__name__
