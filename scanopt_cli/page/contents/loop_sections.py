"""The loops of a graph: a table, the lines that wrote them, and the slots of each."""

from __future__ import annotations

from collections.abc import Iterator

from scanopt_cli.analysis.inspection import Inspection, ScanReport
from scanopt_cli.page.contents.lines import Told, by_line
from scanopt_cli.page.page import Section
from scanopt_cli.page.ports import facts
from scanopt_cli.reports.inspect_report import inspect_report


def loop_sections(inspection: Inspection, *, is_open: bool = True) -> Iterator[Section]:
    """Yield the loops as `inspect` tells them; folded the lines of the model, and the slots."""
    overview = list(inspect_report(inspection, details=False, is_brief=False))
    yield Section(title="Loops", blocks=overview, is_open=is_open)
    if not inspection.scans:
        return
    if any(scan.place for scan in inspection.scans):
        lines = by_line(map(_told, inspection.scans))
        yield Section(title="Loops by the model's lines", blocks=lines, is_open=False)
    slots = list(inspect_report(inspection, details=True))
    yield Section(title="Slots of each loop", blocks=slots, is_open=False)


def _told(scan: ScanReport) -> Told:
    return Told(scan.place, scan.title, "; ".join(facts(scan)))
