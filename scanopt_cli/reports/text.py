"""Text from files, made safe to print.

Names in a graph come from whoever wrote the file. They must not move the cursor, colour the
terminal, start a workflow command or break a table.
"""

from __future__ import annotations

import re

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~!])")


def printable(text: str) -> str:
    """Return ``text`` on one line, with every character that does not print told by its escape."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def plural(count: int, noun: str) -> str:
    """Return ``1 place``, ``2 places``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def markdown(text: str) -> str:
    """Return ``text`` so that Markdown shows it as it is, on one line."""
    return _MARKDOWN.sub(r"\\\1", printable(text))
