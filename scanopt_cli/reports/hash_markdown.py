"""Digests of graphs and of the bodies in them, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from scanopt_cli.equivalence.hashing import GraphDigest
from scanopt_cli.reports.hash_rich import title
from scanopt_cli.text import markdown


def render(graphs: Sequence[GraphDigest]) -> str:
    """Return a table with a row for each graph, and below it a row for each of its bodies."""
    lines = ["| digest | times | |", "|---|---:|---|"]
    for graph in graphs:
        lines.append(f"| `{graph.digest}` | | **{markdown(graph.source)}** |")
        for body in graph.inner or ():
            arrows = "↳ " * (body.depth + 1)
            lines.append(f"| `{body.digest}` | {body.times} | {arrows}{markdown(title(body))} |")
    return "\n".join(lines)
