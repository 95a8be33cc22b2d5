"""A derivative, the counts of its orders and stages, and the pedigree of its Scans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scanopt_cli.analysis.statistics import Statistics
from scanopt_cli.autodiff.choices import Stage
from scanopt_cli.autodiff.derivative import Derivative, OrderReport
from scanopt_cli.reports.candidates_report import candidates_report
from scanopt_cli.reports.counts_table import (
    BUFFERS,
    are_short,
    counts_table,
    slot_counts,
    slot_titles,
)
from scanopt_cli.reports.document import (
    Block,
    Column,
    Heading,
    Item,
    Paragraph,
    Preformatted,
    height,
)
from scanopt_cli.reports.pedigree_report import pedigree_report
from scanopt_cli.text import UNNAMED, size_text

_LABELS = {
    Stage.RAW: "as built",
    Stage.PYTENSOR: "compiled",
    Stage.SCANOPT: "scanopt",
    Stage.BOTH: "scanopt, compiled",
}
_LEGEND = {
    Stage.PYTENSOR: "after PyTensor's rewrites alone",
    Stage.SCANOPT: "after `scanopt optimize -p grad`",
    Stage.BOTH: "after `scanopt optimize -p grad`, then PyTensor's rewrites",
}
# The empty line above the pedigree, and its title.
_AROUND = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One graph of the table: its strategy (none for order 0) and order, its stage, its counts."""

    graph: str
    stage: Stage
    counts: tuple[str, ...]
    buffers: str


def grad_report(
    derivative: Derivative, *, show: str | None = None, lines: int = 0
) -> Iterator[Block]:
    """Yield the table of strategies or of all orders, the pedigree, the notes, the Scan ``show``.

    With ``lines``, long formulas and the pedigree are cut, so that the report has about as many
    lines of 80 columns.

    Raises
    ------
    GradientError
        If no Scan of the derivative is called ``show``.
    """
    above: list[Block] = [Heading(heading(derivative)), *counts_report(derivative, lines)]
    below = list(notes_report(derivative))
    has_loops = _has_loops(derivative)
    yield from above
    if has_loops:
        yield Paragraph()
        taken = sum(map(height, (*above, *below))) + _AROUND
        yield from pedigree_report(derivative.pedigree, max(lines - taken, 4) if lines else 0)
    yield from below
    if show is not None:
        yield Paragraph()
        yield Paragraph(f"Scan {show}:")
        yield Preformatted(derivative.show(show).split("\n"))


def heading(derivative: Derivative) -> str:
    """Return what was differentiated, how often, and by what."""
    order = derivative.orders[-1].order
    what = "Hessian" if derivative.full else f"derivative of order {order}"
    return f"{what} of {derivative.output} by {', '.join(derivative.wrt)}"


def counts_report(derivative: Derivative, lines: int = 0) -> Iterator[Block]:
    """Yield the table of strategies or of all orders; with ``lines``, long formulas are cut."""
    if not _has_loops(derivative):
        yield from _strategies(derivative)
        yield Paragraph("no loop in this graph, nor in the derivative")
    elif derivative.candidates:
        yield from candidates_report(derivative.candidates, is_brief=bool(lines))
    else:
        yield from _strategies(derivative)
        found = rows(derivative)
        yield from _table(found, headings(derivative))
        yield from map(Paragraph, _legend(found))


def notes_report(derivative: Derivative) -> Iterator[Block]:
    """Yield the notes and the checks, each after an empty line."""
    if derivative.notes:
        yield Paragraph()
        yield from (Item(f"note: {note}") for note in derivative.notes)
    checks = [f"{one.strategy}: {one.check}" for one in derivative.every if one.check is not None]
    if checks:
        yield Paragraph()
        yield from map(Item, checks)


def _has_loops(derivative: Derivative) -> bool:
    return any(report.statistics.has_loops for one in derivative.every for report in one.orders)


def _strategies(derivative: Derivative) -> Iterator[Block]:
    for one in derivative.every:
        yield Item(f"strategy {one.strategy}: {one.reason}")


def headings(derivative: Derivative) -> tuple[str, ...]:
    """Return the headings of the counts."""
    every = (order.statistics for one in derivative.every for order in one.orders)
    return *slot_titles(every), "nodes outside", "nodes inside"


def rows(derivative: Derivative) -> list[Row]:
    """Return the rows: the original graph once, then every order of every strategy."""
    found = list(_rows("", derivative.orders[0]))
    for one in derivative.every:
        for report in one.orders[1:]:
            found += _rows(one.strategy, report)
    return found


def _rows(strategy: str, report: OrderReport) -> Iterator[Row]:
    graph = f"{strategy} {report.order}".strip()
    yield _row(graph, Stage.RAW, report.statistics)
    for staged in report.stages:
        yield _row(graph, staged.stage, staged.statistics)


def _row(graph: str, stage: Stage, counted: Statistics) -> Row:
    return Row(
        graph=graph,
        stage=stage,
        counts=(*slot_counts(counted), str(counted.outer_nodes), str(counted.inner_nodes)),
        buffers=size_text(counted.buffer_bytes),
    )


def _table(found: Sequence[Row], names: Sequence[str]) -> Iterator[Block]:
    """Yield a row for each order and stage. If a formula is too long, all follow the table."""
    is_short = are_short(row.buffers for row in found)
    titles = (*names, BUFFERS) if is_short else names
    cells = [(_label(r), (*r.counts, r.buffers) if is_short else r.counts) for r in found]
    yield counts_table(Column("graph"), titles, cells)
    if not is_short:
        yield Paragraph(BUFFERS)
        for row in found:
            yield Item(f"{row.graph}, {_LABELS[row.stage]}: {row.buffers}", depth=1)


def _label(row: Row) -> str:
    return row.graph if row.stage is Stage.RAW else f"- {_LABELS[row.stage]}"


def _legend(found: Sequence[Row]) -> list[str]:
    """Return a line for each stage in the table except ``raw``, and one for unnamed sizes."""
    shown = dict.fromkeys(row.stage for row in found)
    lines = [f"{_LABELS[stage]}: {_LEGEND[stage]}" for stage in shown if stage in _LEGEND]
    return [*lines, UNNAMED] if any("?" in row.buffers for row in found) else lines
