"""A derivative, the counts of its orders and stages, and the pedigree of its Scans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scanopt_cli.analysis.statistics import Statistics
from scanopt_cli.autodiff.choices import Stage
from scanopt_cli.autodiff.derivative import Derivative, OrderReport
from scanopt_cli.autodiff.provenance.pedigree import Pedigree, ScanRecord
from scanopt_cli.reports.document import (
    Block,
    Column,
    Heading,
    Item,
    Line,
    Paragraph,
    Preformatted,
    Span,
    Style,
    Table,
    Tree,
)
from scanopt_cli.text import UNNAMED

_COUNTS = ("loops", "mit-mots", "states", "traces", "nodes outside", "nodes inside")
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
# The length of the longest formula that fits in the table.
_SHORT = 14
# A narrower table would have no room for the names of graphs beside the numbers.
_TABLE_WIDTH = 72


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One graph of the table: its strategy (none for order 0) and order, its stage, its counts."""

    graph: str
    stage: Stage
    counts: tuple[str, ...]
    buffers: str


def grad_report(derivative: Derivative, *, show: str | None = None) -> Iterator[Block]:
    """Yield the table of all orders, the pedigree, the notes, and the Scan called ``show``.

    Raises
    ------
    GradientError
        If no Scan of the derivative is called ``show``.
    """
    order = derivative.orders[-1].order
    what = "Hessian" if derivative.full else f"derivative of order {order}"
    yield Heading(f"{what} of {derivative.output} by {', '.join(derivative.wrt)}")
    for one in derivative.every:
        yield Item(f"strategy {one.strategy}: {one.reason}")
    if any(report.statistics.has_loops for one in derivative.every for report in one.orders):
        found = rows(derivative)
        yield from _table(found, headings(derivative))
        yield from map(Paragraph, _legend(found))
        yield Paragraph()
        yield _tree(derivative.pedigree)
    else:
        yield Paragraph("no loop in this graph, nor in the derivative")
    if derivative.notes:
        yield Paragraph()
        yield from (Item(f"note: {note}") for note in derivative.notes)
    checks = [f"{one.strategy}: {one.check}" for one in derivative.every if one.check is not None]
    if checks:
        yield Paragraph()
        yield from map(Item, checks)
    if show is not None:
        yield Paragraph()
        yield Paragraph(f"Scan {show}:")
        yield Preformatted(derivative.show(show).split("\n"))


def headings(derivative: Derivative) -> tuple[str, ...]:
    """Return the headings of the counts."""
    every = (order.statistics for one in derivative.every for order in one.orders)
    others = any(counted.loops for counted in every)
    return _COUNTS if others else ("Scans", *_COUNTS[1:])


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
    loops = counted.scans + counted.loops
    states = counted.mit_sot + counted.sit_sot + counted.untraced + counted.states
    counts = (loops, counted.mit_mot, states, counted.nit_sot + counted.traced)
    nodes = (counted.outer_nodes, counted.inner_nodes)
    return Row(
        graph=graph,
        stage=stage,
        counts=tuple(map(str, (*counts, *nodes))),
        buffers=counted.buffers,
    )


def _table(found: Sequence[Row], names: Sequence[str]) -> Iterator[Block]:
    """Yield a row for each order and stage. If a formula is too long, all follow the table."""
    is_short = all(len(row.buffers) <= _SHORT for row in found)
    titles = (*names, "loop buffers") if is_short else names
    cells = [(*row.counts, row.buffers) if is_short else row.counts for row in found]
    items = [
        Item(_label(row), notes=[", ".join(map(" ".join, zip(titles, counts, strict=True)))])
        for row, counts in zip(found, cells, strict=True)
    ]
    yield Table(
        (Column("graph"), *(Column(title, is_number=True) for title in titles)),
        [(_label(row), *counts) for row, counts in zip(found, cells, strict=True)],
        least_width=_TABLE_WIDTH,
        otherwise=items,
        is_dense=True,
    )
    if not is_short:
        yield Paragraph("loop buffers")
        for row in found:
            yield Item(f"{row.graph}, {_LABELS[row.stage]}: {row.buffers}", depth=1)


def _label(row: Row) -> str:
    return row.graph if row.stage is Stage.RAW else f"- {_LABELS[row.stage]}"


def _legend(found: Sequence[Row]) -> list[str]:
    """Return a line for each stage in the table except ``raw``, and one for unnamed sizes."""
    shown = dict.fromkeys(row.stage for row in found)
    lines = [f"{_LABELS[stage]}: {_LEGEND[stage]}" for stage in shown if stage in _LEGEND]
    return [*lines, UNNAMED] if any("?" in row.buffers for row in found) else lines


def _tree(pedigree: Pedigree) -> Block:
    """Return the Scans, each below its parent in the same graph, or below the Scan that holds it.

    Scans are identified by their full names.
    """
    if not pedigree.scans:
        return Paragraph("no loop in the derivative")
    root: list[Tree] = []
    below: dict[str, list[Tree]] = {record.full_name: [] for record in pedigree.scans}
    for record in pedigree.scans:
        beside = "/".join((*record.path, record.parent or ""))
        around = ("/".join(record.path[:depth]) for depth in range(len(record.path), 0, -1))
        siblings = next((below[name] for name in (beside, *around) if name in below), root)
        label: Line = [Span(record.name, Style.NAME), f": {_origin(record)}"]
        siblings.append(Tree(label, below[record.full_name]))
    return Tree(Span("pedigree", Style.STRONG), root)


def _origin(record: ScanRecord) -> str:
    way = "unknown direction" if record.direction == "unknown" else record.direction.value
    parts = [way]
    if record.tangents_of is not None:
        parts.append(f"{record.tangents_of} with its tangents")
    if record.parent is not None:
        parts.append(f"pullback of {record.parent}")
    elif record.generation and record.tangents_of is None:
        parts.append(f"pullback, generation {record.generation}")
    if record.reason is not None:
        parts.append(f"parent unknown: {record.reason}")
    if record.path:
        parts.append(f"in {'/'.join(record.path)}")
    if record.depends_on:
        parts.append(f"depends on {', '.join(record.depends_on)}")
    if record.reads_inputs:
        parts.append(f"reads {', '.join(record.reads_inputs)}")
    return "; ".join(parts)
