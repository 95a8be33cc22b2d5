"""What `check` found in a graph, in each of its formats; `check_totals` sums it up."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scanopt_cli.diff.changes import GraphDiff
from scanopt_cli.ir.inner_graphs import PULLBACK
from scanopt_cli.reports.as_json import plain
from scanopt_cli.reports.diff_report import diff_report
from scanopt_cli.reports.document import (
    Block,
    Heading,
    Item,
    Line,
    Paragraph,
    Sign,
    Span,
    Style,
    located,
)
from scanopt_cli.reports.remark_text import without_numbers
from scanopt_cli.reports.workflow import command
from scanopt_cli.rules.graph_checking import CheckResult
from scanopt_cli.rules.mending import Mended
from scanopt_cli.rules.rule_contract import Finding, Severity
from scanopt_cli.text import at_place, printable

STYLES = {
    Severity.ERROR: Style.BAD,
    Severity.WARNING: Style.WARNING,
    Severity.NOTE: Style.FAINT,
}
_SIGNS = {
    Severity.ERROR: Sign("!", Style.BAD, "error"),
    Severity.WARNING: Sign("~", Style.WARNING, "warning"),
    Severity.NOTE: Sign("?", Style.FAINT, "note"),
}
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
# As `Written.place` has it. Names of files and functions may be any text.
_PLACE = re.compile(r"(?P<file>.+?):(?P<line>[1-9][0-9]{0,8})(?: in (?P<function>.*))?", re.DOTALL)
# So many findings that are alike are each told.
_FEW = 2
_UNSURE = Sign(".", Style.FAINT, "not sure")


@dataclass(frozen=True, slots=True)
class Mending:
    """What `check` was asked to mend in a graph, and did.

    Attributes
    ----------
    unsafe
        Whether fixes count that may change values.
    mended
        What was mended; the findings that are reported are those that are left.
    diff
        The difference that it made, if that is shown.
    is_written
        Whether the mended graph was written.
    """

    unsafe: bool = False
    mended: Mended | None = None
    diff: GraphDiff | None = None
    is_written: bool = False


_NOTHING = Mending()


def check_report(
    path: Path, result: CheckResult, mending: Mending = _NOTHING, *, verbose: bool = False
) -> Iterator[Block]:
    """Yield what was mended in a graph, and what is found in it.

    Unless ``verbose``, one finding stands for all of its rule in copies of a loop.
    """
    if mending.diff is not None:
        yield Heading(str(path))
        yield from diff_report(mending.diff)
        yield Paragraph()
    yield from findings(path, result, verbose=verbose)


def findings(path: Path, result: CheckResult, *, verbose: bool = False) -> Iterator[Block]:
    """Yield the findings in a graph that has some, as `check_report` does."""
    if result.findings or result.suspects:
        yield Heading(str(path))
        yield from finding_items(result.findings, verbose=verbose)
        yield from (_item(finding, _UNSURE) for finding in result.suspects)
        yield Paragraph()


def gate(path: Path, result: CheckResult) -> Iterator[Block]:
    """Yield what `optimize --check` finds in a graph, which the passes mend."""
    yield from (Paragraph(), Heading("check", "what the passes mend"), *findings(path, result))


def concise(path: Path, result: CheckResult) -> Iterator[str]:
    """Yield one line for each finding in a graph."""
    for finding in result.findings:
        yield f"{printable(str(path))}: {told(finding)}"
    for finding in result.suspects:
        text = f"{finding.code} not sure: {about(finding)}: {finding.text}"
        yield printable(f"{path}: {text}")


def workflow_commands(path: Path, result: CheckResult) -> Iterator[str]:
    """Yield annotations for GitHub Actions, at the line of the program where that is known."""
    for finding in (*result.findings, *result.suspects):
        file, line = location(finding) or (str(path), None)
        text = f"{about(finding)}: {finding.text} ({path})"
        title, level = f"{finding.code} {finding.name}", _LEVELS[finding.severity]
        if finding in result.suspects:
            title, level = f"{title}, not sure", "notice"
        yield command(level, file, title, text, line)


def as_json(path: Path, result: CheckResult, mending: Mending = _NOTHING) -> dict[str, Any]:
    """Return what was found in a file, and mended, as an entry in JSON."""
    fixes = {"fixes": result.fixes, "unsafe_fixes": result.unsafe_fixes}
    entry = {"source": str(path), **plain(result), **fixes}
    if mending.mended is not None:
        entry |= {"mended": mending.mended.count, "passes": mending.mended.passes}
    if mending.diff is not None:
        entry["diff"] = plain(mending.diff)
    return entry


def told(finding: Finding) -> str:
    """Return a finding as one line."""
    return printable(f"{marked(finding)} {about(finding)}: {finding.text}")


def marked(finding: Finding) -> str:
    """Return the code of a finding, with a mark of how it can be mended."""
    mark = "*" if finding.is_mended_safely else "!" if finding.is_mended_unsafely else ""
    return f"{finding.code} [{mark}]" if mark else finding.code


def finding_items(findings: Iterable[Finding], *, verbose: bool = False) -> Iterator[Item]:
    """Yield findings as entries of a list.

    Unless ``verbose``, those of one rule about loops of one name, or about those that one line
    wrote, or their derivatives of one order, are one entry where there are more than two.
    """
    groups: dict[object, list[Finding]] = {}
    for finding in findings:
        name = without_numbers(finding.loop).rpartition("/")[2]
        if finding.place is not None:
            name = f"{finding.place}, {name.count(PULLBACK)}"
        groups.setdefault(finding.key if verbose else (finding.code, name), []).append(finding)
    for alike in groups.values():
        shown = alike[:1] if len(alike) > _FEW and not verbose else alike
        more = len(alike) - len(shown)
        for finding in shown:
            yield _item(finding, _SIGNS[finding.severity], more)


def _item(finding: Finding, sign: Sign, more: int = 0) -> Item:
    mark = marked(finding).removeprefix(finding.code) if sign is not _UNSURE else ""
    style = Style.FAINT if sign is _UNSURE else STYLES[finding.severity]
    text: Line = [
        Span(finding.code, style),
        f"{mark} ",
        *located(finding.loop, finding.place),
        f": {finding.text}",
        Span("" if finding.cost is None else f"; {finding.cost}", Style.FAINT),
        Span(f" (and {more} like it; -v shows all)" if more else "", Style.FAINT),
    ]
    return Item(text, sign=sign, depth=1)


def about(finding: Finding) -> str:
    """Return the name of a loop, and where it was written."""
    return f"{finding.loop}{at_place(finding.place)}"


def location(finding: Finding) -> tuple[str, int] | None:
    """Return the file and the line where a loop was written, if they are known."""
    found = written_at(finding.place)
    return None if found is None else found[:2]


def written_at(place: str | None) -> tuple[str, int, str] | None:
    """Return the file, the line and the function (or "") of a place, if it has these."""
    found = _PLACE.fullmatch(place or "")
    return None if found is None else (found["file"], int(found["line"]), found["function"] or "")
