"""How graphs are beside what is locked, for a terminal and for GitHub."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from scanopt_cli.gates.comparing import CountChange, GraphStatus, State
from scanopt_cli.gates.lock_file import LockedFinding
from scanopt_cli.reports.as_json import plain
from scanopt_cli.reports.document import Block, Item, Paragraph, Sign, Span, Style
from scanopt_cli.reports.workflow import command
from scanopt_cli.text import at_place, plural, printable

_WORSE = Sign("!", Style.BAD, "worse")
_BETTER = Sign("+", Style.GOOD, "better")
_OTHER = Sign("~", Style.FAINT, "other")
_WORDS = {
    State.UNCHANGED: "unchanged",
    State.SAME: "changed in form only",
    State.CHANGED: "changed",
    State.NEW: "not locked",
    State.MISSING: "missing",
}
_PLACE = re.compile(r"(?P<file>.+?):(?P<line>[1-9][0-9]{0,8})(?: in .*)?", re.DOTALL)
# So many graphs, and findings of each, are told at a terminal.
_MOST_GRAPHS = 20
_MOST_FINDINGS = 5
_MOST_ERRORS = 10


def status_report(graphs: Sequence[GraphStatus], *, stands_alone: bool = False) -> Iterator[Block]:
    """Yield what is different in each graph, what is worse first, and a line of counts.

    At a terminal that is about a screen; a report that stands alone has all.
    """
    different = [graph for graph in graphs if graph.is_worse or graph.state is not State.UNCHANGED]
    different.sort(key=lambda graph: not graph.is_worse)
    shown = different if stands_alone else different[:_MOST_GRAPHS]
    for graph in shown:
        yield from _graph(graph, stands_alone=stands_alone)
    if len(shown) < len(different):
        rest = f"… {len(different) - len(shown)} more graphs are different; --format json has all"
        yield Paragraph(Span(rest, Style.FAINT))
    if different:
        yield Paragraph()
    is_worse = any(graph.is_worse for graph in graphs)
    yield Paragraph(Span(total(graphs), Style.BAD if is_worse else Style.GOOD))
    if is_worse:
        yield Paragraph("if that is meant, `scanopt lock PATH...` takes graphs as they are")
    elif any(graph.is_better for graph in graphs):
        yield Paragraph("`scanopt lock` keeps what is better")


def total(graphs: Sequence[GraphStatus]) -> str:
    """Return ``5 graphs: 2 unchanged, 3 changed; 1 worse than locked``."""
    counts = Counter(graph.state for graph in graphs)
    told = ", ".join(f"{counts[state]} {word}" for state, word in _WORDS.items() if counts[state])
    worse = sum(graph.is_worse for graph in graphs)
    verdict = f"{worse} worse than locked" if worse else "none worse than locked"
    return f"{plural(len(graphs), 'graph')}: {told}; {verdict}"


def _graph(graph: GraphStatus, *, stands_alone: bool) -> Iterator[Item]:
    sign = _WORSE if graph.is_worse else _BETTER if graph.is_better else _OTHER
    yield Item([Span(graph.source, Style.STRONG), f": {_WORDS[graph.state]}"], sign=sign)
    others = []
    for change in graph.counts:
        if change.is_worse or change.is_better:
            counted = _WORSE if change.is_worse else _BETTER
            yield Item(Span(count_text(change), counted.style), sign=counted, depth=1)
        else:
            others.append(count_text(change))
    if others:
        yield Item(Span(", ".join(others), Style.FAINT), sign=_OTHER, depth=1)
    for findings, added, style in (
        (graph.found, Sign("!", Style.BAD, "new finding"), Style.BAD),
        (graph.gone, Sign("-", Style.GOOD, "no more"), Style.GOOD),
    ):
        shown = findings if stands_alone else findings[:_MOST_FINDINGS]
        for found in shown:
            text = f": {found.text}" if found.text else ""
            loop = [Span(found.loop, Style.NAME), Span(at_place(found.place), Style.FAINT)]
            yield Item([Span(f"{found.rule} ", style), *loop, text], sign=added, depth=1)
        if len(shown) < len(findings):
            rest = f"and {plural(len(findings) - len(shown), 'finding')} more"
            yield Item(Span(rest, Style.FAINT), sign=added, depth=1)


def count_text(change: CountChange) -> str:
    """Return ``scans 1 → 2``, with its limit if a budget gives another than what is locked."""
    moved = f"{change.locked:,} → {change.now:,}"
    text = f"{change.count} {moved if change.now != change.locked else f'{change.now:,}'}"
    has_other = change.limit is not None and change.limit != change.locked
    return f"{text}, the budget is {change.limit:,}" if has_other else text


def workflow_commands(graphs: Sequence[GraphStatus]) -> Iterator[str]:
    """Yield annotations for GitHub Actions: errors for what is worse, ten at most, and counts."""
    errors = [error for graph in graphs for error in _errors(graph)]
    shown = errors if len(errors) <= _MOST_ERRORS else errors[: _MOST_ERRORS - 1]
    yield from shown
    if len(shown) < len(errors):
        rest = f"{len(errors) - len(shown)} more are in the step summary"
        yield command("error", graphs[0].source, "more is worse", rest)
    yield printable(total(graphs))


def _errors(graph: GraphStatus) -> Iterator[str]:
    if graph.state in (State.NEW, State.MISSING):
        text = f"{graph.source} is {_WORDS[graph.state]}"
        yield command("error", graph.source, f"{_WORDS[graph.state]} graph", text)
    for change in graph.counts:
        if change.is_worse:
            yield command("error", graph.source, "more than locked", count_text(change))
    for found in graph.found:
        file, line = _location(found) or (graph.source, None)
        text = f"{found.loop}{at_place(found.place)}: {found.text} ({graph.source})"
        yield command("error", file, f"{found.rule}, not locked", text, line)


def _location(found: LockedFinding) -> tuple[str, int] | None:
    place = _PLACE.fullmatch(found.place or "")
    return None if place is None else (place["file"], int(place["line"]))


def as_json(graph: GraphStatus) -> dict[str, object]:
    """Return the entry of a graph in JSON."""
    told: dict[str, object] = plain(graph)
    return told | {"worse": graph.is_worse}
