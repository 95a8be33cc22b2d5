"""What `optimize` did, as Markdown for a comment on a pull request."""

from __future__ import annotations

from dataclasses import fields

from scanopt_cli.analysis.statistics import Statistics
from scanopt_cli.pipeline.optimizing import OptimizeResult
from scanopt_cli.reports.optimize_rich import LABELS, shown, verdict
from scanopt_cli.reports.remark_text import grouped, text_of
from scanopt_cli.text import markdown


def render(source: str, result: OptimizeResult) -> str:
    """Return a section for one file: the verdict, the table, the remarks."""
    lines = [f"### {markdown(source)}", "", markdown(verdict(result)), ""]
    lines += ["| | before | after |", "|---|---:|---:|"]
    for field in fields(Statistics):
        old, new = getattr(result.before, field.name), getattr(result.after, field.name)
        if str(old) != "0" or str(new) != "0":
            lines.append(f"| {LABELS[field.name]} | {markdown(str(old))} | {markdown(str(new))} |")
    items = [
        f"- **{remark.pass_name}** {remark.kind} {markdown(remark.scan)}: "
        f"{markdown(text_of(remark))}"
        for run in result.passes
        for remark in grouped(shown(run, verbose=False))
    ]
    return "\n".join([*lines, "", *items, ""] if items else [*lines, ""])
