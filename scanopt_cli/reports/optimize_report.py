"""What `optimize` did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from scanopt_cli.analysis.statistics import COUNTS, Statistics
from scanopt_cli.pipeline.grammar import described
from scanopt_cli.pipeline.optimizing import OptimizeResult
from scanopt_cli.pipeline.runner import PassRun
from scanopt_cli.remarks import Remark, RemarkKind
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
)
from scanopt_cli.reports.remark_text import grouped, hint_of, text_of
from scanopt_cli.reports.verify_report import verify_report
from scanopt_cli.text import UNNAMED

_LABELS = {
    "scans": "Scans",
    "mit_mot": "mit_mot states",
    "mit_sot": "mit_sot states",
    "sit_sot": "sit_sot states",
    "nit_sot": "nit_sot outputs",
    "untraced": "untraced states",
    "seqs": "sequences",
    "non_seqs": "non-sequences",
    "loops": "TracedLoops",
    "states": "states",
    "traced": "traced values",
    "constants": "constants",
    "outer_nodes": "nodes outside",
    "inner_nodes": "nodes inside",
}
_SIGNS = {
    RemarkKind.PASSED: Sign("~", Style.GOOD, "passed"),
    RemarkKind.MISSED: Sign("=", Style.WARNING, "missed"),
    RemarkKind.ANALYSIS: Sign("?", Style.FAINT, "analysis"),
    RemarkKind.WARNING: Sign("!", Style.WARNING, "warning"),
}


def optimize_report(
    source: str, result: OptimizeResult, changes: Sequence[Block] = ()
) -> Iterator[Block]:
    """Yield whether anything changed, the counts, the ``changes``, and how they were verified."""
    if result.before.has_loops or result.after.has_loops:
        yield Heading(source, _verdict(result))
        yield from _counts(result.before, result.after)
        yield Paragraph()
    else:
        yield Heading(source, f"no loop in this graph; {_verdict(result)}")
        if changes:
            yield Paragraph()
    yield from changes
    if result.verification is not None:
        yield from verify_report(result.verification, title="verification: ")


def remarks(runs: Iterable[PassRun], *, verbose: bool = False) -> Iterator[Block]:
    """Yield what each pass did, and what it did not do, and why.

    With ``verbose``, also what the passes found out.
    """
    for run in runs:
        items = [_item(remark) for remark in grouped(shown(run, verbose=verbose))]
        if items:
            yield Paragraph(Span(run.name, Style.STRONG))
            yield from items


def shown(run: PassRun, *, verbose: bool) -> list[Remark]:
    """Return the remarks of a pass that are shown."""
    return [r for r in run.remarks if verbose or r.kind is not RemarkKind.ANALYSIS]


def timings(runs: Sequence[PassRun]) -> Table:
    """Return the wall time of each pass over all its rounds, in milliseconds, and its rewrites."""
    total = sum(run.seconds for run in runs) or 1.0
    numbers = (Column(title, is_number=True) for title in ("ms", "share", "rewrites"))
    return Table(
        (Column("pass"), *numbers),
        [
            (
                run.name,
                f"{1000 * run.seconds:.1f}",
                f"{100 * run.seconds / total:.0f} %",
                str(run.rewrites),
            )
            for run in runs
        ],
    )


def _verdict(result: OptimizeResult) -> str:
    """Return one line that says whether anything changed, and by which passes."""
    if not result.changed:
        return f"nothing to clean up ({described(result.pipeline)})"
    names = list(dict.fromkeys(run.name for run in result.passes if run.changed))
    return f"changed by {', '.join(names)}"


def _counts(before: Statistics, after: Statistics) -> Iterator[Block]:
    """Yield the counts before and after, with the change, and the elements of buffers."""
    numbers = (Column(title, is_number=True) for title in ("before", "after", "change"))
    counts = ((name, getattr(before, name), getattr(after, name)) for name in COUNTS)
    yield Table(
        (Column(""), *numbers),
        [
            (_LABELS[name], str(old), str(new), _change(new - old))
            for name, old, new in counts
            if old or new
        ],
    )
    buffers = f"loop-buffer elements: {' → '.join(dict.fromkeys((before.buffers, after.buffers)))}"
    yield Paragraph(buffers)
    if "?" in buffers:
        yield Paragraph(UNNAMED)


def _change(change: int) -> Span:
    style = Style.GOOD if change < 0 else Style.BAD
    return Span(f"{change:+d}", style) if change else Span("")


def _item(remark: Remark) -> Item:
    hint = hint_of(remark)
    text: Line = [
        Span(remark.scan, Style.NAME),
        Span("" if remark.place is None else f" ({remark.place})", Style.FAINT),
        f": {text_of(remark)}",
        Span("" if hint is None else f" ({hint})", Style.FAINT),
    ]
    return Item(text, sign=_SIGNS[remark.kind], depth=1)
