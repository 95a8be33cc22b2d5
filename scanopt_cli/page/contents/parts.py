"""A part of a page for each graph, and the page of one part or of several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from scanopt_cli.page.contents.times import added
from scanopt_cli.page.page import Drawn, Page, Section, Spent, Tone
from scanopt_cli.reports.document import Column, Line, Span, Style, Table
from scanopt_cli.text import enumerated, plural, printable

_WORST_FIRST = (Tone.BAD, Tone.WARNING, Tone.NEUTRAL, Tone.GOOD)
_STYLES = {Tone.BAD: Style.BAD, Tone.WARNING: Style.WARNING, Tone.GOOD: Style.GOOD}
_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a page says of one graph, or of one pair of graphs.

    Attributes
    ----------
    source
        The name of the graph.
    verdict
        What was found, in one sentence.
    tone
        How the verdict is meant.
    times
        What took how long.
    sections
        The text, most important first.
    drawn
        The pictures.
    """

    source: str
    verdict: str
    tone: Tone = Tone.NEUTRAL
    times: Sequence[Spent] = ()
    sections: Sequence[Section] = ()
    drawn: Sequence[Drawn] = ()


def page_of(
    command: str,
    parts: Sequence[Part],
    *,
    verdict: str = "",
    failures: Mapping[str, str] | None = None,
) -> Page:
    """Return the page of what a command found in graphs; there is at least one part or failure.

    ``verdict`` is that on several graphs; ``failures`` are the errors of those that could not be
    read.
    """
    return _printable(_page_of(command, parts, verdict, failures or {}))


def _page_of(command: str, parts: Sequence[Part], verdict: str, failed: Mapping[str, str]) -> Page:
    if len(parts) == 1 and not failed:
        (part,) = parts
        return Page(
            command=command,
            title=part.source,
            verdict=part.verdict,
            tone=part.tone,
            times=tuple(part.times),
            sections=tuple(part.sections),
            drawn=tuple(part.drawn),
        )
    sources = [*(part.source for part in parts), *failed]
    texts = [verdict] if verdict else []
    if failed:
        texts.append(f"{plural(len(failed), 'graph')} could not be handled")
    tones = [*(part.tone for part in parts), *([Tone.BAD] if failed else [])]
    return Page(
        command=command,
        title=enumerated(sources, _NAMED),
        verdict="; ".join(texts) or plural(len(parts), "graph"),
        tone=worst(tones),
        times=added(part.times for part in parts),
        sections=(_overview(parts, failed), *_of_all(parts)),
        drawn=tuple(drawn for part in parts for drawn in part.drawn),
    )


def _printable(page: Page) -> Page:
    """Return a page whose titles have no characters that hide or turn others.

    Blocks are escaped when they are rendered.
    """
    return replace(
        page,
        command=printable(page.command),
        title=printable(page.title),
        verdict=printable(page.verdict),
        sections=tuple(replace(one, title=printable(one.title)) for one in page.sections),
        drawn=tuple(replace(one, title=printable(one.title)) for one in page.drawn),
    )


def worst(tones: Iterable[Tone]) -> Tone:
    """Return the worst of tones; that of nothing is neutral."""
    return min(tones, key=_WORST_FIRST.index, default=Tone.NEUTRAL)


def _overview(parts: Sequence[Part], failed: Mapping[str, str]) -> Section:
    rows: list[Sequence[Line]] = [
        (Span(part.source, Style.NAME), Span(part.verdict, _STYLES.get(part.tone, Style.PLAIN)))
        for part in parts
    ]
    rows += [(Span(source, Style.NAME), Span(text, Style.BAD)) for source, text in failed.items()]
    return Section(title="Graphs", blocks=[Table((Column("graph"), Column("verdict")), rows)])


def _of_all(parts: Sequence[Part]) -> Iterable[Section]:
    """Yield the sections of each part among several, with the name of its graph.

    They are folded, but the first one of a part if it tells of something bad.
    """
    n_drawn = 0
    for part in parts:
        for place, section in enumerate(part.sections):
            is_open = place == 0 and part.tone in (Tone.BAD, Tone.WARNING)
            title, runs = f"{part.source}: {section.title}", section.runs
            if runs is not None:
                runs = replace(runs, drawn=runs.drawn + n_drawn)
            yield replace(section, title=title, is_open=is_open, runs=runs)
        n_drawn += len(part.drawn)
