"""Escape text from files, so that it is safe to print.

The author of a file chooses the names in its graph. They must not move the cursor, colour the
terminal, end a line, start a command of the CI service that reads the log, or break a table. Text
for people goes through `printable`, Markdown through `markdown`; JSON is ASCII.
"""

from __future__ import annotations

import re

# What CI services read as commands in a log: GitHub (``::error::``, ``##[error]``), Azure
# (``##vso[``) and TeamCity (``##teamcity[``). PyTensor's own ``{::step}`` is not a command.
_COMMAND = re.compile(r":(?=:(?!step\b)[A-Za-z])|#(?=#\w*\[)", re.IGNORECASE)
_MENTION = re.compile(r"(@|://|\bwww(?=\.)|\bmailto(?=:))", re.IGNORECASE)
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~!&])")


def printable(text: str) -> str:
    """Return ``text`` on one line, with unprintable characters and starts of commands escaped."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() else _escape(char) for char in text)
    return _COMMAND.sub(lambda found: _escape(found[0]), text)


def _escape(char: str) -> str:
    escape = char.encode("unicode_escape").decode()
    return escape if escape != char else f"\\x{ord(char):02x}"


UNNAMED = "(?: a number that has no name)"
"""The legend below a text in which ``?`` stands for a length, an index or a step count."""


def plural(count: int | str, noun: str) -> str:
    """Return ``1 place``, ``2 places``, ``n places``."""
    return f"{count} {noun}" if str(count) == "1" else f"{count} {noun}s"


def markdown(text: str) -> str:
    """Return ``text`` on one line, escaped so that Markdown shows it literally.

    It mentions nobody, and has no links: a zero-width space stands in what GitHub takes for one.
    """
    return _MENTION.sub(r"\1&#8203;", _MARKDOWN.sub(r"\\\1", printable(text)))


def with_article(name: str) -> str:
    """Return a word after "a" or "an"."""
    return f"{'an' if name[:1].lower() in tuple('aeiou') else 'a'} {name}"
