"""What differs between two graphs, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from scanopt_cli.diffing.budget import Violation
from scanopt_cli.diffing.result import GraphDiff
from scanopt_cli.reports.diff_rich import SIGNS, sentence
from scanopt_cli.reports.text import markdown


def render(diff: GraphDiff, violations: Sequence[Violation] = ()) -> str:
    """Return a list of the changes by loop, and of broken budgets."""
    lines = ["The graphs are the same." if diff.same else "The graphs differ.", ""]
    for where, changes in groupby(diff.changes, key=lambda change: change.where):
        if where:
            lines += ["", f"In {markdown(' / '.join(where))}:", ""]
        for change in changes:
            lines.append(f"- `{SIGNS[change.kind]}` {change.kind} {markdown(sentence(change))}")
            lines += [f"  - {markdown(detail)}" for detail in change.details]
    if violations:
        lines += ["", "Over budget:", ""]
        lines += [f"- {markdown(violation.text)}" for violation in violations]
    return "\n".join(lines).rstrip()
