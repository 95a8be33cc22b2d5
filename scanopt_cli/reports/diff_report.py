"""The differences between two graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby

from scanopt_cli.diff.budgets import Violation
from scanopt_cli.diff.changes import Change, ChangeKind, GraphDiff
from scanopt_cli.reports.change_text import note_texts, same_text, sentence
from scanopt_cli.reports.document import (
    Block,
    Item,
    Line,
    Paragraph,
    Preformatted,
    Sign,
    Span,
    Style,
)
from scanopt_cli.text import plural

SIGNS = {
    ChangeKind.ADDED: Sign("+", Style.GOOD, "added"),
    ChangeKind.REMOVED: Sign("-", Style.BAD, "removed"),
    **{
        kind: Sign("~", Style.WARNING, kind.value, is_clear=False)
        for kind in (ChangeKind.CHANGED, ChangeKind.REWIRED, ChangeKind.RENAMED)
    },
}
"""The sign of each kind of change, which makes it readable without colour."""

_BAR = 60


def diff_report(
    diff: GraphDiff,
    violations: Sequence[Violation] = (),
    *,
    stat: bool = False,
    lines: int = 0,
    stands_alone: bool = False,
) -> Iterator[Block]:
    """Yield the changes by loop (with ``stat``, a line for each category) and broken budgets.

    After ``lines`` lines (0 for no limit), the remaining changes are only counted. A report that
    stands alone begins with the broken budgets and says that the graphs differ. It also has the
    notes, which the command prints on stderr otherwise.
    """
    over = [Paragraph(Span(f"over budget: {item.text}", Style.BAD)) for item in violations]
    if stands_alone:
        yield from over
        if not diff.same:
            yield Paragraph("the graphs differ")
    if diff.same:
        yield Paragraph(Span(same_text(diff), Style.GOOD))
    elif stat:
        yield Preformatted(list(_stat(diff)))
    else:
        shown = _first(diff.changes, lines) if lines else diff.changes
        for where, changes in groupby(shown, key=lambda change: change.where):
            if where:
                yield Paragraph(Span(f"in {' / '.join(where)}", Style.STRONG))
            yield from map(_item, changes)
        if len(shown) < len(diff.changes):
            more = plural(len(diff.changes) - len(shown), "more change")
            yield Paragraph(Span(f"… {more}; --lines 0 shows all", Style.FAINT))
    if stands_alone:
        yield from (Paragraph(f"note: {note}") for note in diff.notes)
    else:
        yield from over


def _first(changes: Sequence[Change], lines: int) -> Sequence[Change]:
    """Return as many changes as fit in ``lines`` lines, at least one."""
    ends = accumulate(1 + len(note_texts(change)) for change in changes)
    return changes[: max(1, sum(end <= lines for end in ends))]


def _item(change: Change) -> Item:
    sign = SIGNS[change.kind]
    text = Span(sentence(change), sign.style)
    notes = [Span(note, Style.FAINT) for note in note_texts(change)]
    return Item(text, sign=sign, notes=notes, depth=min(len(change.where), 1))


def _stat(diff: GraphDiff) -> Iterator[Line]:
    """Yield a line for each category, with a bar for each kind of change."""
    counts = {kind.value: count for kind in ChangeKind if (count := diff.count(kind))}
    counts = {"same": diff.unchanged} | counts
    width, digits = max(map(len, counts)), max(len(str(count)) for count in counts.values())
    for category, count in counts.items():
        line = f"{category:{width}} | {count:{digits}}"
        if category == "same":
            yield line
        else:
            sign = SIGNS[ChangeKind(category)]
            yield (f"{line} ", Span(sign.text * min(count, _BAR), sign.style))
