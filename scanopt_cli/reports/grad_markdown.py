"""A derivative and the pedigree of its Scans, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from scanopt_cli.gradients.derivative import Derivative
from scanopt_cli.gradients.pedigree import Pedigree
from scanopt_cli.reports.grad_rich import children, facts, rows, title
from scanopt_cli.reports.text import markdown, printable


def render(derivative: Derivative, *, show: str | None = None) -> str:
    """Return a table with one row an order, the pedigree, the notes, and the Scan called ``show``.

    Raises
    ------
    GradientError
        If no Scan of the derivative is called ``show``.
    """
    names, body = rows(derivative)
    headings = ["order", *names, "buffers"]
    lines = [f"### {markdown(title(derivative))}", "", f"| {' | '.join(map(markdown, headings))} |"]
    lines.append("|---:" * len(headings) + "|")
    for report, row in zip(derivative.orders, body, strict=True):
        cells = [str(report.order), *row, report.statistics.buffers]
        lines.append(f"| {' | '.join(map(markdown, cells))} |")
    lines += ["", *_pedigree(derivative.pedigree)]
    if derivative.notes:
        lines += ["", *(f"- note: {markdown(note)}" for note in derivative.notes)]
    if show is not None:
        # Indented, since a name could hold the end of a fence.
        lines += ["", f"Scan {markdown(show)}:", ""]
        lines += [f"    {printable(line)}" for line in derivative.show(show).splitlines()]
    return "\n".join([*lines, ""])


def _pedigree(pedigree: Pedigree) -> Iterator[str]:
    found = children(pedigree)
    waiting = [(record, 0) for record in reversed(found.get(None, ()))]
    while waiting:
        record, depth = waiting.pop()
        yield f"{'  ' * depth}- **{markdown(record.name)}**: {markdown(facts(record))}"
        waiting += [(child, depth + 1) for child in reversed(found.get(record.full_name, ()))]
