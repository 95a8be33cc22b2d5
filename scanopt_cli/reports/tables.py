"""Tables that are made only where they have room."""

from __future__ import annotations

from collections.abc import Sequence

from scanopt_cli.reports.document import Block, Column, Line, Table, length

GAP = 3
"""What Rich puts between two columns; before and after them stands a blank."""


def fitting(
    columns: Sequence[Column], rows: Sequence[Sequence[Line]], otherwise: Sequence[Block]
) -> Table:
    """Return a table that is made if no cell of it needs folding, else blocks in its place."""
    widths = [
        max([len(column.title), *(length(row[place]) for row in rows)])
        for place, column in enumerate(columns)
    ]
    return Table(columns, rows, sum(widths) + GAP * len(widths), otherwise)
