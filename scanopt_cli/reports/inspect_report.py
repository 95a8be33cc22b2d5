"""Loops and their slots."""

from __future__ import annotations

from collections.abc import Iterator

from scanopt_cli.analysis.expression_text import at_tap, before_title
from scanopt_cli.analysis.inspection import Inspection, ScanReport, SlotReport
from scanopt_cli.analysis.same_draws import SAME_DRAWS
from scanopt_cli.reports.document import (
    Block,
    Column,
    Item,
    Line,
    Nested,
    Paragraph,
    Span,
    Style,
    Table,
)
from scanopt_cli.text import UNNAMED, plural

_COLUMNS = (
    Column("kind", wraps=False),
    Column("name"),
    Column("taps", wraps=False),
    Column("rows"),
    Column("fed by"),
    Column("inside"),
    Column("read by"),
)
# How many columns form a slot's first line if there is no room for a table.
_SHORT = 4
# In a narrower table each cell would be only a few letters wide.
_TABLE_WIDTH = 110


def inspect_report(inspection: Inspection) -> Iterator[Block]:
    """Yield a table for each loop; those of nested loops are deeper."""
    if not inspection.scans:
        yield Paragraph("no loop in this graph")
    has_unnamed = False
    for scan in inspection.scans:
        slots = [_cells(slot) for slot in scan.slots]
        has_unnamed |= any("?" in text for text in (scan.steps, *sum(slots, ())))
        items: list[Block] = [*map(_item, slots), Paragraph()]
        table = Table(_COLUMNS, slots, least_width=_TABLE_WIDTH, otherwise=items)
        yield Nested((_title(scan), table, *_warnings(scan)), depth=len(scan.path))
    if has_unnamed:
        yield Paragraph(UNNAMED)


def _warnings(scan: ScanReport) -> Iterator[Block]:
    names = [slot.name for slot in scan.slots if slot.same_draws]
    if names:
        yield Paragraph(
            [Span("warning: ", Style.WARNING), SAME_DRAWS.format(generators=", ".join(names))]
        )
        yield Paragraph()


def _title(scan: ScanReport) -> Paragraph:
    """Return a loop's name, its path, its trip count and other facts."""
    facts = [plural(scan.steps, "step"), f"{plural(scan.inner_nodes, 'node')} inside"]
    if scan.stops_when is not None:
        facts.append(f"stops when {scan.stops_when}")
    if scan.runs_while is not None:
        facts.append(f"goes on while {scan.runs_while}")
    if scan.batch_ndim:
        facts.append(f"batched over {scan.batch_ndim} {'axis' if scan.batch_ndim == 1 else 'axes'}")
    if scan.truncate_gradient != -1:
        facts.append(f"gradient truncated after {plural(scan.truncate_gradient, 'step')}")
    kind, name = before_title(scan.kind, scan.name), Span(scan.name, Style.NAME)
    path = f" in {' / '.join(scan.path)}" if scan.path else ""
    place = "" if scan.place is None else f" ({scan.place})"
    return Paragraph([kind, name, f"{path}{place}: {', '.join(facts)}"])


def _item(cells: tuple[str, ...]) -> Item:
    """Return a few lines for one slot."""
    kind, name, taps, rows, *long = cells
    is_one = rows.split(" ")[0] == "1"
    facts = ", ".join(filter(None, (taps, rows and f"{rows} {'row' if is_one else 'rows'}")))
    first: Line = [f"{kind:8} ", Span(name, Style.STRONG), f"  {facts}" if facts else ""]
    columns = zip(_COLUMNS[_SHORT:], long, strict=True)
    notes = [f"{column.title:8} {cell}" for column, cell in columns if cell]
    return Item(first, notes=notes, depth=1)


def _cells(slot: SlotReport) -> tuple[str, ...]:
    """Return the texts of one slot for each column."""
    taps = " ".join(map(at_tap, slot.taps))
    if slot.kind == "mit_mot":
        taps = f"{taps} → {' '.join(map(at_tap, slot.out_taps))}"
    has_result = bool(slot.out_taps)
    readers = ", ".join(dict.fromkeys(slot.read_by)) or ("nothing" if has_result else "")
    rows = slot.rows or ""
    if not slot.whole:
        rows += " (trimmed)" if slot.trimmed else " (length unknown)"
    return slot.kind, slot.name, taps, rows, slot.fed_by, slot.inside, readers
