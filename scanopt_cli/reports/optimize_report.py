"""What `optimize` did, on one screen; with `remarks`, all of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from shlex import join

from scanopt_cli.analysis.statistics import Statistics
from scanopt_cli.pipeline.grammar import PRESETS, parse, print_pipeline
from scanopt_cli.pipeline.optimizing import OptimizeResult
from scanopt_cli.pipeline.runner import PassRun
from scanopt_cli.remarks import Remark, RemarkKind
from scanopt_cli.reports.check_report import finding_items
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
    height,
    left_out,
    located,
)
from scanopt_cli.reports.headline import LONGEST_SIZE, arrow, headline, importance
from scanopt_cli.reports.remark_text import bracketed_hint, grouped, text_of
from scanopt_cli.reports.verify_report import verify_report
from scanopt_cli.rules.graph_checking import CheckResult
from scanopt_cli.rules.rule_contract import Finding
from scanopt_cli.text import UNNAMED, cut, plural, size_text

type _Counts = Mapping[str, tuple[str, ...]]
"""The counts of `Statistics` that are added up in each row of a table."""
_LOOPS: _Counts = {"Scans": ("scans",), "TracedLoops": ("loops",)}
_SLOTS: _Counts = {
    "mit_mot states": ("mit_mot",),
    "mit_sot states": ("mit_sot",),
    "sit_sot states": ("sit_sot",),
    "nit_sot outputs": ("nit_sot",),
    "untraced states": ("untraced",),
    "sequences": ("seqs",),
    "non-sequences": ("non_seqs",),
    "states": ("states",),
    "traced values": ("traced",),
    "constants": ("constants",),
}
# A TracedLoop has other kinds of slots than the Scan that it was.
_SLOTS_OF_LOOPS: _Counts = {
    "mit_mot states": ("mit_mot",),
    "other states": ("mit_sot", "sit_sot", "untraced", "states"),
    "traced values": ("nit_sot", "traced"),
    "sequences": ("seqs",),
    "constants": ("non_seqs", "constants"),
}
_NODES: _Counts = {"nodes outside": ("outer_nodes",), "nodes inside": ("inner_nodes",)}
REMARK_SIGNS = {
    RemarkKind.PASSED: Sign("~", Style.GOOD, "passed"),
    RemarkKind.MISSED: Sign("=", Style.WARNING, "missed"),
    RemarkKind.ANALYSIS: Sign("?", Style.FAINT, "analysis"),
    RemarkKind.WARNING: Sign("!", Style.WARNING, "warning"),
}
# What fits on a screen of 80 columns and 40 lines, with a line or two for titles, what is left out,
# and what to type next.
_LINES = 32
_LONGEST_ITEM = 110
_LONGEST_FORMULA = 90


def optimize_report(
    source: str,
    result: OptimizeResult,
    findings: Sequence[Finding] = (),
    changes: Sequence[Block] = (),
    *,
    verbose: bool = False,
) -> Iterator[Block]:
    """Yield a verdict, the counts that changed, a line for each loop, and what is left to do.

    ``findings`` are those of `check` in the result, ``changes`` its difference to the original.
    With ``verbose``, all remarks are shown, those of each pass together.
    """
    head: list[Block] = [Heading(source, headline(result, len(findings)))]
    if result.changed and (result.before.has_loops or result.after.has_loops):
        head += counts(result.before, result.after, is_cut=not verbose)
    yield from head
    if verbose:
        yield from _apart(remarks(result.passes, verbose=True))
        yield from _apart(finding_items(findings, verbose=True))
    else:
        yield from _apart(_summary(result, findings, _LINES - sum(map(height, head))))
    yield from _apart(changes)
    if result.verification is not None:
        yield from _apart(verify_report(result.verification, title="verification: "))


def next_steps(
    result: OptimizeResult, left: CheckResult, written: tuple[str, str] | None
) -> Iterator[Block]:
    """Yield how much was done and what to type next, on one line.

    ``written`` are the files of the original and of the result, if the result was written.
    """
    texts = []
    if result.changed:
        rewrites, passes = (
            sum(r.rewrites for r in result.passes),
            sum(r.changed for r in result.passes),
        )
        texts += [f"{plural(rewrites, 'rewrite')} by {passes} of {len(result.passes)} passes"]
        texts += ["-u shows the change", "-v all remarks"]
        texts += ["-o OUT writes it" if written is None else join(("scanopt", "verify", *written))]
    if left.fixes is not None:
        mended = sum(finding.is_mended_safely for finding in left.findings)
        texts.append(f"-p {_mending(result, left.fixes)} mends {plural(mended, 'finding')}")
    if texts:
        yield Paragraph()
        yield Paragraph(Span("; ".join(texts), Style.FAINT))


def _mending(result: OptimizeResult, fixes: str) -> str:
    """Return the pipeline that was run with ``fixes``, or a preset that has them, and the rest.

    The preset that was run comes first, then the first that has all that any preset has.
    """
    of_presets = {
        name: {item.name for item in parse(text)} for name, text in PRESETS.items() if text
    }
    known = {item.name for item in parse(fixes)} & set().union(*of_presets.values())
    rest = [print_pipeline([item]) for item in parse(fixes) if item.name not in known]
    for preset in sorted(of_presets, key=lambda name: PRESETS[name] != result.pipeline):
        is_run = PRESETS[preset] == result.pipeline
        if known <= of_presets[preset] and (known or is_run):
            return ",".join((preset, *rest))
    return ",".join(filter(None, (result.pipeline, fixes)))


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


def _apart(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield blocks after an empty line, if there are any."""
    for place, block in enumerate(blocks):
        if place == 0:
            yield Paragraph()
        yield block


def counts(before: Statistics, after: Statistics, *, is_cut: bool) -> Iterator[Block]:
    """Yield the counts that changed before and after, and the memory that buffers take."""
    kinds = _SLOTS if before.loops == after.loops else _SLOTS_OF_LOOPS
    counted = [
        (label, *(sum(getattr(side, name) for name in names) for side in (before, after)))
        for label, names in {**_LOOPS, **kinds, **_NODES}.items()
    ]
    rows: list[Sequence[Line]] = [
        (label, str(old), str(new), _change(new - old)) for label, old, new in counted if old != new
    ]
    sizes = list(dict.fromkeys(size_text(side.buffer_bytes) for side in (before, after)))
    is_row = len(sizes) > 1 and max(map(len, sizes)) <= LONGEST_SIZE
    if is_row:
        rows.append(("loop buffers", *sizes, Span("")))
    if rows:
        numbers = (Column(title, is_number=True) for title in ("before", "after", "change"))
        yield Table((Column(""), *numbers), rows)
    if not is_row:
        texts = [cut(text, _LONGEST_FORMULA) if is_cut else text for text in sizes]
        yield Paragraph(f"loop buffers: {arrow(texts)}")
        if any("?" in text for text in texts):
            yield Paragraph(UNNAMED)
    same = [
        plural(old, label.removesuffix("s"))
        for label, old, new in counted
        if old == new and old and label not in _NODES
    ]
    if same:
        yield Paragraph(Span(f"unchanged: {', '.join(same)}", Style.FAINT))


def _change(change: int) -> Span:
    return Span(f"{change:+d}", Style.GOOD if change < 0 else Style.BAD)


def _summary(result: OptimizeResult, findings: Sequence[Finding], room: int) -> Iterator[Block]:
    """Yield a line for each loop that changed, the findings that are left, and what was missed.

    What does not fit in ``room`` lines is counted.
    """
    found = [remark for run in result.passes for remark in run.remarks]
    changed: list[Item] = []
    left = [*finding_items(findings)]
    if result.changed:
        changed += _loops(remark for remark in found if remark.kind is RemarkKind.PASSED)
        missed = [remark for remark in found if remark.kind is RemarkKind.MISSED]
        left += map(_item, grouped(missed, with_slots=False))
    hidden = 0
    for title, items in (("changed", changed), ("left", left)):
        for place, item in enumerate(items):
            room -= height(item)
            if room < 0:
                hidden += 1
                continue
            if place == 0:
                yield Paragraph(Span(title, Style.STRONG))
            yield item
    if hidden:
        yield left_out(hidden, "item", "-v shows all")


def _loops(remarks: Iterable[Remark]) -> Iterator[Item]:
    """Yield what was done to each loop, most important first; what was done to no loop is last."""
    by_loop: dict[str, list[Remark]] = {}
    for remark in grouped(remarks):
        by_loop.setdefault(remark.scan, []).append(remark)
    for scan, found in sorted(by_loop.items(), key=lambda entry: entry[0] == "graph"):
        found.sort(key=importance)
        place = next((remark.place for remark in found if remark.place is not None), None)
        texts = list(dict.fromkeys(map(text_of, found)))
        yield Item(
            _line(scan, place, _joined(texts)), sign=REMARK_SIGNS[RemarkKind.PASSED], depth=1
        )


def _joined(texts: Sequence[str]) -> str:
    """Return a few texts in one, and how many are left out."""
    shown = [texts[0]]
    for text in texts[1:]:
        if len("; ".join((*shown, text))) > _LONGEST_ITEM:
            break
        shown.append(text)
    more = len(texts) - len(shown)
    return "; ".join((*shown, *([f"and {more} more"] if more else [])))


def _item(remark: Remark) -> Item:
    line = _line(remark.scan, remark.place, text_of(remark), bracketed_hint(remark))
    return Item(line, sign=REMARK_SIGNS[remark.kind], depth=1)


def _line(scan: str, place: str | None, text: str, hint: str = "") -> Line:
    return [*located(scan, place), f": {text}", Span(hint, Style.FAINT)]
