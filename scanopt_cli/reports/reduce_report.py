"""How much smaller a broken graph has become, and what is left of it."""

from __future__ import annotations

from collections.abc import Iterator

from scanopt_cli.culprits.reducing import Reduced
from scanopt_cli.reports.document import Block, Heading, Paragraph, Preformatted, Span, Style
from scanopt_cli.text import cut, plural

_LONGEST = 120
_LINES = 40


def reduced_in_short(found: Reduced) -> str:
    """Return how much smaller a graph has become."""
    less = f"{found.before} → {plural(found.after, 'node')}"
    return less if found.is_minimal else f"{less}, and it may become smaller"


def reduce_report(source: str, target: str, found: Reduced) -> Iterator[Block]:
    """Yield the sizes, what is wrong, and the graph that is left."""
    yield Heading(source, reduced_in_short(found))
    after = "" if found.pipeline == "none" else f", after {found.pipeline}"
    yield Paragraph(f"property: {found.property}{after}")
    yield Paragraph([Span("still broken", Style.BAD), f": {cut(found.why, _LONGEST)}"])
    yield Paragraph()
    text = found.graph.fgraph.dprint(file="str", id_type="")
    lines = str(text).splitlines()
    shown = lines[:_LINES]
    yield Preformatted([*shown, *([f"… {len(lines) - _LINES} more lines"] * (len(lines) > _LINES))])
    yield Paragraph()
    told = f"{found.kept} of {plural(found.tried, 'smaller graph')} were broken as well"
    yield Paragraph(Span(f"{told}; the last one is {target}", Style.FAINT))
