"""What the page of `check` says: findings by the model's lines, and the graph they are in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scanopt_cli.analysis.inspection import inspect_graph
from scanopt_cli.diff.changes import GraphDiff
from scanopt_cli.ir.graph import Graph
from scanopt_cli.page.contents.finding_sections import finding_remarks, finding_sections, tone_of
from scanopt_cli.page.contents.loop_sections import loop_sections
from scanopt_cli.page.contents.parts import Part
from scanopt_cli.page.contents.stages import AS_GIVEN
from scanopt_cli.page.drawing import Drawing
from scanopt_cli.page.page import Drawn, Section
from scanopt_cli.reports.check_report import Mending
from scanopt_cli.reports.check_totals import Tally, closing, statistics, total
from scanopt_cli.reports.diff_report import diff_report
from scanopt_cli.reports.document import Paragraph
from scanopt_cli.rules.graph_checking import CheckResult
from scanopt_cli.rules.rule_contract import Severity
from scanopt_cli.text import enumerated, plural


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What `check` found in a graph, the ``graph`` itself if it is drawn, and what --fix made."""

    result: CheckResult
    graph: Graph | None = None
    mended: Graph | None = None


def check_part(checked: Checked, path: Path, mending: Mending | None = None) -> Part:
    """Return what a page says of one graph, in which ``mending`` was asked to mend."""
    result, how = checked.result, mending or Mending()
    tally = Tally.of(result, how)
    return Part(
        source=str(path),
        verdict=_verdict(result, tally),
        tone=tone_of(result.findings),
        sections=tuple(_sections(checked, tally, how.diff)),
        drawn=tuple(_drawn(checked, str(path))),
    )


def _verdict(result: CheckResult, tally: Tally) -> str:
    """Return how many findings of each kind there are, with what else was done or is known."""
    if tally.mended is not None or result.known or result.suspects:
        return total(tally)
    counts = Counter(finding.severity for finding in result.findings)
    texts = [plural(counts[each], each.value) for each in Severity if counts[each]]
    return enumerated(texts) or "nothing found"


def _sections(checked: Checked, tally: Tally, difference: GraphDiff | None) -> Iterator[Section]:
    result = checked.result
    yield from finding_sections(result)
    hints = [*closing(tally)][1:]
    if hints:
        yield Section(title="What mends them", blocks=list(map(Paragraph, hints)))
    if result.findings:
        yield Section(title="By rule", blocks=list(statistics(Tally.of(result))), is_open=False)
    if difference is not None:
        blocks = list(diff_report(difference))
        yield Section(title="What --fix changes", blocks=blocks, is_open=False)
    if checked.graph is not None:
        yield from loop_sections(inspect_graph(checked.graph.fgraph), is_open=False)


def _drawn(checked: Checked, title: str) -> Iterator[Drawn]:
    if checked.graph is None:
        return
    drawing, told = Drawing(), finding_remarks(checked.result.findings)
    drawing.add(AS_GIVEN, checked.graph.fgraph, () if checked.mended is not None else told)
    if checked.mended is not None:
        drawing.add("mended", checked.mended.fgraph, told)
    is_pair = checked.mended is not None
    yield Drawn(title=title, picture=drawing.picture(), side_by_side=is_pair)
