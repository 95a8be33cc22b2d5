"""Digests of graphs and of the bodies in them, for a terminal and for other programs."""

from __future__ import annotations

from rich.text import Text

from scanopt_cli.equivalence.distinct_bodies import BodyDigest
from scanopt_cli.equivalence.hashing import GraphDigest
from scanopt_cli.text import printable

_INDENT = 2
_NAMES = 4


def render(graph: GraphDigest) -> Text:
    """Return a line as ``sha256sum`` prints it, and an indented one for each body."""
    lines = [Text.assemble(f"{graph.digest}  ", (printable(graph.source), "bold"))]
    for body in graph.inner or ():
        indent = " " * _INDENT * (body.depth + 1)
        lines.append(Text(f"{indent}{body.digest}  {body.times}x {printable(title(body))}"))
    return Text("\n").join(lines)


def title(body: BodyDigest) -> str:
    """Return the kind and the names of a body."""
    names = list(body.names[:_NAMES])
    if len(body.names) > _NAMES:
        names.append(f"and {len(body.names) - _NAMES} more")
    return f"{body.kind} {', '.join(names)}".strip()
