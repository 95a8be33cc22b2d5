"""Passes and their manuals as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from scanopt_cli.pipeline.manual import Manual
from scanopt_cli.reports.passes_rich import usage


def render(manuals: Sequence[Manual]) -> str:
    """Return a section for each pass."""
    return "\n\n".join(f"### `{usage(manual)}`\n\n{manual.text}" for manual in manuals)
