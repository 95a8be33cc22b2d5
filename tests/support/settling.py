"""Whether what `optimize` wrote stays as it is when it is optimized again."""

from __future__ import annotations

from collections.abc import Sequence

import scanopt_cli as so
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.pipeline.contract import Pass
from scanopt_cli.pipeline.optimizing import OptimizeResult


def assert_settled(done: OptimizeResult, passes: str | Sequence[Pass]) -> None:
    """Check that ``passes``, which ``done`` is the result of, leave its graph as it is."""
    again = so.optimize(done.graph, passes)
    assert digest(again.graph.fgraph) == digest(done.graph.fgraph)
    assert again.after == done.after
    assert [run.name for run in again.passes if run.changed] == []
    assert not again.changed
