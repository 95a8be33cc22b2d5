"""The pedigree of the Scans of a derivative, as a tree."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, inf

from scanopt_cli.autodiff.pedigree.pedigree import Pedigree, ScanRecord
from scanopt_cli.reports.document import Block, Line, Paragraph, Span, Style, Tree, left_out
from scanopt_cli.text import at_place

# What a terminal has for a line of the tree, as deep as it is on average.
_COLUMNS = 66


def pedigree_report(pedigree: Pedigree, lines: int = 0) -> Iterator[Block]:
    """Yield the Scans, each below its parent in the same graph, or below the Scan that holds it.

    Scans are identified by their full names. A place is told of a loop that has another one than
    what it is below. With ``lines``, only as many Scans as fit in about as many lines are shown.
    """
    if not pedigree.scans:
        yield Paragraph("no loop in the derivative")
        return
    root: list[Tree] = []
    below: dict[str, list[Tree]] = {record.full_name: [] for record in pedigree.scans}
    places: dict[str, str | None] = {}
    shown, left = 0, lines or inf
    for record in pedigree.scans:
        beside = "/".join((*record.path, record.parent or ""))
        around = ("/".join(record.path[:depth]) for depth in range(len(record.path), 0, -1))
        over = next((name for name in (beside, *around) if name in below), None)
        is_told = over is not None and places.get(over) == record.place
        places[record.full_name] = record.place
        text = origin_text(record, has_place=not is_told)
        height = ceil((len(record.name) + len(text)) / _COLUMNS)
        if shown and height > left:
            break
        shown, left = shown + 1, left - height
        label: Line = [Span(record.name, Style.NAME), text]
        siblings = root if over is None else below[over]
        siblings.append(Tree(label, below[record.full_name]))
    yield Tree(Span("pedigree", Style.STRONG), root)
    rest = len(pedigree.scans) - shown
    if rest:
        yield left_out(rest, "loop", "--lines 0 shows all")


def origin_text(record: ScanRecord, *, has_place: bool) -> str:
    """Return what is said of a Scan after its name."""
    way = "unknown direction" if record.direction == "unknown" else record.direction.value
    parts = [way]
    if record.tangents_of is not None:
        parts.append(f"{record.tangents_of} with its tangents")
    if record.parent is not None:
        parts.append(f"pullback of {record.parent}")
    elif record.generation and record.tangents_of is None:
        parts.append(f"pullback, generation {record.generation}")
    if record.reason is not None:
        parts.append(f"parent unknown: {record.reason}")
    if record.path:
        parts.append(f"in {'/'.join(record.path)}")
    if record.depends_on:
        parts.append(f"depends on {', '.join(record.depends_on)}")
    if record.reads_inputs:
        parts.append(f"reads {', '.join(record.reads_inputs)}")
    place = at_place(record.place) if has_place else ""
    return f"{place}: {'; '.join(parts)}"
