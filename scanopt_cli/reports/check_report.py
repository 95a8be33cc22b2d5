"""What `check` found, in each of its formats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scanopt_cli.reports.as_json import plain
from scanopt_cli.reports.document import (
    Block,
    Column,
    Heading,
    Item,
    Paragraph,
    Sign,
    Span,
    Style,
    Table,
)
from scanopt_cli.reports.workflow import command
from scanopt_cli.rules.graph_checking import CheckResult
from scanopt_cli.rules.rule_contract import Finding, Severity
from scanopt_cli.text import plural, printable

type Results = Mapping[Path, CheckResult]
"""What was found in each graph."""

_STYLES = {
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


def check_report(results: Results) -> Iterator[Block]:
    """Yield the findings of each graph that has some, and a line of counts."""
    for path, result in results.items():
        if result.findings:
            yield Heading(str(path))
            yield from map(finding_item, result.findings)
            yield Paragraph()
    yield Paragraph(total(results))
    fixes = {result.fixes for result in results.values() if result.fixes}
    if fixes:
        passes = f", which runs {next(iter(fixes))}" if len(fixes) == 1 else ""
        yield Paragraph(f"{_mended(results)} by --fix -o OUT{passes}")


def total(results: Results) -> str:
    """Return ``3 findings in 2 of 5 graphs``."""
    count = sum(len(result.findings) for result in results.values())
    graphs = sum(bool(result.findings) for result in results.values())
    known = sum(result.known for result in results.values())
    beside = f", beside {plural(known, 'known one')}" if known else ""
    if not count:
        return f"nothing found in {plural(len(results), 'graph')}{beside}"
    return f"{plural(count, 'finding')} in {graphs} of {plural(len(results), 'graph')}{beside}"


def statistics(results: Results) -> Iterator[Block]:
    """Yield how many findings each rule has."""
    counts = Counter((f.code, f.name) for r in results.values() for f in r.findings)
    rows = [(str(count), code, name) for (code, name), count in counts.most_common()]
    if rows:
        yield Table((Column("findings", is_number=True), Column("code"), Column("rule")), rows)
        yield Paragraph()
    yield Paragraph(total(results))


def concise(results: Results) -> Iterator[str]:
    """Yield one line for each finding, and a line of counts."""
    for path, result in results.items():
        for finding in result.findings:
            mark = " [*]" if finding.is_mended_safely else ""
            yield printable(f"{path}: {finding.code}{mark} {about(finding)}: {finding.text}")
    yield total(results)


def workflow_commands(results: Results) -> Iterator[str]:
    """Yield annotations for GitHub Actions, at the line of the program where that is known."""
    for path, result in results.items():
        for finding in result.findings:
            file, line = location(finding) or (str(path), None)
            text = f"{about(finding)}: {finding.text} ({path})"
            title = f"{finding.code} {finding.name}"
            yield command(_LEVELS[finding.severity], file, title, text, line)
    yield total(results)


def as_json(found: Sequence[Any], results: Results) -> list[Any]:
    """Return the results of each file in turn, or why there are none."""
    entries = []
    for entry in found:
        if isinstance(entry, Path):
            result = results[entry]
            entries.append({"source": str(entry), **plain(result), "fixes": result.fixes})
        else:
            entries.append(plain(entry))
    return entries


def finding_item(finding: Finding) -> Item:
    """Return a finding as an entry of a list."""
    text = [
        Span(finding.code, _STYLES[finding.severity]),
        " [*] " if finding.is_mended_safely else " ",
        Span(finding.loop, Style.NAME),
        Span("" if finding.place is None else f" ({finding.place})", Style.FAINT),
        f": {finding.text}",
        Span("" if finding.cost is None else f"; {finding.cost}", Style.FAINT),
    ]
    return Item(text, sign=_SIGNS[finding.severity], depth=1)


def about(finding: Finding) -> str:
    """Return the name of a loop, and where it was written."""
    return finding.loop if finding.place is None else f"{finding.loop} ({finding.place})"


def _mended(results: Results) -> str:
    fixable = [
        finding
        for result in results.values()
        for finding in result.findings
        if finding.is_mended_safely
    ]
    return f"{plural(len(fixable), 'finding')} marked [*] can be mended"


def location(finding: Finding) -> tuple[str, int] | None:
    """Return the file and the line where a loop was written, if they are known."""
    file, colon, rest = (finding.place or "").rpartition(":")
    line = rest.partition(" ")[0]
    return (file, int(line)) if colon and line.isdigit() else None
