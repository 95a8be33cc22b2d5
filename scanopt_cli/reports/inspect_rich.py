"""Scans and their slots, for a person at a terminal."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from scanopt_cli.reports.text import printable
from scanopt_cli.scans.describing import at_tap
from scanopt_cli.scans.inspection import Inspection, ScanReport, SlotReport

COLUMNS = ("kind", "name", "taps", "fed by", "inside", "read by", "rows")
_INDENT = 4


def render(inspection: Inspection) -> RenderableType:
    """Return one table a Scan, those of nested Scans indented."""
    if not inspection.scans:
        return Text("no Scan in this graph")
    parts: list[RenderableType] = []
    for scan in inspection.scans:
        block = Group(heading(scan), _table(scan))
        parts.append(Padding(block, (0, 0, 0, _INDENT * len(scan.path))))
    return Group(*parts)


def heading(scan: ScanReport) -> Text:
    """Return a Scan's name, where it is, and its facts."""
    facts = [f"{scan.steps} steps", f"{scan.inner_nodes} nodes inside"]
    if scan.stops_when is not None:
        facts.append(f"stops when {scan.stops_when}")
    if scan.batch_ndim:
        facts.append(f"batched over {scan.batch_ndim} axes")
    if scan.truncate_gradient != -1:
        facts.append(f"gradient truncated after {scan.truncate_gradient} steps")
    text = Text.assemble("Scan ", (printable(scan.name), "bold cyan"))
    if scan.path:
        text.append(f" in {printable(' / '.join(scan.path))}")
    return text.append(f": {printable(', '.join(facts))}")


def _table(scan: ScanReport) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in COLUMNS:
        table.add_column(column, overflow="fold", no_wrap=column == "kind")
    for slot in scan.slots:
        table.add_row(*(Text(printable(cell)) for cell in cells(slot)))
    return table


def cells(slot: SlotReport) -> tuple[str, ...]:
    """Return what stands in each of `COLUMNS` for one slot."""
    taps = " ".join(map(at_tap, slot.taps))
    if slot.kind == "mit_mot":
        taps = f"{taps} → {' '.join(map(at_tap, slot.out_taps))}"
    has_result = bool(slot.out_taps)
    readers = ", ".join(dict.fromkeys(slot.read_by)) or ("nobody" if has_result else "")
    rows = slot.rows or ""
    if not slot.whole:
        rows += " (trimmed)"
    return slot.kind, slot.name, taps, slot.fed_by, slot.inside, readers, rows
