"""All that is told of a graph's digest: those of its bodies too, and whether it holds elsewhere."""

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
        What the graph is called: the path of its file.
    digest
        What `scanopt_cli.digest` returns.
    inner
        The distinct bodies in it, each behind the one it is in; ``None`` if not asked for.
    opaque
        What cannot be told by value, in words. If there is any, the digests differ in every
        process.
    """

    source: str
    digest: str
    inner: tuple[BodyDigest, ...] | None
    opaque: tuple[str, ...]


def hash_graph(
    graph: Graph, *, inner: bool = False, names: bool = False, gradients: bool = False
) -> GraphDigest:
    """Return the digest of ``graph``, with those of its bodies if ``inner``.

    ``names`` and ``gradients`` say what counts, as in `scanopt_cli.digest`.
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
