"""What the page of `bisect` says: the culprits, each with the graphs around it."""

from __future__ import annotations

from collections.abc import Iterator

from scanopt_cli.culprits.culprit import Bisection
from scanopt_cli.page.contents.parts import Part
from scanopt_cli.page.contents.stages import told
from scanopt_cli.page.contents.times import spent_verifying, times_section
from scanopt_cli.page.drawing import Drawing
from scanopt_cli.page.page import Drawn, Section, Spent, Tone
from scanopt_cli.reports.bisect_report import bisect_report, culprit_in_short


def bisect_part(found: Bisection, source: str) -> Part:
    """Return what a page says of a bisection."""
    culprits = "; ".join(map(culprit_in_short, found.culprits))
    blocks = list(bisect_report(source, found))[1:]  # the verdict is that of the page
    times = tuple(_times(found))
    of_culprits = Section(title="Culprits" if culprits else "Property", blocks=blocks)
    return Part(
        source=source,
        verdict=culprits or "nothing found",
        tone=Tone.BAD if found.culprits else Tone.GOOD,
        times=times,
        sections=(of_culprits, *([times_section(times, None, found.times)] if times else [])),
        drawn=tuple(_drawn(found)),
    )


def _times(found: Bisection) -> Iterator[Spent]:
    known = 0.0 if found.times is None else found.times.seconds
    if found.times is not None:
        yield spent_verifying(found.times, "looking at graphs")
    if found.seconds:
        what = "running passes" if known else "running passes, and looking at graphs"
        yield Spent(what, max(found.seconds - known, 0.0))


def _drawn(found: Bisection) -> Iterator[Drawn]:
    for culprit in found.culprits:
        if culprit.before is None:
            continue
        drawing = Drawing()
        drawing.add("before", culprit.before.fgraph)
        if culprit.after is not None:
            drawing.add("after", culprit.after.fgraph, told(culprit.remarks))
        is_pair = culprit.after is not None
        title = culprit_in_short(culprit)
        yield Drawn(title=title, picture=drawing.picture(), side_by_side=is_pair)
