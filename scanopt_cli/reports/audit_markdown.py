"""The audit of a file, as Markdown."""

from __future__ import annotations

from scanopt_cli.reports.audit_rich import verdict, why
from scanopt_cli.serialization.auditing import AuditReport
from scanopt_cli.text import markdown


def render(report: AuditReport) -> str:
    """Return the verdict and a table of every global."""
    lines = [markdown(verdict(report)), "", "| | global | times | why |", "|---|---|---:|---|"]
    for item in report.globals:
        name = markdown(f"{item.module}.{item.qualname}")
        sign = "ok" if item.allowed else "**refused**"
        lines.append(f"| {sign} | {name} | {item.mentions} | {markdown(why(item))} |")
    return "\n".join(lines)
