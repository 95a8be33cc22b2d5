"""The differences between two graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from scanopt_cli.diff.budgets import Violation, counts_text
from scanopt_cli.diff.changes import Change, ChangeKind, GraphDiff, LoopChange, LoopFate, total
from scanopt_cli.reports.change_text import note_texts, sentence
from scanopt_cli.reports.diff_brief import brief, height
from scanopt_cli.reports.diff_sections import Section, sections
from scanopt_cli.reports.diff_signs import FATES, SIGNS
from scanopt_cli.reports.document import (
    Block,
    Item,
    Line,
    Paragraph,
    Preformatted,
    Span,
    Style,
)
from scanopt_cli.reports.loop_text import headline, loop_line
from scanopt_cli.text import UNNAMED, cut, plural

# The longest bar and the longest name in a line of counts, which has room for both.
_BAR = 20
_NAME = 50
_COUNTS = {
    "added": ChangeKind.ADDED,
    "removed": ChangeKind.REMOVED,
    "changed": ChangeKind.CHANGED,
}


def diff_report(
    diff: GraphDiff,
    violations: Sequence[Violation] = (),
    *,
    stat: bool = False,
    lines: int = 0,
    stands_alone: bool = False,
    has_headline: bool = True,
) -> Iterator[Block]:
    """Yield the headline, the changes by loop (with ``stat``, only counts) and broken budgets.

    First come inputs and outputs, then each loop, then the rest. With ``lines``, changes are told
    in short and folded, the most important in about as many lines of 80 columns, and the remaining
    ones are only counted. A report that stands alone begins with the broken budgets. It also has
    the notes, which the command prints on stderr otherwise.
    """
    over = [Paragraph(Span(f"over budget: {item.text}", Style.BAD)) for item in violations]
    if stands_alone:
        yield from over
    if diff.same:
        yield Paragraph(Span(headline(diff), Style.GOOD))
    elif stat:
        yield Preformatted(list(_stat(diff)))
    else:
        above = headline(diff) if has_headline else ""
        if above:
            yield Paragraph(Span(above, Style.STRONG))
            yield Paragraph()
        taken = height(above) + 1 + len(violations) + ("?" in above) if above else 0
        yield from brief(diff, max(lines - taken, 1)) if lines else _whole(diff)
        if "?" in above:
            yield Paragraph(UNNAMED)
    if stat:
        yield Paragraph(f"counts of B, as --budget takes them: {counts_text(diff.after)}")
    if stands_alone:
        yield from (Paragraph(f"note: {note}") for note in diff.notes)
    else:
        yield from over


def _whole(diff: GraphDiff) -> Iterator[Block]:
    """Yield all changes, each with all that is known of it."""
    found = sections(diff)
    yield from (_item(change) for change in found.ends)
    for section in found.loops:
        yield from _section(section)
    if found.rest.inside and found.loops:
        yield Paragraph(Span("outside of loops", Style.STRONG))
    yield from (_item(change, 1 if found.loops else 0) for change in found.rest.inside)
    for section in found.others:
        yield Paragraph(Span(f"in {' / '.join(section.where)}", Style.STRONG))
        yield from (_item(change, 1) for change in section.inside)


def _section(section: Section) -> Iterator[Block]:
    first = section.loops[0]
    notes = [Span(note, Style.FAINT) for change in section.itself for note in note_texts(change)]
    sign = FATES[first.fate]
    yield Item(Span(loop_line(section.loops), sign.style), sign=sign, notes=notes)
    for change in section.slots:
        yield _item(replace(change, subject=replace(change.subject, op="")), 1)
    yield from (_item(change, 1) for change in section.inside)


def _item(change: Change, depth: int = 0) -> Item:
    sign = SIGNS[change.kind]
    text = Span(sentence(change), sign.style)
    notes = [Span(note, Style.FAINT) for note in note_texts(change)]
    return Item(text, sign=sign, notes=notes, depth=depth)


def _stat(diff: GraphDiff) -> Iterator[Line]:
    """Yield a line for each loop with a bar of its changes, and the totals."""
    rows = [(_stat_name(loop), _counts(loop)) for loop in diff.loops]
    totals = {
        "added": diff.count(ChangeKind.ADDED),
        "removed": diff.count(ChangeKind.REMOVED),
    }
    totals["changed"] = total(diff.changes) - sum(totals.values())
    rest = {
        name: max(count - sum(counts[name] for _, counts in rows), 0)
        for name, count in totals.items()
    }
    if any(rest.values()):
        rows.append(("outside of loops" if rows else "graph", rest))
    width = max((len(name) for name, _ in rows), default=0)
    digits = max((len(str(sum(counts.values()))) for _, counts in rows), default=1)
    most = max((sum(counts.values()) for _, counts in rows), default=1)
    for name, counts in rows:
        yield (f"{name:{width}} | {sum(counts.values()):{digits}} ", *_bar(counts, most))
    loops = f"{plural(len(diff.loops), 'loop')}, " if diff.loops else ""
    kinds = (f"{totals[name]} {name}({SIGNS[kind].text})" for name, kind in _COUNTS.items())
    yield f"{loops}{plural(sum(totals.values()), 'change')}: {', '.join(kinds)}"
    yield f"{plural(diff.unchanged, 'node')} the same"


def _stat_name(loop: LoopChange) -> str:
    """Return the name of a loop, its place and its fate; of the place what there is room for."""
    fate = "" if loop.fate is LoopFate.CHANGED else f", {loop.fate}"
    into = f" into {loop.into}" if loop.fate is LoopFate.MERGED else ""
    line = (loop.place or "").partition(" in ")[0]
    places = (loop.place or "", line, line.rpartition("/")[2])
    texts = [f"{loop.title} ({place}){fate}{into}" for place in dict.fromkeys(places) if place]
    texts.append(f"{loop.title}{fate}{into}")
    fitting = [text for text in texts if len(text) <= _NAME]
    return fitting[0] if fitting else cut(texts[-1], _NAME)


def _counts(loop: LoopChange) -> dict[str, int]:
    return {name: getattr(loop, name) for name in _COUNTS}


def _bar(counts: dict[str, int], most: int) -> Iterator[Span]:
    """Yield a sign for each change, or for as many as fit: in proportion, but one at least."""
    scale = min(1.0, _BAR / max(most, 1))
    for name, kind in _COUNTS.items():
        if counts[name]:
            sign = SIGNS[kind]
            yield Span(sign.text * max(1, round(counts[name] * scale)), sign.style)
