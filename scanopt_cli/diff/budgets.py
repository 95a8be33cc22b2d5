"""Budgets: upper limits on the counts of a graph, and the loops that exceed them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path

from scanopt_cli.analysis.inspection import ScanReport, inspect_graph
from scanopt_cli.analysis.statistics import (
    COUNTED,
    COUNTS,
    Statistics,
    buffer_formula,
    statistics,
)
from scanopt_cli.errors import ScanoptError
from scanopt_cli.ir.graph import Graph, GraphLike, as_graph
from scanopt_cli.serialization.pyproject import table_in_pyproject
from scanopt_cli.text import at_place, comma_separated, enumerated

_SHORT = {"outer": "outer_nodes", "inner": "inner_nodes"}
_KINDS = {count: kind for kind, count in COUNTED.items()}
_DESIGNS = {"scans": "Scan", "loops": "TracedLoop"}
_MOST_NAMED = 8
_OPTION = "--budget"
_WHOLE_NUMBER = re.compile(r"[0-9]{1,18}")


LIMITED = (*COUNTS, "buffer_bytes")
"""The counts that a budget may limit."""
# What an unknown length is taken for, so that the bytes of buffers are one number.
_LENGTH = 1_000
_MOST_BYTES = 1 << 62


type Budget = Mapping[str, int]
"""Upper limits, by the names of the counts in `Statistics`."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A count over its limit, and the loops that make it up.

    Attributes
    ----------
    count, limit, actual
        The name of the count, its limit, and what it is.
    loops
        The loops, those with most of it first, each as ``path/name (model.py:41): share``.
    """

    count: str
    limit: int
    actual: int
    loops: tuple[str, ...]

    @property
    def text(self) -> str:
        """The violation as one line."""
        more = len(self.loops) - _MOST_NAMED
        named = [*self.loops[:_MOST_NAMED], *([f"{more} more"] if more > 0 else [])]
        told = f": {enumerated(named)}" if named else ""
        return f"{self.count} is {self.actual}, the budget is {self.limit}{told}"


def parse_budget(text: str) -> Budget:
    """Read ``scans=2,mit_mot=0,outer=30``; ``outer`` and ``inner`` are short for the nodes.

    Raises
    ------
    ScanoptError
        If the budget is empty, or a count is unknown, given twice, or has a limit that is not a
        whole number.
    """
    pairs = []
    for part in comma_separated(text):
        name, equals, limit = (piece.strip() for piece in part.partition("="))
        if not equals or not _WHOLE_NUMBER.fullmatch(limit):
            raise ScanoptError(
                f"cannot read {part!r}", where=_OPTION, hint="write it as scans=2,mit_mot=0"
            )
        pairs.append((name, int(limit)))
    if not pairs:
        raise ScanoptError("the budget is empty", where=_OPTION, hint="write it as scans=2")
    return _budget(pairs, _OPTION)


def budget_from_pyproject(start: Path) -> Budget | None:
    """Return ``[tool.scanopt.budget]`` of the nearest pyproject.toml at or above ``start``.

    Raises
    ------
    ScanoptError
        If the file cannot be read, or its table is not a budget.
    """
    found = table_in_pyproject(start, "budget")
    if found is None:
        return None
    path, table = found
    where = f"{path} [tool.scanopt.budget]"
    for name, limit in table.items():
        if type(limit) is not int or limit < 0:
            raise ScanoptError(f"{name} is no limit", where=where, hint="a limit is a whole number")
    return _budget(table.items(), where) if table else None


def check(budget: Budget, graph: GraphLike) -> tuple[Violation, ...]:
    """Return every count of ``graph`` that is over its limit."""
    work = as_graph(graph)
    counts = counted(work)
    over = {name: limit for name, limit in budget.items() if counts[name] > limit}
    scans = inspect_graph(work.fgraph).scans if over else ()
    return tuple(
        Violation(name, limit, counts[name], _blamed(scans, name)) for name, limit in over.items()
    )


def counted(graph: Graph) -> dict[str, int]:
    """Return all that a budget may limit; bytes of buffers as if unknown lengths were 1,000."""
    found = statistics(graph.fgraph)
    try:
        size = buffer_formula(graph.fgraph).at(_LENGTH)
    except OverflowError:
        size = inf
    counts = {name: int(getattr(found, name)) for name in COUNTS}
    return counts | {"buffer_bytes": int(min(max(size, 0), _MOST_BYTES))}


def _budget(pairs: Iterable[tuple[str, int]], where: str) -> Budget:
    limits: dict[str, int] = {}
    for name, limit in pairs:
        full = _SHORT.get(name, name)
        if full not in LIMITED:
            known = ", ".join((*LIMITED, *_SHORT))
            raise ScanoptError(f"there is no count {name!r}", where=where, hint=f"known: {known}")
        if full in limits:
            raise ScanoptError(f"{name!r} is given twice", where=where)
        limits[full] = limit
    return limits


def counts_text(counts: Statistics) -> str:
    """Return the counts of a graph as `parse_budget` reads them, without those that are 0."""
    names = {full: short for short, full in _SHORT.items()}
    found = ((names.get(name, name), getattr(counts, name)) for name in COUNTS)
    return ",".join(f"{name}={count}" for name, count in found if count) or "outer=0"


def _blamed(loops: tuple[ScanReport, ...], count: str) -> tuple[str, ...]:
    """Return the loops that contribute to a count, largest share first."""
    if count == "buffer_bytes":  # formulas have no order
        titles = (f"{'/'.join((*loop.path, loop.name))}{at_place(loop.place)}" for loop in loops)
        named = zip(titles, loops, strict=True)
        return tuple(f"{title}: {loop.bytes}" for title, loop in named if loop.bytes != "0")
    shares = []
    for loop in loops:
        name = f"{'/'.join((*loop.path, loop.name))}{at_place(loop.place)}"
        if count in _DESIGNS:
            shares.append((int(loop.kind == _DESIGNS[count]), name))
        elif count == "inner_nodes":
            shares.append((loop.inner_nodes, name))
        elif count in _KINDS:
            shares.append((sum(slot.kind == _KINDS[count] for slot in loop.slots), name))
    shares.sort(key=lambda share: -share[0])
    return tuple(name if count in _DESIGNS else f"{name}: {n}" for n, name in shares if n)
