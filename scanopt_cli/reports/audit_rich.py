"""The audit of a file, for a person at a terminal."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from scanopt_cli.serialization.auditing import AuditedGlobal, AuditReport
from scanopt_cli.text import printable


def render(report: AuditReport) -> RenderableType:
    """Return the verdict and every global, refused ones first."""
    parts: list[RenderableType] = [Text(verdict(report), style="green" if report.safe else "red")]
    if report.globals:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in ("", "module", "name", "times", "why"):
            table.add_column(
                column, overflow="fold", justify="right" if column == "times" else "left"
            )
        for item in sorted(report.globals, key=lambda item: (item.allowed, item.module)):
            cells = (item.module, item.qualname, str(item.mentions), why(item))
            sign = Text("+", style="green") if item.allowed else Text("!", style="red")
            table.add_row(sign, *(Text(printable(cell)) for cell in cells))
        parts.append(table)
    return Group(*parts)


def verdict(report: AuditReport) -> str:
    """Return one line that says whether loading would accept the file."""
    if report.refusal is None:
        return f"{printable(report.path)}: would be loaded"
    return f"would be refused: {printable(report.refusal)}"


def why(item: AuditedGlobal) -> str:
    """Return why a global is refused or ignored; empty if it is allowed."""
    if item.left_out:
        return "left out unread"
    return "; ".join(part for part in (item.reason, item.hint) if part)
