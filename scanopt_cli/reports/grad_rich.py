"""A derivative and the pedigree of its Scans, for a person at a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from scanopt_cli.gradients.derivative import Derivative
from scanopt_cli.gradients.pedigree import Pedigree, ScanRecord
from scanopt_cli.graphs.statistics import COUNTS
from scanopt_cli.reports.text import printable

_TITLES = {
    "scans": "Scans",
    "mit_mot": "mit\nmot",
    "mit_sot": "mit\nsot",
    "sit_sot": "sit\nsot",
    "nit_sot": "nit\nsot",
    "untraced": "un-\ntraced",
    "seqs": "seqs",
    "non_seqs": "non\nseqs",
    "outer_nodes": "nodes\noutside",
    "inner_nodes": "nodes\ninside",
}


def render(derivative: Derivative, *, show: str | None = None) -> RenderableType:
    """Return a table with one row an order, the pedigree, the notes, and the Scan called ``show``.

    Raises
    ------
    GradientError
        If no Scan of the derivative is called ``show``.
    """
    parts: list[RenderableType] = [Text(printable(title(derivative)), style="bold")]
    parts += [_table(derivative), _buffers(derivative), "", _tree(derivative.pedigree)]
    if derivative.notes:
        parts += ["", *(Text(printable(f"note: {note}")) for note in derivative.notes)]
    if show is not None:
        shown = "\n".join(map(printable, derivative.show(show).splitlines()))
        parts += ["", Text(shown)]
    return Group(*parts)


def title(derivative: Derivative) -> str:
    """Return in one line what was differentiated, how often, and by what."""
    order = derivative.orders[-1].order
    return f"derivative of order {order} of {derivative.output} by {', '.join(derivative.wrt)}"


def rows(derivative: Derivative) -> tuple[list[str], list[list[str]]]:
    """Return the names of the counts that are not zero throughout, and them for each order."""
    counts = [report.statistics for report in derivative.orders]
    found = [name for name in COUNTS if any(getattr(count, name) for count in counts)]
    return found, [[str(getattr(count, name)) for name in found] for count in counts]


def facts(record: ScanRecord) -> str:
    """Return what is known of a Scan's origin, in words."""
    way = "unknown direction" if record.direction == "unknown" else record.direction.value
    told = [way]
    if record.parent is not None:
        told.append(f"pullback of {record.parent}")
    elif record.generation:
        told.append(f"pullback, generation {record.generation}")
    if record.reason is not None:
        told.append(f"parent unknown: {record.reason}")
    if record.path:
        told.append(f"in {'/'.join(record.path)}")
    if record.depends_on:
        told.append(f"depends on {', '.join(record.depends_on)}")
    if record.reads_inputs:
        told.append(f"reads {', '.join(record.reads_inputs)}")
    return "; ".join(told)


def children(pedigree: Pedigree) -> Mapping[str | None, Sequence[ScanRecord]]:
    """Return what stands under each Scan: its pullbacks beside it, and the Scans in its body.

    Scans are told by their full names; under ``None`` are those that stand alone.
    """
    names = {record.full_name for record in pedigree.scans}
    found: dict[str | None, list[ScanRecord]] = {}
    for record in pedigree.scans:
        beside = "/".join((*record.path, record.parent or ""))
        around = ("/".join(record.path[:depth]) for depth in range(len(record.path), 0, -1))
        above = next((name for name in (beside, *around) if name in names), None)
        found.setdefault(above, []).append(record)
    return found


def _table(derivative: Derivative) -> Table:
    names, body = rows(derivative)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("order", *(_TITLES[name] for name in names)):
        table.add_column(heading, justify="right", no_wrap=True)
    for report, row in zip(derivative.orders, body, strict=True):
        table.add_row(str(report.order), *row)
    return table


def _buffers(derivative: Derivative) -> Table:
    """The formulas, which are long, on lines of their own."""
    table = Table.grid(padding=(0, 1))
    for report in derivative.orders:
        formula = Text(printable(report.statistics.buffers), overflow="fold")
        table.add_row(f"loop-buffer elements, order {report.order}:", formula)
    return table


def _tree(pedigree: Pedigree) -> RenderableType:
    if not pedigree.scans:
        return Text("no Scan in the derivative")
    found = children(pedigree)
    root = Tree(Text("pedigree", style="bold"))
    waiting: list[tuple[Tree, str | None]] = [(root, None)]
    while waiting:
        branch, name = waiting.pop()
        for record in found.get(name, ()):
            label = Text.assemble((printable(record.name), "cyan"), f": {printable(facts(record))}")
            waiting.append((branch.add(label), record.full_name))
    return root
