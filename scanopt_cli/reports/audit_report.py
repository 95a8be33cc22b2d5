"""What a file refers to, and whether it would be loaded."""

from __future__ import annotations

from collections.abc import Iterator

from scanopt_cli.reports.document import Block, Column, Paragraph, Span, Style, Table
from scanopt_cli.serialization.auditing import AuditedGlobal, AuditReport

_COLUMNS = (
    Column("", wraps=False),
    Column("module"),
    Column("name"),
    Column("times", is_number=True),
    Column("why"),
)


def audit_report(report: AuditReport, *, only_refused: bool = False) -> Iterator[Block]:
    """Yield the verdict and a table of every global, refused ones first, or of these alone."""
    if report.refusal is None:
        yield Paragraph(Span(f"{report.path}: would be loaded", Style.GOOD))
    else:
        yield Paragraph(Span(f"would be refused: {report.refusal}", Style.BAD))
    for line in () if only_refused else report.holds:
        yield Paragraph(line)
    shown = [item for item in report.globals if not (only_refused and item.allowed)]
    if shown:
        ordered = sorted(shown, key=lambda item: (item.allowed, item.module))
        yield Table(
            _COLUMNS,
            [
                (
                    Span("ok", Style.GOOD) if item.allowed else Span("refused", Style.BAD),
                    item.module,
                    item.qualname,
                    str(item.mentions),
                    _why(item),
                )
                for item in ordered
            ],
        )


def _why(item: AuditedGlobal) -> str:
    """Return why a global is refused or ignored; empty if it is allowed."""
    if item.left_out:
        return "left out unread"
    return "; ".join(part for part in (item.reason, item.hint) if part)
