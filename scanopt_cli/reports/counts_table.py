"""Graphs in a table: how many loops, states, traces and nodes each has, and its loop buffers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scanopt_cli.analysis.statistics import Statistics
from scanopt_cli.reports.document import Column, Item, Table

BUFFERS = "loop buffers"
# The length of the longest formula that fits in the table.
_SHORT = 14
# A narrower table would have no room for the names of graphs beside the numbers.
_TABLE_WIDTH = 72


def slot_titles(graphs: Iterable[Statistics]) -> tuple[str, ...]:
    """Return the titles of `slot_counts` for these graphs."""
    return "loops" if any(one.loops for one in graphs) else "Scans", "mit-mots", "states", "traces"


def slot_counts(counted: Statistics) -> tuple[str, ...]:
    """Return how many loops and slots a graph has, those of a Scan and of a TracedLoop together."""
    states = counted.mit_sot + counted.sit_sot + counted.untraced + counted.states
    traces = counted.nit_sot + counted.traced
    return tuple(map(str, (counted.scans + counted.loops, counted.mit_mot, states, traces)))


def are_short(buffers: Iterable[str]) -> bool:
    """Whether all sizes of buffers fit in the table; if one does not, all follow below it."""
    return all(len(size) <= _SHORT for size in buffers)


def counts_table(
    first: Column, titles: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]
) -> Table:
    """Return a table of what each row is called and its counts; a list where it is too narrow."""
    return Table(
        (first, *(Column(title, is_number=True) for title in titles)),
        [(name, *counts) for name, counts in rows],
        least_width=_TABLE_WIDTH,
        otherwise=[
            Item(name, notes=[", ".join(map(" ".join, zip(titles, counts, strict=True)))])
            for name, counts in rows
        ],
        is_dense=True,
    )
