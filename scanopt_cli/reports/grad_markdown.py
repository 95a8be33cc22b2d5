"""A derivative and the pedigree of its Scans, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from scanopt_cli.autodiff.derivative import Derivative
from scanopt_cli.autodiff.provenance.pedigree import Pedigree
from scanopt_cli.reports.grad_table import (
    LABELS,
    checks,
    children,
    headings,
    legend,
    origin_in_words,
    rows,
    strategies,
    title,
)
from scanopt_cli.text import markdown, printable


def render(derivative: Derivative, *, show: str | None = None) -> str:
    """Return the table of all orders, the pedigree, the notes, and the Scan called ``show``.

    Raises
    ------
    GradientError
        If no Scan of the derivative is called ``show``.
    """
    columns = (*headings(derivative), "buffers")
    lines = [f"### {markdown(title(derivative))}", ""]
    lines += [f"- {markdown(line)}" for line in strategies(derivative)]
    lines += ["", f"| {' | '.join(map(markdown, columns))} |"]
    lines.append("|---|---:|---" + "|---:" * (len(columns) - 3) + "|")
    for row in rows(derivative):
        cells = (row.strategy, str(row.order), LABELS[row.stage], *row.counts, row.buffers)
        lines.append(f"| {' | '.join(map(markdown, cells))} |")
    if legend(derivative):
        lines += ["", *(f"- {markdown(line)}" for line in legend(derivative))]
    lines += ["", *_pedigree(derivative.pedigree)]
    if derivative.notes:
        lines += ["", *(f"- note: {markdown(note)}" for note in derivative.notes)]
    if checks(derivative):
        lines += ["", *(f"- {markdown(line)}" for line in checks(derivative))]
    if show is not None:
        # Indented, since a name could hold the end of a fence.
        lines += ["", f"Scan {markdown(show)}:", ""]
        lines += [f"    {printable(line)}" for line in derivative.show(show).split("\n")]
    return "\n".join([*lines, ""])


def _pedigree(pedigree: Pedigree) -> Iterator[str]:
    found = children(pedigree)
    waiting = [(record, 0) for record in reversed(found.get(None, ()))]
    while waiting:
        record, depth = waiting.pop()
        yield f"{'  ' * depth}- **{markdown(record.name)}**: {markdown(origin_in_words(record))}"
        waiting += [(child, depth + 1) for child in reversed(found.get(record.full_name, ()))]
