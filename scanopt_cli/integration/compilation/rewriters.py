"""The rewriters that PyTensor holds: they check whether to run, and only then import the passes.

Until then they cost nothing: this module imports neither the passes nor PyTensor's Scan.
"""

from __future__ import annotations

from pytensor.compile.mode import Mode, optdb
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter

from scanopt_cli.integration.compilation.blocks import innermost
from scanopt_cli.integration.compilation.compilation_stages import (
    CompilationStage,
    mode_of,
    query_of,
)


class Always(GraphRewriter):
    """Runs one stage of a pipeline on every graph with a loop that it is given."""

    def __init__(self, stage: CompilationStage) -> None:
        self.stage = stage

    def apply(self, fgraph: FunctionGraph) -> None:
        """Rewrite ``fgraph`` in place."""
        from scanopt_cli.integration.compilation.optimizing_stage import run_stage

        mode = mode_of(fgraph)
        # DebugMode compares the graph before and after each rewrite, and rewrites several times.
        if type(mode).__name__ != "DebugMode":
            run_stage(fgraph, self.stage, innermost(), mode, seals=_will_unseal(mode))


class WhenEnabled(Always):
    """Runs only inside of `scanopt_cli.enabled`, in modes that do not mention the tag."""

    def apply(self, fgraph: FunctionGraph) -> None:
        """Rewrite ``fgraph`` in place, in a block and if the mode does not mention the tag."""
        if innermost() is None:
            return
        query = query_of(mode_of(fgraph))
        # A mode that includes the tag has the other rewriter; one that excludes it wants none.
        if query is None or "scanopt" not in (*query.include, *query.exclude):
            super().apply(fgraph)


class Unseal(GraphRewriter):
    """Replaces sealed loops by Scans, see `scanopt_cli.integration.compilation.sealing`."""

    def apply(self, fgraph: FunctionGraph) -> None:
        """Unseal the loops of ``fgraph``, if any are sealed."""
        # Compared by name, because the module of the class imports PyTensor's Scan.
        if any(type(node.op).__name__ == "SealedScan" for node in fgraph.apply_nodes):
            from scanopt_cli.integration.compilation.sealing import unseal

            unseal(fgraph)


def _will_unseal(mode: Mode | None) -> bool:
    """Whether the mode runs `Unseal`, which restores the Scans."""
    query = query_of(mode)
    return query is None or any(isinstance(item, Unseal) for item in optdb.query(query))
