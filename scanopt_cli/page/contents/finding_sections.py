"""Findings by how bad they are, each kind as a tree of the model's lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from scanopt_cli.page.contents.lines import Told, by_line
from scanopt_cli.page.page import Section, Tone
from scanopt_cli.page.picture import Remarked
from scanopt_cli.reports.check_report import STYLES, marked
from scanopt_cli.reports.document import Block, Line, Paragraph, Span, Style
from scanopt_cli.rules.graph_checking import CheckResult
from scanopt_cli.rules.rule_contract import Finding, Severity
from scanopt_cli.text import plural

_TONES = {
    Severity.ERROR: Tone.BAD,
    Severity.WARNING: Tone.WARNING,
    Severity.NOTE: Tone.NEUTRAL,
}
_KINDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "analysis"}


def tone_of(findings: Iterable[Finding]) -> Tone:
    """Return the tone of what was found: that of the worst."""
    severities = {finding.severity for finding in findings}
    return next((tone for severity, tone in _TONES.items() if severity in severities), Tone.GOOD)


def finding_sections(result: CheckResult, *, title: str = "Findings") -> Iterator[Section]:
    """Yield the findings, and folded what may be so and is not proved."""
    if result.findings:
        yield Section(title=title, blocks=list(finding_blocks(result.findings)))
    if result.suspects:
        blocks = by_line(map(_told, result.suspects))
        yield Section(title="What may be so, and is not proved", blocks=blocks, is_open=False)


def finding_blocks(findings: Sequence[Finding]) -> Iterator[Block]:
    """Yield findings, the worst first, by the lines that wrote their loops."""
    for severity in Severity:
        alike = [finding for finding in findings if finding.severity is severity]
        if alike:
            yield Paragraph(Span(plural(len(alike), severity.value), STYLES[severity]))
            yield from by_line(map(_told, alike))


def finding_remarks(findings: Iterable[Finding]) -> list[Remarked]:
    """Return findings as remarks beside the picture: the kind, the loop and the text of each."""
    return [(_KINDS[one.severity], one.loop, f"{one.code}: {one.text}") for one in findings]


def _told(finding: Finding) -> Told:
    mark = marked(finding).removeprefix(finding.code)
    text: Line = [
        Span(finding.code, STYLES[finding.severity]),
        f"{mark}: {finding.text}",
        Span("" if finding.cost is None else f"; {finding.cost}", Style.FAINT),
    ]
    return Told(finding.place, finding.loop, text)
