"""The result of a verification."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from scanopt_cli.reports.document import Block, Item, Paragraph, Span, Style
from scanopt_cli.text import at_place, few, plural
from scanopt_cli.verification.result import Difference, DifferenceKind, Verdict, Verification

_STYLES = {
    Verdict.IDENTICAL: Style.GOOD,
    Verdict.AGREES: Style.GOOD,
    Verdict.DIFFERS: Style.BAD,
    Verdict.COULD_NOT_RUN: Style.WARNING,
}
_COUNTED = {
    Verdict.IDENTICAL: "identical",
    Verdict.AGREES: "agreeing",
    Verdict.DIFFERS: "different",
    Verdict.COULD_NOT_RUN: "not run",
}
# A wrong graph differs everywhere; the first few places say enough.
_MOST = 10
# How many of the loops that an output comes from are named.
_LOOPS = 2


def verify_report(verification: Verification, *, title: str = "") -> Iterator[Block]:
    """Yield the verdict after a title, and the places that differ."""
    yield Paragraph([title, Span(summary(verification), _STYLES[verification.verdict])])
    yield from (Item(note, depth=1) for note in notes(verification))


def notes(verification: Verification) -> list[str]:
    """Return the first places that differ, how many more there are, and remarks and notes."""
    differences = verification.differences
    hidden = len(differences) - _MOST
    return [
        *map(difference_text, differences[:_MOST]),
        *([f"… {hidden} more"] if hidden > 0 else []),
        *(f"note: {note}" for note in (*verification.remarks, *verification.notes)),
    ]


def counted(verdicts: Iterable[Verdict]) -> str:
    """Return how many graphs there are of each verdict: ``2 identical, 1 different``."""
    counts = Counter(verdicts)
    return ", ".join(f"{counts[each]} {text}" for each, text in _COUNTED.items() if counts[each])


def summary(verification: Verification) -> str:
    """Return the verdict in one line."""
    done, tried = verification.runs, verification.runs_tried
    reason = f": {verification.reason}" if verification.reason else ""
    # A note says that a mode itself changes values.
    is_same = verification.modes and not verification.notes
    modes = ("the default mode" if name == "default" else name for name in verification.modes)
    compiled = f"; the same compiled by {', '.join(modes)}" if is_same else ""
    match verification.verdict:
        case Verdict.IDENTICAL:
            return f"identical on {done} of {tried} runs{reason}{compiled}"
        case Verdict.AGREES:
            return f"agrees on {done} of {tried} runs{reason}{compiled}"
        case Verdict.DIFFERS:
            failing = sum(item.run is None for item in verification.differences)
            places = len(verification.differences) - failing
            found = [f"{plural(places, 'place')} in {plural(tried, 'run')}"] * bool(places)
            found += [f"{plural(failing, 'failing rewrite')} of PyTensor's"] * bool(failing)
            return f"differs: {', '.join(found)}{reason}"
    return f"could not run{reason}"


def difference_text(item: Difference) -> str:
    """Return one place that differs, in one line."""
    if item.kind is DifferenceKind.REWRITE_FAILS:
        return (
            f"compiled by {item.mode}: PyTensor's {item.rewrite} fails on the second graph, and "
            f"not on the first: {item.b}"
        )
    where = f" at {list(item.where)}" if item.where else ""
    output = "" if item.output is None else f"output {item.name or item.output}{where}: "
    error = "" if item.abs_error is None else f", off by {item.abs_error:.3g}"
    mode = "" if item.mode is None else f", compiled by {item.mode}"
    run = f"run {item.run} ({item.arguments}{mode})"
    match item.kind:
        case DifferenceKind.ONLY_A_RAISES:
            what = f"the first graph raises {item.a}, the second computes"
        case DifferenceKind.ONLY_B_RAISES:
            what = f"the second graph raises {item.b}, the first computes"
        case DifferenceKind.VALUES:
            what = f"{item.a} against {item.b}{error}"
        case _:
            what = f"{item.kind} {item.a} against {item.b}"
    return f"{run}: {output}{what}{_after(item)}"


def _after(item: Difference) -> str:
    """Return the loops that an output comes from: ``, after rnn (model.py:41 in step)``."""
    if not item.loops:
        return ""
    names = [f"{loop.name}{at_place(loop.place)}" for loop in item.loops]
    return f", after {few(names, _LOOPS)}"
