"""Graph files beside what they were at a revision, in each of the formats of `diff`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from scanopt_cli.diff.file_diffs import FileDiff, FileFate
from scanopt_cli.reports import diff_github
from scanopt_cli.reports.as_json import plain
from scanopt_cli.reports.diff_report import diff_report
from scanopt_cli.reports.document import Block, Heading, Item, Paragraph, Sign, Span, Style
from scanopt_cli.reports.loop_text import headline
from scanopt_cli.reports.workflow import command
from scanopt_cli.text import plural, printable

_SIGNS = {
    FileFate.NEW: Sign("+", Style.GOOD, "new"),
    FileFate.RENAMED: Sign("~", Style.FAINT, "renamed"),
    FileFate.GONE: Sign("-", Style.BAD, "gone"),
}
_COUNTED = {
    FileFate.DIFFERS: "different",
    FileFate.NEW: "new",
    FileFate.GONE: "gone",
    FileFate.RENAMED: "renamed",
    FileFate.SAME: "the same",
}
# A graph that differs is told in so many lines, however many there are.
_FEWEST = 8


def file_diffs_report(
    diffs: Sequence[FileDiff],
    revision: str,
    *,
    stat: bool = False,
    lines: int = 0,
    stands_alone: bool = False,
) -> Iterator[Block]:
    """Yield what is different in each graph, as `diff_report` has it, and a line of counts.

    Of one graph that both sides have, only the difference.
    """
    each = lines and max(lines // max(sum(d.fate is FileFate.DIFFERS for d in diffs), 1), _FEWEST)
    for found in diffs:
        over = [Paragraph(Span(f"over budget: {v.text}", Style.BAD)) for v in found.violations]
        if found.diff is not None and (found.fate is FileFate.DIFFERS or len(diffs) == 1):
            if len(diffs) > 1:
                yield Heading(found.source)
            yield from diff_report(
                found.diff, found.violations, stat=stat, lines=each, stands_alone=stands_alone
            )
            if len(diffs) > 1:
                yield Paragraph()
        elif found.fate in _SIGNS or over or len(diffs) == 1:
            yield Item(fate_text(found, revision), sign=_SIGNS.get(found.fate))
            yield from over
    if len(diffs) != 1:
        yield Paragraph(total(diffs, revision))


def fate_text(found: FileDiff, revision: str) -> str:
    """Return what became of a file, in one sentence without a stop."""
    match found.fate:
        case FileFate.NEW:
            return f"{found.source} is not in {revision}"
        case FileFate.GONE:
            return f"{found.source} is in {revision} alone"
        case FileFate.RENAMED:
            return f"{found.source} is {found.earlier} in {revision}"
        case FileFate.SAME:
            return f"{found.source} is as in {revision}"
        case FileFate.DIFFERS:
            return f"{found.source} differs from {revision}"


def total(diffs: Sequence[FileDiff], revision: str) -> str:
    """Return ``3 graphs beside main: 1 different, 2 the same``."""
    counts = Counter(found.fate for found in diffs)
    told = [f"{counts[fate]} {word}" for fate, word in _COUNTED.items() if counts[fate]]
    return f"{plural(len(diffs), 'graph')} beside {revision}: {', '.join(told)}"


def workflow_commands(diffs: Sequence[FileDiff], revision: str) -> Iterator[str]:
    """Yield annotations for GitHub Actions, as `diff` has them for two graphs."""
    for found in diffs:
        if found.diff is not None and found.fate is FileFate.DIFFERS:
            yield diff_github.workflow_commands(found.diff, found.violations, file=found.source)
            continue
        for violation in found.violations:
            yield command("error", found.source, "over budget", violation.text)
        if found.is_other:
            title = f"{found.fate} graph"
            yield command("warning", found.source, title, fate_text(found, revision))
    yield printable(total(diffs, revision))


def as_json(found: FileDiff) -> dict[str, object]:
    """Return the entry of a file in JSON."""
    told: dict[str, object] = plain(found)
    if found.diff is not None:
        told["diff"] = {"headline": headline(found.diff)} | plain(found.diff)
    return told
