"""Loops and their slots as Markdown."""

from __future__ import annotations

from scanopt_cli.analysis.inspection import Inspection
from scanopt_cli.reports.inspect_rich import COLUMNS, cells, has_unnamed, heading
from scanopt_cli.text import UNNAMED, markdown


def render(inspection: Inspection) -> str:
    """Return one table for each loop."""
    lines: list[str] = []
    for scan in inspection.scans:
        lines += [f"**{markdown(heading(scan).plain)}**", "", f"| {' | '.join(COLUMNS)} |"]
        lines.append("|---" * len(COLUMNS) + "|")
        lines += [f"| {' | '.join(map(markdown, cells(slot)))} |" for slot in scan.slots]
        lines.append("")
    if has_unnamed(inspection):
        lines.append(UNNAMED)
    return "\n".join(lines) or "no loop in this graph"
