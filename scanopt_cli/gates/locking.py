"""What a lock file holds of a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scanopt_cli.diff.budgets import counted
from scanopt_cli.equivalence.hashing import hash_graph
from scanopt_cli.gates.comparing import written_by
from scanopt_cli.gates.lock_file import LockedFinding, LockedGraph
from scanopt_cli.ir.graph import Graph
from scanopt_cli.rules.graph_checking import check


def locked_graph(
    graph: Graph,
    sha256: str,
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    budget: Mapping[str, int] | None = None,
) -> LockedGraph:
    """Return what is known of a graph, of a file with that digest of its content.

    Rules are those of `check` with ``select`` and ``ignore``, and the ``budget`` is its own.
    """
    digest = hash_graph(graph)
    found = check(graph, select=select, ignore=ignore).findings
    findings = [
        LockedFinding(rule=f.code, loop=f.loop, place=f.place, key=f.key, text=f.text)
        for f in found
    ]
    findings.sort(key=lambda f: (f.rule, f.loop, f.place or "", f.key))
    return LockedGraph(
        digest=None if digest.opaque else digest.digest,
        sha256=sha256,
        by=written_by(),
        counts={name: count for name, count in counted(graph).items() if count},
        budget=budget or {},
        findings=tuple(findings),
    )
