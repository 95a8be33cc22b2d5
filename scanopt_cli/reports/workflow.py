"""Workflow commands, by which a step of GitHub Actions annotates files.

The commands and their escapes follow GitHub's documentation ("Workflow commands").
"""

from __future__ import annotations

from scanopt_cli.text import printable


def command(level: str, file: str, title: str, text: str, line: int | None = None) -> str:
    """Return an annotation of a file, at a line if one is given; ``level`` is ``error``, say."""
    at = "" if line is None else f",line={line}"
    return f"::{level} file={_property(file)}{at},title={_property(title)}::{_data(text)}"


def _data(text: str) -> str:
    return printable(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
