"""What is said of loops, as a tree of the lines of the model that wrote them.

File, then line and function, then loop, then what is said of it. What no line is known of comes
last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scanopt_cli.reports.check_report import written_at
from scanopt_cli.reports.document import Line, Span, Style, Tree

_UNKNOWN = "no line known"


@dataclass(frozen=True, slots=True)
class Told:
    """What is said of a loop, and where that was written, if it is known."""

    place: str | None
    loop: str
    text: Line


def by_line(told: Iterable[Told]) -> list[Tree]:
    """Return a tree for each file; lines of a file are in order, files as they are first told."""
    files: dict[str, dict[tuple[int, str], dict[str, list[Line]]]] = {}
    for one in told:
        found = written_at(one.place)
        file, line, function = (one.place or "", 0, "") if found is None else found
        loops = files.setdefault(file, {}).setdefault((line, function), {})
        loops.setdefault(one.loop, []).append(one.text)
    known = sorted(files, key=lambda file: not file)
    return [
        Tree(
            Span(file, Style.STRONG) if file else Span(_UNKNOWN, Style.FAINT),
            _lines(files[file]),
        )
        for file in known
    ]


def _lines(lines: dict[tuple[int, str], dict[str, list[Line]]]) -> list[Tree]:
    found = []
    for (line, function), loops in sorted(lines.items()):
        trees = [
            Tree(Span(loop, Style.NAME), list(map(Tree, told))) for loop, told in loops.items()
        ]
        if not line:
            found += trees
            continue
        within = f" in {function}" if function else ""
        found.append(Tree([f"line {line}", Span(within, Style.FAINT)], trees))
    return found
