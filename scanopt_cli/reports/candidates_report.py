"""The strategies for a derivative side by side: what each builds, which is chosen, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scanopt_cli.autodiff.candidates import LENGTH, PRESET, Candidate, CandidateStatus
from scanopt_cli.reports.counts_table import (
    BUFFERS,
    are_short,
    counts_table,
    slot_counts,
    slot_titles,
)
from scanopt_cli.reports.document import Block, Column, Item, Paragraph, Sign, Style
from scanopt_cli.text import UNNAMED, cut, size_text

# The longest formula below the table, in brief.
_LONG = 90
_SIGNS = {
    CandidateStatus.CHOSEN: Sign("*", Style.GOOD, "chosen"),
    CandidateStatus.COUNTED: Sign("-", Style.PLAIN, "beside it"),
    CandidateStatus.REFUSED: Sign("!", Style.WARNING, "refused"),
    CandidateStatus.LEFT_OUT: Sign("?", Style.FAINT, "left out"),
}


def candidates_report(
    candidates: Sequence[Candidate], *, is_brief: bool = False
) -> Iterator[Block]:
    """Yield a table with a row for each strategy that was built, and why each is chosen or not.

    In brief, long formulas are cut.
    """
    counted = {one: one.statistics for one in candidates if one.statistics is not None}
    sizes = {one: size_text(found.buffer_bytes) for one, found in counted.items()}
    is_short = are_short(sizes.values())
    titles = (*slot_titles(counted.values()), "nodes inside", *([BUFFERS] if is_short else []))
    rows = [
        (
            _label(one),
            (
                *slot_counts(found),
                str(found.inner_nodes),
                *([sizes[one]] if is_short else []),
                _cost(one),
            ),
        )
        for one, found in counted.items()
    ]
    yield counts_table(Column("strategy", wraps=False), (*titles, "cost"), rows)
    groups: dict[tuple[CandidateStatus, str], list[str]] = {}
    for one in candidates:
        if not one.is_raw:
            groups.setdefault((one.verdict, one.reason), []).append(one.strategy)
    for (verdict, reason), names in groups.items():
        refused = "does not apply: " if verdict is CandidateStatus.REFUSED else ""
        yield Item(f"{', '.join(names)}: {refused}{reason}", sign=_SIGNS[verdict])
    if not is_short:
        yield Paragraph(BUFFERS)
        for one, size in sizes.items():
            shown = cut(size, _LONG) if is_brief else size
            yield Item(f"{_label(one).removeprefix('* ')}: {shown}", depth=1)
    yield from map(Paragraph, _legend(candidates))


def _legend(candidates: Sequence[Candidate]) -> Iterator[str]:
    raw = ", but for what is as built" if any(one.is_raw for one in candidates) else ""
    yield f"counted after `scanopt optimize -p {PRESET}`{raw}"
    lengths = (one for one in candidates if one.operations and not one.operations.isdecimal())
    at = f"; unknown lengths count as {LENGTH}" if any(lengths) else ""
    yield f"cost: the operations of a call, relative to those of what is chosen{at}"
    if any("?" in one.statistics.buffer_bytes for one in candidates if one.statistics):
        yield UNNAMED


def _cost(one: Candidate) -> str:
    return "" if one.cost is None else f"{one.cost:.2f}"


def _label(one: Candidate) -> str:
    """Return the strategy with a mark, if it is chosen."""
    mark = "* " if one.verdict is CandidateStatus.CHOSEN else ""
    return f"{mark}{one.strategy}{', as built' if one.is_raw else ''}"
