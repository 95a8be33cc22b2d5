"""A derivative and the pedigree of its Scans, for a person at a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from scanopt_cli.autodiff.derivative import Derivative
from scanopt_cli.autodiff.provenance.pedigree import Pedigree
from scanopt_cli.autodiff.stages import Stage
from scanopt_cli.reports.grad_table import (
    LABELS,
    Row,
    checks,
    children,
    headings,
    legend,
    origin_in_words,
    rows,
    strategies,
    title,
)
from scanopt_cli.text import printable

# The length of the longest formula that fits in the table.
_SHORT = 14


def render(derivative: Derivative, *, show: str | None = None) -> RenderableType:
    """Return the table of all orders, the pedigree, the notes, and the Scan called ``show``.

    Raises
    ------
    GradientError
        If no Scan of the derivative is called ``show``.
    """
    parts: list[RenderableType] = [Text(printable(title(derivative)), style="bold")]
    parts += [Text(printable(line)) for line in strategies(derivative)]
    parts += [_table(derivative), *map(Text, legend(derivative)), "", _tree(derivative.pedigree)]
    if derivative.notes:
        parts += ["", *(Text(printable(f"note: {note}")) for note in derivative.notes)]
    if checks(derivative):
        parts += ["", *(Text(printable(line)) for line in checks(derivative))]
    if show is not None:
        shown = "\n".join(map(printable, derivative.show(show).split("\n")))
        parts += ["", Text(shown)]
    return Group(*parts)


def _table(derivative: Derivative) -> RenderableType:
    """Return a row for each order and stage. If a formula is too long, all follow the table."""
    found = rows(derivative)
    is_short = all(len(row.buffers) <= _SHORT for row in found)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("order and\nstage", no_wrap=True)
    for heading in (*headings(derivative)[3:], *(("loop buffers",) if is_short else ())):
        broken = heading.replace(" ", "\n").replace("-", "-\n")
        table.add_column(broken, justify="right", no_wrap=True)
    for row in found:
        label = row.graph if row.stage is Stage.RAW else f"  {LABELS[row.stage]}"
        table.add_row(label, *row.counts, *((row.buffers,) if is_short else ()))
    return table if is_short else Group(table, _buffers(found))


def _buffers(found: Sequence[Row]) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_row("loop buffers")
    for row in found:
        formula = Text(printable(row.buffers), overflow="fold")
        table.add_row(f"  {row.graph}, {LABELS[row.stage]}:", formula)
    return table


def _tree(pedigree: Pedigree) -> RenderableType:
    if not pedigree.scans:
        return Text("no loop in the derivative")
    found = children(pedigree)
    root = Tree(Text("pedigree", style="bold"))
    waiting: list[tuple[Tree, str | None]] = [(root, None)]
    while waiting:
        branch, name = waiting.pop()
        for record in found.get(name, ()):
            label = Text.assemble(
                (printable(record.name), "cyan"), f": {printable(origin_in_words(record))}"
            )
            waiting.append((branch.add(label), record.full_name))
    return root
