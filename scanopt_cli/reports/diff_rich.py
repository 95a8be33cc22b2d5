"""The differences between two graphs, for a person at a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from scanopt_cli.diff.budgets import Violation
from scanopt_cli.diff.changes import Change, ChangeKind, GraphDiff
from scanopt_cli.reports.change_text import note_texts, same_text, sentence
from scanopt_cli.text import plural, printable

SIGNS = {
    ChangeKind.ADDED: "+",
    ChangeKind.REMOVED: "-",
    ChangeKind.CHANGED: "~",
    ChangeKind.REWIRED: "~",
    ChangeKind.RENAMED: "~",
}
"""The sign of each kind of change, which makes it readable without colour."""

_STYLES = {"+": "green", "-": "red", "~": "yellow"}
# Indentation of the changes inside of loops.
_INDENT = 2
_BAR = 60


def render(
    diff: GraphDiff,
    violations: Sequence[Violation] = (),
    *,
    stat: bool = False,
    lines: int = 0,
) -> RenderableType:
    """Return the changes by loop (with ``stat``, a line for each category) and broken budgets.

    After ``lines`` lines (0 for no limit), the remaining changes are only counted.
    """
    parts: list[RenderableType] = []
    if diff.same:
        parts.append(Text(printable(same_text(diff)), style="green"))
    elif stat:
        parts.extend(_stat(diff))
    else:
        shown = _first(diff.changes, lines) if lines else diff.changes
        for where, changes in groupby(shown, key=lambda change: change.where):
            if where:
                parts.append(Text(f"in {printable(' / '.join(where))}", style="bold"))
            parts.extend(_line(change, len(where)) for change in changes)
        if len(shown) < len(diff.changes):
            more = plural(len(diff.changes) - len(shown), "more change")
            parts.append(Text(f"… {more}; --lines 0 shows all", "dim"))
    parts.extend(Text(f"over budget: {printable(item.text)}", style="red") for item in violations)
    return Group(*parts)


def _first(changes: Sequence[Change], lines: int) -> Sequence[Change]:
    """Return as many changes as fit in ``lines`` lines, at least one."""
    ends = accumulate(1 + len(note_texts(change)) for change in changes)
    return changes[: max(1, sum(end <= lines for end in ends))]


def _line(change: Change, depth: int) -> RenderableType:
    sign = SIGNS[change.kind]
    verb = f"{change.kind} " if sign == "~" else ""
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_row(
        Text(sign, _STYLES[sign]), Text(printable(verb + sentence(change)), _STYLES[sign])
    )
    for note in note_texts(change):
        table.add_row("", Text(printable(note), "dim"))
    return Padding(table, (0, 0, 0, _INDENT * min(depth, 1)), expand=False)


def categories(diff: GraphDiff) -> dict[str, int]:
    """Return how many nodes are the same, and how many changes there are of each kind."""
    counts = {kind.value: count for kind in ChangeKind if (count := diff.count(kind))}
    return {"same": diff.unchanged} | counts


def _stat(diff: GraphDiff) -> Iterator[Text]:
    """Yield a line for each category, with a bar for each kind of change."""
    counts = categories(diff)
    width, digits = max(map(len, counts)), max(len(str(count)) for count in counts.values())
    for category, count in counts.items():
        line = Text(f"{category:{width}} | {count:{digits}}")
        if category in SIGNS:
            sign = SIGNS[ChangeKind(category)]
            line.append(" ").append(sign * min(count, _BAR), _STYLES[sign])
        yield line
