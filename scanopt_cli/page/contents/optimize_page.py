"""What the page of `optimize` says: counts, what each pass did and missed, times, all stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from scanopt_cli.page.contents.finding_sections import finding_sections, tone_of
from scanopt_cli.page.contents.lines import Told, by_line
from scanopt_cli.page.contents.parts import Part, worst
from scanopt_cli.page.contents.stages import Stages, runs_of
from scanopt_cli.page.contents.times import times_of_optimizing, times_section
from scanopt_cli.page.page import Runs, Section, Spent, Tone
from scanopt_cli.pipeline.optimizing import OptimizeResult
from scanopt_cli.remarks import Remark, RemarkKind
from scanopt_cli.reports.document import Paragraph
from scanopt_cli.reports.headline import headline
from scanopt_cli.reports.optimize_report import counts
from scanopt_cli.reports.remark_text import bracketed_hint, grouped, text_of
from scanopt_cli.reports.verify_report import verify_report
from scanopt_cli.rules.graph_checking import CheckResult
from scanopt_cli.verification.result import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimized:
    """What `optimize` did to one graph.

    Attributes
    ----------
    result
        The record of the passes.
    left
        What `check` finds in the result.
    stages
        The graph as each pass left it; ``None`` if that was not kept.
    mendable
        What --check finds that the passes mend, if it was asked for.
    seconds
        How long ``loading`` took, ``optimizing`` in all, and ``checking`` for what is left to do,
        as far as that was measured.
    more
        Further sections: the source of steps.
    """

    result: OptimizeResult
    left: CheckResult
    stages: Stages | None = None
    mendable: CheckResult | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    more: Sequence[Section] = ()


def optimize_part(done: Optimized, source: str) -> Part:
    """Return what a page says of one graph."""
    result = done.result
    if done.stages is None:
        drawn, runs, note = None, runs_of(result.passes), ""
    else:
        drawn, runs, note = done.stages.drawn(result)
    return Part(
        source=source,
        verdict=headline(result, len(done.left.findings)),
        tone=_tone(done),
        times=_times(done),
        sections=(*_sections(done, runs, note), *done.more),
        drawn=() if drawn is None else (drawn,),
    )


def _tone(done: Optimized) -> Tone:
    verification = done.result.verification
    if verification is not None and not verification.ok:
        return Tone.BAD if verification.verdict is Verdict.DIFFERS else Tone.WARNING
    mendable = () if done.mendable is None else done.mendable.findings
    return worst(map(tone_of, (done.left.findings, mendable)))


def _sections(done: Optimized, runs: Runs, note: str) -> Iterator[Section]:
    result = done.result
    if result.warnings:
        lines = by_line(map(_told, grouped(result.warnings)))
        yield Section(title="Likely mistakes in the graph", blocks=lines)
    if result.verification is not None:
        yield Section(title="Verification", blocks=list(verify_report(result.verification)))
    if result.changed and (result.before.has_loops or result.after.has_loops):
        table = counts(result.before, result.after, is_cut=False)
        yield Section(title="Before and after", blocks=list(table))
    if done.mendable is not None:
        yield from finding_sections(done.mendable, title="What the passes mend, for --check")
    yield from finding_sections(done.left, title="What is left to do")
    if runs.rows:
        blocks = [Paragraph(note)] if note else []
        yield Section(title="Passes, run by run", blocks=blocks, runs=runs)
    of_passes = [remark for run in result.passes for remark in run.remarks]
    missed = [remark for remark in of_passes if remark.kind is RemarkKind.MISSED]
    if missed:
        lines = by_line(map(_told, grouped(missed, with_slots=False)))
        yield Section(title="Missed rewrites, and why", blocks=lines, is_open=False)
    compiled = None if result.verification is None else result.verification.times
    yield times_section(_times(done), result, compiled)


def _told(remark: Remark) -> Told:
    prefix = f"{remark.pass_name}: " if remark.pass_name else ""
    text = f"{prefix}{text_of(remark)}{bracketed_hint(remark)}"
    return Told(remark.place, remark.scan, text)


def _times(done: Optimized) -> tuple[Spent, ...]:
    return times_of_optimizing(done.result, done.seconds)
