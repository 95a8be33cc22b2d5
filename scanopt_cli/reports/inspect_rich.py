"""Loops and their slots, for a person at a terminal."""

from __future__ import annotations

from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from scanopt_cli.analysis.describing import at_tap, before_title
from scanopt_cli.analysis.inspection import Inspection, ScanReport, SlotReport
from scanopt_cli.text import UNNAMED, printable

COLUMNS = ("kind", "name", "taps", "rows", "fed by", "inside", "read by")
# How many columns form a slot's first line if there is no room for a table.
_SHORT = 4
_INDENT = 4
# In a narrower table each cell would be only a few letters wide.
_TABLE_WIDTH = 110


def render(inspection: Inspection) -> RenderableType:
    """Return one block for each loop; those of nested loops are indented."""
    if not inspection.scans:
        return Text("no loop in this graph")
    parts: list[RenderableType] = []
    for scan in inspection.scans:
        block = Group(heading(scan), _Slots(scan), "")
        parts.append(Padding(block, (0, 0, 0, _INDENT * len(scan.path)), expand=False))
    if has_unnamed(inspection):
        parts.append(Text(UNNAMED))
    return Group(*parts)


def has_unnamed(inspection: Inspection) -> bool:
    """Whether ``?`` stands for a number anywhere in the report."""
    return any(
        "?" in text
        for scan in inspection.scans
        for text in (scan.steps, *(cell for slot in scan.slots for cell in cells(slot)))
    )


@dataclass(frozen=True, slots=True)
class _Slots:
    """The slots of a loop: a table where there is room, else a few lines for each."""

    scan: ScanReport

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.max_width >= _TABLE_WIDTH:
            yield self._table()
        else:
            yield from self._lines()

    def _table(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for column in COLUMNS:
            table.add_column(column, overflow="fold", no_wrap=column in ("kind", "taps"))
        for slot in self.scan.slots:
            table.add_row(*(Text(printable(cell)) for cell in cells(slot)))
        return table

    def _lines(self) -> RenderResult:
        for slot in self.scan.slots:
            kind, name, taps, rows, *long = (printable(cell) for cell in cells(slot))
            facts = ", ".join(filter(None, (taps, rows and f"{rows} rows")))
            yield Text.assemble(f"  {kind:8} ", (name, "bold"), f"  {facts}" if facts else "")
            for column, cell in zip(COLUMNS[_SHORT:], long, strict=True):
                if cell:
                    yield Padding(Text(f"{column:8} {cell}"), (0, 0, 0, 11), expand=False)


def heading(scan: ScanReport) -> Text:
    """Return a loop's name, its path, its trip count and other facts."""
    inside = "1 node" if scan.inner_nodes == 1 else f"{scan.inner_nodes} nodes"
    facts = [f"{scan.steps} steps", f"{inside} inside"]
    if scan.stops_when is not None:
        facts.append(f"stops when {scan.stops_when}")
    if scan.runs_while is not None:
        facts.append(f"goes on while {scan.runs_while}")
    if scan.batch_ndim:
        facts.append(f"batched over {scan.batch_ndim} axes")
    if scan.truncate_gradient != -1:
        facts.append(f"gradient truncated after {scan.truncate_gradient} steps")
    kind = before_title(scan.kind, scan.name)
    text = Text.assemble(kind, (printable(scan.name), "bold cyan"))
    if scan.path:
        text.append(f" in {printable(' / '.join(scan.path))}")
    return text.append(f": {printable(', '.join(facts))}")


def cells(slot: SlotReport) -> tuple[str, ...]:
    """Return the texts of one slot for each of `COLUMNS`."""
    taps = " ".join(map(at_tap, slot.taps))
    if slot.kind == "mit_mot":
        taps = f"{taps} → {' '.join(map(at_tap, slot.out_taps))}"
    has_result = bool(slot.out_taps)
    readers = ", ".join(dict.fromkeys(slot.read_by)) or ("nothing" if has_result else "")
    rows = slot.rows or ""
    if not slot.whole:
        rows += " (trimmed)" if slot.trimmed else " (length unknown)"
    return slot.kind, slot.name, taps, rows, slot.fed_by, slot.inside, readers
