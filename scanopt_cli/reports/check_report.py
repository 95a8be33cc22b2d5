"""What `check` found, in each of its formats."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scanopt_cli.diff.changes import GraphDiff
from scanopt_cli.ir.inner_graphs import PULLBACK
from scanopt_cli.reports.as_json import plain
from scanopt_cli.reports.diff_report import diff_report
from scanopt_cli.reports.document import (
    Block,
    Column,
    Heading,
    Item,
    Line,
    Paragraph,
    Sign,
    Span,
    Style,
    Table,
    located,
)
from scanopt_cli.reports.remark_text import without_numbers
from scanopt_cli.reports.workflow import command
from scanopt_cli.rules.graph_checking import CheckResult
from scanopt_cli.rules.mending import Mended
from scanopt_cli.rules.rule_contract import Finding, Severity
from scanopt_cli.text import at_place, plural, printable

type Results = Mapping[Path, CheckResult]
"""What was found in each graph."""

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
    """What `check` was asked to mend, and did.

    Attributes
    ----------
    unsafe
        Whether fixes count that may change values.
    results
        What was mended in each graph; the findings that are reported are those that are left.
    diffs
        The difference that it made to each graph, if that is shown.
    are_written
        Whether the mended graphs were written.
    """

    unsafe: bool = False
    results: Mapping[Path, Mended] = field(default_factory=dict)
    diffs: Mapping[Path, GraphDiff] = field(default_factory=dict)
    are_written: bool = False

    @property
    def count(self) -> int:
        """How many findings are gone."""
        return sum(result.count for result in self.results.values())


_NOTHING = Mending()


def check_report(
    results: Results, mending: Mending = _NOTHING, *, verbose: bool = False
) -> Iterator[Block]:
    """Yield what was mended, the findings of each graph that has some, and a line of counts.

    Unless ``verbose``, one finding stands for all of its rule in copies of a loop.
    """
    for path, difference in mending.diffs.items():
        yield Heading(str(path))
        yield from diff_report(difference)
        yield Paragraph()
    yield from findings(results, verbose=verbose)
    yield from map(Paragraph, closing(results, mending))


def findings(results: Results, *, verbose: bool = False) -> Iterator[Block]:
    """Yield the findings of each graph that has some, as `check_report` does."""
    for path, result in results.items():
        if result.findings or result.suspects:
            yield Heading(str(path))
            yield from finding_items(result.findings, verbose=verbose)
            yield from (_item(finding, _UNSURE) for finding in result.suspects)
            yield Paragraph()


def gate(results: Results) -> Iterator[Block]:
    """Yield what `optimize --check` finds, which the passes mend."""
    yield from (Paragraph(), Heading("check", "what the passes mend"), *findings(results))
    yield Paragraph(total(results))


def closing(results: Results, mending: Mending = _NOTHING) -> Iterator[str]:
    """Yield the line of counts, and what mends what was found."""
    yield total(results, mending)
    found = [finding for result in results.values() for finding in result.findings]
    safe = sum(finding.is_mended_safely for finding in found)
    unsafe = sum(finding.is_mended_unsafely for finding in found)
    if mending.results:  # what --fix could mend is mended
        safe = 0
    if unsafe and (mending.unsafe and not mending.results):
        count = plural(safe + unsafe, "finding")
        marks = "[*] or [!]" if safe else "[!]"
        passes = _passes(result.unsafe_fixes or result.fixes for result in results.values())
        yield (
            f"{count} marked {marks} can be mended by --fix --unsafe-fixes -o OUT{passes}; [!] may "
            "change values"
        )
        return
    if safe:
        passes = _passes(result.fixes for result in results.values())
        yield f"{plural(safe, 'finding')} marked [*] can be mended by --fix -o OUT{passes}"
    if unsafe and not mending.unsafe:
        more = f"{unsafe} more" if safe else plural(unsafe, "finding")
        yield f"{more} marked [!] can be mended by --unsafe-fixes, which may change values"


def _passes(pipelines: Iterable[str | None]) -> str:
    distinct = {pipeline for pipeline in pipelines if pipeline}
    return f", which runs {next(iter(distinct))}" if len(distinct) == 1 else ""


def total(results: Results, mending: Mending = _NOTHING) -> str:
    """Return ``Found 3 findings in 2 of 5 graphs``."""
    count = sum(len(result.findings) for result in results.values())
    graphs = sum(bool(result.findings) for result in results.values())
    known = sum(result.known for result in results.values())
    unsure = sum(len(result.suspects) for result in results.values())
    beside = f", beside {plural(known, 'known one')}" if known else ""
    if mending.results:
        beside += f"; {mending.count} {_were(mending)} mended"
    if unsure:
        beside += f"; not sure of {unsure} more" if count else f"; not sure of {unsure}"
    in_graphs = plural(len(results), "graph")
    if not count:
        return f"nothing {'left' if mending.results else 'found'} in {in_graphs}{beside}"
    found = plural(count, "finding")
    found = f"{found} left" if mending.results else f"Found {found}"
    return f"{found} in {graphs} of {in_graphs}{beside}"


def _were(mending: Mending) -> str:
    return ("was" if mending.count == 1 else "were") if mending.are_written else "would be"


def statistics(results: Results, mending: Mending = _NOTHING) -> Iterator[Block]:
    """Yield how many findings each rule has."""
    counts = Counter((f.code, f.name) for r in results.values() for f in r.findings)
    rows = [(str(count), code, name) for (code, name), count in counts.most_common()]
    if rows:
        yield Table((Column("findings", is_number=True), Column("code"), Column("rule")), rows)
        yield Paragraph()
    yield Paragraph(total(results, mending))


def concise(results: Results, mending: Mending = _NOTHING) -> Iterator[str]:
    """Yield one line for each finding, and the lines that close a report."""
    for path, result in results.items():
        for finding in result.findings:
            yield f"{printable(str(path))}: {told(finding)}"
        for finding in result.suspects:
            text = f"{finding.code} not sure: {about(finding)}: {finding.text}"
            yield printable(f"{path}: {text}")
    yield from closing(results, mending)


def workflow_commands(results: Results, mending: Mending = _NOTHING) -> Iterator[str]:
    """Yield annotations for GitHub Actions, at the line of the program where that is known."""
    for path, result in results.items():
        for finding in (*result.findings, *result.suspects):
            file, line = location(finding) or (str(path), None)
            text = f"{about(finding)}: {finding.text} ({path})"
            title, level = f"{finding.code} {finding.name}", _LEVELS[finding.severity]
            if finding in result.suspects:
                title, level = f"{title}, not sure", "notice"
            yield command(level, file, title, text, line)
    yield total(results, mending)


def as_json(found: Sequence[Any], results: Results, mending: Mending = _NOTHING) -> list[Any]:
    """Return the results of each file in turn, or why there are none."""
    entries = []
    for entry in found:
        if not isinstance(entry, Path):
            entries.append(plain(entry))
            continue
        result = results[entry]
        fixes = {"fixes": result.fixes, "unsafe_fixes": result.unsafe_fixes}
        item = {"source": str(entry), **plain(result), **fixes}
        if entry in mending.results:
            mended = mending.results[entry]
            item |= {"mended": mended.count, "passes": mended.passes}
        if entry in mending.diffs:
            item["diff"] = plain(mending.diffs[entry])
        entries.append(item)
    return entries


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
