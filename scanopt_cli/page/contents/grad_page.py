"""What the page of `grad` says: the orders and strategies, and the pedigree of the loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scanopt_cli.autodiff.derivative import Derivative, Outcome
from scanopt_cli.page.contents.parts import Part
from scanopt_cli.page.contents.times import spent_verifying, times_section
from scanopt_cli.page.drawing import Drawing
from scanopt_cli.page.page import Drawn, Section, Spent, Tone
from scanopt_cli.reports.grad_report import counts_report, heading, notes_report
from scanopt_cli.reports.headline import loops_of
from scanopt_cli.reports.pedigree_report import origin_text, pedigree_report
from scanopt_cli.text import plural

_TONES = {
    Outcome.AGREES: Tone.GOOD,
    Outcome.DIFFERS: Tone.BAD,
    Outcome.NOT_CHECKED: Tone.NEUTRAL,
}


def grad_part(derivative: Derivative, source: str) -> Part:
    """Return what a page says of a derivative."""
    last, check = derivative.orders[-1].statistics, derivative.check
    nodes = plural(last.outer_nodes + last.inner_nodes, "node")
    texts = [f"{heading(derivative)}: {loops_of(last)}, {nodes}"]
    texts += [] if check is None else [str(check)]
    compiled = None if check is None else check.times
    times = () if compiled is None else (spent_verifying(compiled, "check of values"),)
    return Part(
        source=source,
        verdict="; ".join(texts),
        tone=Tone.NEUTRAL if check is None else _TONES[check.outcome],
        times=times,
        sections=tuple(_sections(derivative, times)),
        drawn=tuple(_drawn(each, source) for each in derivative.every),
    )


def _sections(derivative: Derivative, times: Sequence[Spent]) -> Iterator[Section]:
    yield Section(title="Strategies and orders", blocks=list(counts_report(derivative)))
    if notes := list(notes_report(derivative)):
        yield Section(title="Notes and check", blocks=notes)
    for each in derivative.every:
        of = f" by {each.strategy}" if derivative.compared else ""
        blocks = list(pedigree_report(each.pedigree))
        yield Section(title=f"Pedigree of the loops{of}", blocks=blocks)
    if derivative.check is not None and times:
        yield times_section(times, None, derivative.check.times)


def _drawn(derivative: Derivative, source: str) -> Drawn:
    drawing = Drawing()
    for report in derivative.orders:
        origins = [
            ("analysis", record.full_name, origin_text(record, has_place=True).removeprefix(": "))
            for record in report.pedigree.scans
        ]
        title = f"order {report.order}" if report.order else derivative.output
        drawing.add(title, report.graph.fgraph, origins)
    return Drawn(title=f"{source}, {derivative.strategy}", picture=drawing.picture())
