"""Workflow commands, by which a step of GitHub Actions annotates files, and its summary.

The commands and their escapes follow GitHub's documentation ("Workflow commands").
"""

from __future__ import annotations

from collections.abc import Iterable

from scanopt_cli.reports import as_markdown
from scanopt_cli.reports.document import Block
from scanopt_cli.text import printable

_SUMMARY_BYTES = 1_000_000
"""GitHub takes 1 MiB from a step."""


def command(level: str, file: str, title: str, text: str, line: int | None = None) -> str:
    """Return an annotation of a file, at a line if one is given; ``level`` is ``error``, say."""
    at = "" if line is None else f",line={line}"
    return f"::{level} file={_property(file)}{at},title={_property(title)}::{_data(text)}"


def _data(text: str) -> str:
    return printable(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def step_summary(report: Iterable[Block]) -> str:
    """Return a report as Markdown, cut to a size that GitHub accepts."""
    text = as_markdown.render(report)
    if len(text.encode()) > _SUMMARY_BYTES:
        cut = text.encode()[:_SUMMARY_BYTES].decode(errors="ignore")
        text = f"{cut.rpartition('\n')[0]}\n- … the rest is too long for a step summary"
    return f"{text}\n"
