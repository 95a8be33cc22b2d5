"""Digests of a graph and of the bodies in it."""

from __future__ import annotations

from collections.abc import Iterator

from scanopt_cli.equivalence.hashing import BodyDigest, GraphDigest
from scanopt_cli.reports.document import Block, Item, Line, Span, Style
from scanopt_cli.text import few

_NAMES = 4


def hash_report(graph: GraphDigest) -> Iterator[Block]:
    """Yield a line as ``sha256sum`` prints it, and a deeper one for each body."""
    digest = Span(graph.digest, Style.CODE)
    yield Item([digest, "  ", Span(graph.source, Style.STRONG)], wraps=False)
    for body in graph.inner or ():
        text: Line = [Span(body.digest, Style.CODE), f"  {body.times}x {_title(body)}"]
        yield Item(text, depth=body.depth + 1, wraps=False)


def _title(body: BodyDigest) -> str:
    """Return the kind and the names of a body, and where it was written."""
    title = f"{body.kind} {few(body.names, _NAMES)}".strip()
    return f"{title} ({few(body.places, _NAMES)})" if body.places else title
