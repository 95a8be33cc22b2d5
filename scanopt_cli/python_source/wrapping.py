"""Long lines of a script, broken at the commas of their brackets.

What is in a bracket has a line of its own, or as many as it needs, each with as many parts as fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

WIDTH = 100
_INDENT = " " * 4
_OPENING, _CLOSING = "([{", ")]}"


def joined(text: str) -> str:
    """Return a call of which each argument has a line as one line."""
    first, *lines = text.split("\n")
    arguments = " ".join(line.strip() for line in lines)
    return (first + arguments).replace(", )", ")")


def wrapped(line: str, indent: str = "") -> Iterator[str]:
    """Yield the lines that a statement, or a part of one, is written in."""
    if len(indent) + len(line) <= WIDTH:
        yield indent + line
        return
    places = list(_brackets(line))
    groups = list(_groups(places))
    if not groups:
        yield indent + line
        return
    start, end = max(groups, key=lambda group: group[1] - group[0])
    commas = [at for sign, at, depth in places if sign == "," and depth == 1 and start < at < end]
    content = line[start + 1 : end].strip()
    if not commas or len(indent) + len(_INDENT) + len(content) <= WIDTH:
        inside = list(wrapped(content, indent + _INDENT))
    else:
        edges = [start, *commas, end]
        parts = [line[a + 1 : b].strip() for a, b in pairwise(edges)]
        inside = list(_filled([f"{part}," for part in parts if part], indent + _INDENT))
    yield indent + line[: start + 1]
    yield from inside
    first, *others = wrapped(line[end + 1 :], indent)
    yield f"{indent}{line[end]}{first[len(indent) :]}"
    yield from others


def _filled(parts: list[str], indent: str) -> Iterator[str]:
    """Yield lines with as many parts as fit; one that is too long for a line has its own."""
    together = ""
    for part in parts:
        joint = f"{together} {part}" if together else part
        if len(indent) + len(joint) <= WIDTH:
            together = joint
            continue
        if together:
            yield indent + together
        together = part
        if len(indent) + len(part) > WIDTH:
            yield from wrapped(part, indent)
            together = ""
    if together:
        yield indent + together


def _groups(places: list[tuple[str, int, int]]) -> Iterator[tuple[int, int]]:
    """Yield where the outermost brackets open and close; the last may close in another line."""
    outer = [(sign, at) for sign, at, depth in places if depth == 0 and sign != ","]
    for (_, start), (sign, end) in zip(outer[::2], outer[1::2], strict=False):
        assert sign in _CLOSING
        yield start, end


def _brackets(line: str) -> Iterator[tuple[str, int, int]]:
    """Yield each bracket and comma outside of strings, its place, and how deep it is."""
    depth, quote, place = 0, "", 0
    while place < len(line):
        sign = line[place]
        if quote:
            if sign == "\\":
                place += 1
            elif sign == quote:
                quote = ""
        elif sign in "'\"":
            quote = sign
        elif sign in _OPENING:
            yield sign, place, depth
            depth += 1
        elif sign in _CLOSING:
            depth -= 1
            yield sign, place, depth
        elif sign == ",":
            yield sign, place, depth
        place += 1
