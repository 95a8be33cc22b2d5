"""The result of a verification, as Markdown."""

from __future__ import annotations

from scanopt_cli.reports.verify_rich import notes, summary
from scanopt_cli.text import markdown
from scanopt_cli.verification.result import Verification


def render(verification: Verification) -> str:
    """Return the verdict, and an item for each place that differs."""
    items = notes(verification)
    lines = [markdown(summary(verification)), *([""] if items else [])]
    return "\n".join([*lines, *(f"- {markdown(item)}" for item in items)])
