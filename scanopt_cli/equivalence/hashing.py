"""The digest of a graph and of its bodies, and whether it holds in other processes."""

from __future__ import annotations

from dataclasses import dataclass

from scanopt_cli.equivalence.distinct_bodies import BodyDigest, inner_digests
from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.ir.graph import Graph


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
    bodies = inner_digests(graph.fgraph, sameness) if inner else None
    return GraphDigest(
        source=graph.source,
        digest=digest,
        inner=bodies,
        opaque=tuple(dict.fromkeys(sameness.opaque)),
    )
