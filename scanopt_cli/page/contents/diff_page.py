"""What the page of `diff` says: the differences, and both graphs beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scanopt_cli.diff.budgets import Violation
from scanopt_cli.diff.changes import GraphDiff
from scanopt_cli.ir.graph import Graph
from scanopt_cli.page.contents.parts import Part
from scanopt_cli.page.drawing import Drawing
from scanopt_cli.page.page import Drawn, Section, Tone
from scanopt_cli.reports.diff_report import diff_report
from scanopt_cli.reports.document import Item, Paragraph, Span, Style
from scanopt_cli.reports.loop_text import headline
from scanopt_cli.reports.optimize_report import counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A difference, the budget that is broken, and the two ``graphs``, if they are drawn."""

    found: GraphDiff
    violations: Sequence[Violation] = ()
    graphs: tuple[Graph, Graph] | None = None


def diff_part(compared: Compared, source: str) -> Part:
    """Return what a page says of two graphs."""
    found = compared.found
    over = [violation.text for violation in compared.violations]
    return Part(
        source=source,
        verdict="; ".join((headline(found), *(f"over budget: {text}" for text in over))),
        tone=Tone.BAD if over else Tone.GOOD if found.same else Tone.NEUTRAL,
        sections=tuple(_sections(compared)),
        drawn=() if compared.graphs is None else (beside(*compared.graphs, title=source),),
    )


def beside(before: Graph, after: Graph, *, title: str) -> Drawn:
    """Return two graphs beside each other."""
    drawing = Drawing()
    drawing.add(f"A: {before.source}", before.fgraph)
    drawing.add(f"B: {after.source}", after.fgraph)
    return Drawn(title=title, picture=drawing.picture(), side_by_side=True)


def _sections(compared: Compared) -> Iterator[Section]:
    found = compared.found
    if compared.violations:
        items = [Item(Span(each.text, Style.BAD)) for each in compared.violations]
        yield Section(title="Over budget", blocks=items)
    if not found.same:
        if found.before.has_loops or found.after.has_loops:
            table = list(counts(found.before, found.after, is_cut=False))
            yield Section(title="Counts of A and B", blocks=table)
        changes = list(diff_report(found, has_headline=False))
        yield Section(title="Changes", blocks=changes)
    if found.notes:
        yield Section(title="Notes", blocks=list(map(Paragraph, found.notes)))
