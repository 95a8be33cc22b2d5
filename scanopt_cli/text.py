"""Escape text from files, so that it is safe to print.

The author of a file chooses the names in its graph. They must not move the cursor, colour the
terminal, end a line, start a command of the CI service that reads the log, or break a table. Text
for people goes through `printable`, Markdown through `markdown`; JSON is ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

# What CI services read as commands in a log: GitHub (``::error::``, ``##[error]``), Azure
# (``##vso[``) and TeamCity (``##teamcity[``). PyTensor's own ``{::step}`` is not a command.
_COMMAND = re.compile(r":(?=:(?!step\b)[A-Za-z])|#(?=#\w*\[)", re.IGNORECASE)
# What GitHub makes a link or a mention of: addresses, names of users, numbers of issues (``#12``,
# ``GH-12``) and of commits, which have seven digits or more. It takes `_` before one for the end of
# a word. A number without a letter stays as it is, so that it can be copied.
_LINK = re.compile(
    r"(?:@|://|www(?=\.)|(?:mailto|xmpp)(?=:)|GH(?=-\d)|#(?=\d))"
    r"|(?<![0-9A-Za-z])(?=\d*[a-f])[\da-f]{7,}(?![0-9A-Za-z])",
    re.IGNORECASE | re.ASCII,
)
_SHORT_OF_A_COMMIT = 6
_ZERO_WIDTH = "&#8203;"
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


def enumerated(texts: Sequence[str], most: int | None = None) -> str:
    """Return ``a, b and c``; of more than ``most`` texts, the first: ``a, b and 3 more``."""
    if most is not None and len(texts) > most:
        return few(texts, most)
    return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))


def few(texts: Sequence[str], most: int) -> str:
    """Return the first texts, and how many more there are: ``a, b and 3 more``."""
    rest = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {rest} more" if rest > 0 else "")


def comma_separated(texts: str | Iterable[str] | None) -> tuple[str, ...]:
    """Return what is between the commas of a text, or of each of several."""
    found = [texts] if isinstance(texts, str) else texts or ()
    parts = (part.strip() for text in found for part in text.split(","))
    return tuple(part for part in parts if part)


def cut(text: str, most: int) -> str:
    """Return a text of at most so many characters, the last of which shows that it is cut."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def at_place(place: str | None) -> str:
    """Return where something was written, to stand behind its name; nothing if it is unknown."""
    return f" ({place})" if place else ""


def size_text(size: str) -> str:
    """Return a number of bytes, or a formula for it, with its unit: ``1.7 MB``, ``8*n bytes``."""
    if not size.isdecimal():
        return f"{size} bytes"
    from rich.filesize import decimal

    return decimal(int(size))


_UNITS_OF_TIME = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def unit_of_time(seconds: float) -> tuple[float, str]:
    """Return the unit that suits a time, in seconds, and its name."""
    return next((unit for unit in _UNITS_OF_TIME if seconds >= unit[0]), _UNITS_OF_TIME[-1])


def time_text(seconds: float) -> str:
    """Return a time with three digits and its unit: ``1.23 ms``."""
    scale, unit = unit_of_time(seconds)
    return f"{three_digits(seconds / scale)} {unit}"


def three_digits(number: float) -> str:
    """Return a number with three digits, or those before the point."""
    return f"{number:.0f}" if abs(number) >= 100 else f"{number:.3g}"


def markdown(text: str) -> str:
    """Return ``text`` on one line, escaped so that Markdown shows it literally.

    It mentions nobody, and has no links: a zero-width space stands in what GitHub takes for one.
    """
    return _LINK.sub(_broken, _MARKDOWN.sub(r"\\\1", printable(text)))


def _broken(link: re.Match[str]) -> str:
    text, step = link[0], _SHORT_OF_A_COMMIT
    if len(text) <= step:
        return f"{text}{_ZERO_WIDTH}"
    return _ZERO_WIDTH.join(text[start : start + step] for start in range(0, len(text), step))


def with_article(name: str) -> str:
    """Return a word after "a" or "an"."""
    return f"{'an' if name[:1].lower() in tuple('aeiou') else 'a'} {name}"
