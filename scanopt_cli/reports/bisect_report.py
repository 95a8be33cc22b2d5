"""Which rewrites break a graph, and what they changed."""

from __future__ import annotations

from collections.abc import Iterator

from scanopt_cli.culprits.culprit import Bisection, Culprit, Maker
from scanopt_cli.diff.comparing import diff
from scanopt_cli.reports.diff_report import diff_report
from scanopt_cli.reports.document import Block, Heading, Item, Paragraph, Span, Style
from scanopt_cli.reports.remark_text import text_of
from scanopt_cli.text import at_place, cut, few, plural

_LONGEST = 120
_LINES = 24
_PASSES = 8


def bisect_report(source: str, found: Bisection) -> Iterator[Block]:
    """Yield the culprits, each with what is known of it and what it changed."""
    yield Heading(source, "; ".join(map(culprit_in_short, found.culprits)) or "nothing found")
    yield Paragraph(f"property: {found.property}")
    if not found.culprits:
        yield Paragraph(Span("neither the graph nor what the passes make of it has it", Style.GOOD))
    for culprit in found.culprits:
        yield Paragraph()
        yield from _culprit(culprit)
    yield Paragraph()
    yield Paragraph(Span(f"looked at {plural(found.probes, 'graph')}", Style.FAINT))


def culprit_in_short(culprit: Culprit) -> str:
    """Return which rewrite it is."""
    whose = "PyTensor's " if culprit.maker is Maker.PYTENSOR else ""
    of = f" of {culprit.of}" if culprit.of else ""
    if not culprit.is_certain:
        return f"{_range(culprit)}{of}"
    if culprit.number is None:
        how = "without any rewrite" if whose else "as a whole"
        return f"{whose}{culprit.name}, {how}"
    return f"{whose}{culprit.name}, rewrite {culprit.number}{of}"


def _range(culprit: Culprit) -> str:
    """Return which rewrites, or passes, may be to blame."""
    if culprit.number is None:
        return f"one of the passes {few(culprit.among, _PASSES)}"
    numbers = f"rewrites {culprit.since or 1} to {culprit.number}"
    if culprit.maker is Maker.SCANOPT:
        return f"{culprit.name}, one of the {numbers}"
    return f"{'' if culprit.since else 'none, or '}one of PyTensor's {numbers}"


def _culprit(culprit: Culprit) -> Iterator[Block]:
    compiled = "" if culprit.mode is None else f", compiled by {culprit.mode}"
    yield Paragraph(
        [Span(culprit_in_short(culprit), Style.BAD), f": {cut(culprit.why, _LONGEST)}{compiled}"]
    )
    for remark in culprit.remarks:
        where = f"{remark.scan}{at_place(remark.place)}"
        yield Item(f"in {where}: {text_of(remark)}", depth=1)
    if culprit.maker is Maker.PYTENSOR and culprit.number is not None:
        which = "" if culprit.is_certain else "the last of them: "
        path = which + " → ".join((*culprit.within, culprit.name))
        position = "" if culprit.position is None else f", at {culprit.position:g} in its database"
        yield Item(f"{path}{position}{at_place(culprit.place)}", depth=1)
        if culprit.node is not None:
            yield Item(f"replaced {cut(culprit.node, _LONGEST)}", depth=1)
        if culprit.function is not None:
            yield Item(f"in a function that the command compiles: {culprit.function}", depth=1)
    if not culprit.is_certain:
        seen = f": {cut(culprit.open, _LONGEST)}" if culprit.open else ""
        yield Item(f"which one, the graphs between leave open{seen}", depth=1)
    if culprit.before is not None and culprit.after is not None:
        yield Paragraph()
        yield from diff_report(diff(culprit.before, culprit.after), lines=_LINES)
