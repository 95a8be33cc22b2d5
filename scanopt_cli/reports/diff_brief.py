"""The changes of a diff in short: what matters most, in as many lines as there are.

Slots that came or went are folded into a line, and so are equal changes of several. Inputs and
outputs come before slots, those before what a step computes, and that before the rest of the graph;
copies, conversions and constants of one value come last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from math import ceil

from scanopt_cli.diff.changes import (
    Change,
    ChangeKind,
    GraphDiff,
    Note,
    SubjectKind,
    total,
)
from scanopt_cli.reports.change_text import sentence, subject_text
from scanopt_cli.reports.diff_sections import Section, sections
from scanopt_cli.reports.diff_signs import FATES, SIGNS
from scanopt_cli.reports.document import Block, Item, Paragraph, Sign, Span, Style, left_out
from scanopt_cli.reports.loop_text import loop_line
from scanopt_cli.text import cut, plural

# What only moves or converts values: how a length is computed, for one.
_BOOKKEEPING = frozenset(
    (
        *("Alloc", "AllocEmpty", "Cast", "DeepCopyOp", "DimShuffle", "ExpandDims", "MakeVector"),
        *("ScalarFromTensor", "Second", "SetSubtensor", "Shape", "Shape_i", "SpecifyShape"),
        *("Squeeze", "Subtensor", "TensorFromScalar"),
    )
)
_COLUMNS = 80
# Beside the text: a sign, the word for it, and the depth.
_MARGIN = 18
# A sentence is told in fewer words if it is longer than two lines; a value, if it is longer.
_LONG = 140
_VALUE = 44


class _Rank(IntEnum):
    """What matters most comes first."""

    HEADS = 0
    ENDS = 1
    SLOTS = 2
    PROPERTIES = 3
    INSIDE = 4
    REST = 5
    TRIVIAL = 6


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line of the report: the section it is in, how it ranks, and how many changes it tells."""

    rank: _Rank
    section: int
    block: Block
    count: int = 0
    height: int = 1


def brief(diff: GraphDiff, lines: int) -> Iterator[Block]:
    """Yield the most important changes in about ``lines`` lines of 80 columns."""
    entries = list(_entries(diff))
    shown = _chosen(entries, lines - 1)  # the last one says what is left out
    headed = {entry.section for entry in shown if not _is_heading(entry)}
    for entry in shown:
        # A heading of nothing is left out; a loop is something.
        if not (_is_heading(entry) and entry.section not in headed):
            yield entry.block
    told = sum(entry.count for entry in shown)
    rest = sum(entry.count for entry in entries) - told
    if rest:
        yield left_out(rest, "change", "--lines 0 shows all")


def _is_heading(entry: _Entry) -> bool:
    return isinstance(entry.block, Paragraph)


def _chosen(entries: Sequence[_Entry], lines: int) -> list[_Entry]:
    """Return the entries that fit, in their order: by rank, and the first of each section first."""
    seen: dict[tuple[_Rank, int], int] = {}
    order = []
    for place, entry in enumerate(entries):
        before = seen[entry.rank, entry.section] = seen.get((entry.rank, entry.section), -1) + 1
        order.append((entry.rank, before, place))
    taken: set[int] = set()
    for _, _, place in sorted(order):
        height = entries[place].height
        if height <= lines or not taken:
            taken.add(place)
            lines -= height
    return [entry for place, entry in enumerate(entries) if place in taken]


def _entries(diff: GraphDiff) -> Iterator[_Entry]:
    found = sections(diff)
    for change in found.ends:
        yield _entry(_Rank.ENDS, 0, SIGNS[change.kind], _short(change), change.count, 0)
    number = 1
    for section in found.loops:
        yield from _of_loop(section, number)
        number += 1
    has_loops = bool(found.loops)
    for section in (*found.others, found.rest):
        title = f"in {' / '.join(section.where)}" if section.where else "outside of loops"
        if section.inside and has_loops:
            yield _Entry(_Rank.HEADS, number, Paragraph(Span(title, Style.STRONG)))
        yield from _inside(section.inside, number, _Rank.REST, int(has_loops))
        number += 1


def _of_loop(section: Section, number: int) -> Iterator[_Entry]:
    sign = FATES[section.loops[0].fate]
    line = loop_line(section.loops)
    yield _entry(_Rank.HEADS, number, sign, line, total(section.itself), 0)
    yield from _slots(section.slots, number)
    yield from _inside(section.inside, number, _Rank.INSIDE, 1)


def _slots(changes: Sequence[Change], number: int) -> Iterator[_Entry]:
    """Yield the slots that came, those that went, and the changes of those that stayed."""
    for kind in (ChangeKind.ADDED, ChangeKind.REMOVED):
        found = [change for change in changes if change.kind is kind]
        if found:
            text = _folded(change.subject.slot for change in found)
            yield _entry(_Rank.SLOTS, number, SIGNS[kind], text, total(found), 1)
    groups: dict[tuple[object, ...], list[Change]] = {}
    for change in changes:
        if change.kind not in (ChangeKind.ADDED, ChangeKind.REMOVED):
            # The constant that is the number of steps is the same change as that number.
            is_count = change.aspect == "constant" and change.subject.slot == "step count"
            aspect = "steps" if is_count else change.aspect
            key = change.kind, aspect, change.before, change.after, aspect == "steps"
            groups.setdefault(key, []).append(change)
    for group in groups.values():
        first = group[0]
        is_of_slots = all(change.subject.slot for change in group)
        slot = _folded(change.subject.slot for change in group) if is_of_slots else ""
        alone = replace(first, subject=replace(first.subject, op="", slot=slot), count=1)
        text = _short(alone)
        rank = _Rank.PROPERTIES if first.aspect else _Rank.INSIDE
        yield _entry(rank, number, SIGNS[first.kind], text, total(group), 1)


def _folded(slots: Iterable[str]) -> str:
    """Return slots with their kind once: ``seq `x`, `y`; sit_sot `h```."""
    by_kind: dict[str, list[str]] = {}
    for slot in slots:
        kind, _, name = slot.partition(" ") if "`" in slot else (slot, "", "")
        by_kind.setdefault(kind, []).append(name)
    return "; ".join(f"{kind} {', '.join(names)}".strip() for kind, names in by_kind.items())


def _inside(changes: Sequence[Change], number: int, rank: _Rank, depth: int) -> Iterator[_Entry]:
    for change in changes:
        ranked = _Rank.TRIVIAL if _is_trivial(change) else rank
        yield _entry(ranked, number, SIGNS[change.kind], _short(change), change.count, depth)


def _entry(rank: _Rank, number: int, sign: Sign, text: str, count: int, depth: int) -> _Entry:
    block = Item(Span(text, sign.style), sign=sign, depth=depth)
    return _Entry(rank, number, block, count, height(text))


def height(text: str) -> int:
    """Return how many lines of a terminal of 80 columns a text takes, or one more."""
    return ceil(len(text) / (_COLUMNS - _MARGIN))


def _is_trivial(change: Change) -> bool:
    """Whether a change only moves or converts values, or is one of a constant's type."""
    subject = change.subject
    if change.aspect == "constant" and change.before and change.after:
        return _number(change.before) == _number(change.after) is not None
    op = subject.op.partition("{")[0].partition("[")[0]
    return subject.kind in (SubjectKind.NODE, SubjectKind.NODE_INPUT) and op in _BOOKKEEPING


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _short(change: Change) -> str:
    """Return a change in a line or two, with a count of the nodes that went and came with it."""
    nodes = _nodes(change)
    for candidate in (change, _without_operands(change), _cut(_without_operands(change))):
        text = f"{sentence(candidate)}{nodes}"
        if len(text) <= _LONG:
            break
    return text


def _without_operands(change: Change) -> Change:
    if change.subject.kind is SubjectKind.NODE and not subject_text(change.subject.short()):
        return change
    return replace(change, subject=change.subject.short())


def _cut(change: Change) -> Change:
    before, after = (
        None if text is None else cut(text, _VALUE) for text in (change.before, change.after)
    )
    return replace(change, before=before, after=after)


def _nodes(change: Change) -> str:
    """Return how many other nodes went and came: `` (12 nodes → 8)``."""
    counts = {
        note.code: sum(count for _, count in note.fields["nodes"])
        for note in change.notes
        if note.code in (Note.WITH, Note.WITHOUT)
    }
    gone, come = counts.get(Note.WITHOUT), counts.get(Note.WITH)
    if gone and come:
        return f" ({plural(gone, 'node')} → {come})"
    if gone or come:
        return f" ({'without' if gone else 'with'} {plural(gone or come or 0, 'node')})"
    return ""
