"""Text from files, made harmless for where it is printed.

Names in a graph come from whoever wrote the file. They must not move the cursor, colour the
terminal, end a line, start a command of the CI service that reads the log, or break a table. Text
for people goes through `printable`, Markdown through `markdown`; JSON is ASCII.
"""

from __future__ import annotations

import re

# Commands in a log: of GitHub (``::error::``, ``##[error]``), of Azure (``##vso[``) and TeamCity
# (``##teamcity[``). PyTensor's own ``{::step}`` is none.
_COMMAND = re.compile(r":(?=:(?!step\b)[A-Za-z])|#(?=#\w*\[)", re.IGNORECASE)
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~!&])")


def printable(text: str) -> str:
    """Return ``text`` on one line, without commands, and with escapes for what does not print."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() else _escape(char) for char in text)
    return _COMMAND.sub(lambda found: _escape(found[0]), text)


def _escape(char: str) -> str:
    escape = char.encode("unicode_escape").decode()
    return escape if escape != char else f"\\x{ord(char):02x}"


UNNAMED = "(?: a number that has no name)"
"""What is printed below a text with a question mark for a length, an index or a step count."""


def plural(count: int, noun: str) -> str:
    """Return ``1 place``, ``2 places``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def markdown(text: str) -> str:
    """Return ``text`` so that Markdown shows it as it is, on one line."""
    return _MARKDOWN.sub(r"\\\1", printable(text))
