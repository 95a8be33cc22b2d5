"""What a diff says of whole graphs, and of each loop: the headline, and the lines of loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from scanopt_cli.diff.changes import (
    ChangeKind,
    GraphDiff,
    LoopChange,
    LoopFate,
    SubjectKind,
    total,
)
from scanopt_cli.diff.labels import holder_text
from scanopt_cli.reports.change_text import same_text
from scanopt_cli.reports.headline import arrow, from_to
from scanopt_cli.text import at_place, enumerated, plural, size_text

_ENDS = {SubjectKind.INPUT: "input", SubjectKind.OUTPUT: "output"}
_ORDERS = {SubjectKind.INPUTS: "inputs", SubjectKind.OUTPUTS: "outputs"}
# The most that two formulas take up of a line.
_FORMULAS = 60
_NAMED = 3


def headline(diff: GraphDiff) -> str:
    """Return the difference in one sentence with figures: ``3 Scans → 2: 1 merged; …``."""
    if diff.same:
        return same_text(diff)
    sizes = _buffers(diff.before.buffer_bytes, diff.after.buffer_bytes)
    parts = [_loops(diff), _nodes(diff), sizes, *_ends(diff), plural(total(diff.changes), "change")]
    return "; ".join(part for part in parts if part)


def _loops(diff: GraphDiff) -> str:
    if not (diff.before.has_loops or diff.after.has_loops):
        return ""
    fates = [f"{count} {fate}" for fate, count in _fates(diff.loops).items() if count]
    made = sum(loop.copies[1] * loop.times for loop in diff.loops if loop.of)
    if made:
        fates[0] += f" into {made}"
    return f"{from_to(diff.before, diff.after)}: {', '.join(fates) or 'as before'}"


def _fates(loops: Iterable[LoopChange]) -> Counter[str]:
    """Count the loops by what became of them; copies that are more or fewer are loops, too."""
    counts: Counter[str] = Counter(dict.fromkeys(map(str, _ORDER), 0))
    for loop in loops:
        before, after = loop.copies
        if loop.fate is LoopFate.NEW:
            # What others were merged into is no more than they were.
            counts[LoopFate.NEW] += 0 if loop.of else after * loop.times
        elif loop.fate in (LoopFate.GONE, LoopFate.MERGED):
            counts[loop.fate] += before * loop.times
        else:
            counts[LoopFate.MERGED] += max(before - after, 0) * loop.times
            counts[LoopFate.NEW] += max(after - before, 0) * loop.times
            if loop.changes:
                counts[loop.fate] += min(before, after) * loop.times
    return counts


_ORDER = (LoopFate.MERGED, LoopFate.GONE, LoopFate.NEW, LoopFate.REPLACED, LoopFate.CHANGED)


def _nodes(diff: GraphDiff) -> str:
    before, after = diff.before, diff.after
    outside = _change(before.outer_nodes, after.outer_nodes)
    if not (before.inner_nodes or after.inner_nodes):
        return f"{outside} nodes"
    return f"{outside} nodes outside, {_change(before.inner_nodes, after.inner_nodes)} inside"


def _change(before: int, after: int) -> str:
    return str(after) if before == after else f"{before} → {after}"


def _buffers(before: str, after: str) -> str:
    """Return two sizes: ``buffers 1.2 kB → 64 bytes``; nothing if they are equal, or too long."""
    if before == after or len(before) + len(after) > _FORMULAS:
        return ""
    return f"buffers {arrow([size_text(before), size_text(after)])}"


def _ends(diff: GraphDiff) -> Iterator[str]:
    """Yield ``output 0 changed``, or how many inputs and outputs were changed."""
    outer = [change for change in diff.changes if not change.where]
    for kind, noun in _ENDS.items():
        counts: Counter[str] = Counter()
        for change in outer:
            if change.subject.kind is kind:
                counts[_done(change.kind)] += change.count
        yield from (f"{plural(count, noun)} {done}" for done, count in counts.items())
    for kind, noun in _ORDERS.items():
        if any(change.subject.kind is kind for change in outer):
            yield f"{noun} in another order"


def _done(kind: ChangeKind) -> str:
    return "changed" if kind is ChangeKind.REWIRED else kind.value


def loop_line(loops: Sequence[LoopChange]) -> str:
    """Return what became of a loop, or of several that were merged into one."""
    first = loops[0]
    text = _names(loops)
    if first.fate is not LoopFate.NEW and (first.copies[0] > 1 or first.times > 1):
        text += f" ({plural(sum(loop.copies[0] * loop.times for loop in loops), 'time')})"
    elif first.copies[1] * first.times > 1:
        text += f" ({plural(first.copies[1] * first.times, 'time')})"
    text += at_place(first.place)
    what = "; ".join(filter(None, _parts(first)))
    return f"{text}: {what}" if what else text


def _names(loops: Sequence[LoopChange]) -> str:
    """Return the names of loops around which are the same ones, with their design."""
    first = loops[0]
    if len(loops) == 1:
        return holder_text(first.design, first.title)
    return f"{first.design}s {enumerated([f'`{loop.title}`' for loop in loops], _NAMED)}"


def _parts(loop: LoopChange) -> Iterator[str]:
    match loop.fate:
        case LoopFate.NEW:
            yield "in their place" if loop.of else "new"
            yield f"{plural(loop.nodes_after, 'node')} inside"
            return
        case LoopFate.GONE:
            yield f"gone, with {plural(loop.nodes, 'node')} inside"
            return
        case LoopFate.MERGED:
            yield f"merged into {holder_text(loop.into_design or loop.design, loop.into or '')}"
            return
        case LoopFate.REPLACED if loop.into_design != loop.design:
            yield f"now {holder_text(loop.into_design or '', loop.into or '')}"
        case LoopFate.REPLACED:
            yield f"by `{loop.into}`"
        case LoopFate.CHANGED:
            if loop.into is not None:
                yield f"now `{loop.into}`"
            if loop.copies[0] != loop.copies[1]:
                yield f"{plural(loop.copies[0], 'equal one')} → {loop.copies[1]}"
    if loop.nodes != loop.nodes_after:
        yield f"{loop.nodes} → {loop.nodes_after} nodes inside"
    yield _buffers(loop.buffers, loop.buffers_after)
