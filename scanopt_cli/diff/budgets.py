"""Budgets: upper limits on the counts of a graph, and the Scans that exceed them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path

from scanopt_cli.analysis.inspection import ScanReport, inspect_graph
from scanopt_cli.analysis.statistics import COUNTS, buffer_formula, statistics
from scanopt_cli.errors import ScanoptError
from scanopt_cli.ir.graph import Graph, GraphLike, as_graph
from scanopt_cli.serialization.pyproject import table_in_pyproject
from scanopt_cli.text import comma_separated

_SHORT = {"outer": "outer_nodes", "inner": "inner_nodes"}
_KINDS = {"seqs": "seq", "non_seqs": "non_seq"}
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
    """A count over its limit, and the Scans that make it up, each as ``path/name: share``."""

    count: str
    limit: int
    actual: int
    scans: tuple[str, ...]

    @property
    def text(self) -> str:
        """The violation as one line."""
        named = f" ({', '.join(self.scans)})" if self.scans else ""
        return f"{self.count} is {self.actual}, the budget is {self.limit}{named}"


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


def _blamed(scans: tuple[ScanReport, ...], count: str) -> tuple[str, ...]:
    """Return the Scans that contribute to a count, largest share first."""
    if count == "buffer_bytes":  # formulas have no order
        titles = ("/".join((*scan.path, scan.name)) for scan in scans)
        named = zip(titles, scans, strict=True)
        return tuple(f"{title}: {scan.bytes}" for title, scan in named if scan.bytes != "0")
    shares = []
    for scan in scans:
        name = "/".join((*scan.path, scan.name))
        if count == "scans":
            shares.append((1, name))
        elif count == "inner_nodes":
            shares.append((scan.inner_nodes, name))
        else:
            kind = _KINDS.get(count, count)
            shares.append((sum(slot.kind == kind for slot in scan.slots), name))
    shares.sort(key=lambda share: -share[0])
    return tuple(
        name if count == "scans" else f"{name}: {share}" for share, name in shares if share
    )
