"""The rewriters that PyTensor holds: they look whether to do anything, and import what does it.

Until they run, they cost nothing: neither the passes nor PyTensor's Scan are imported from here.
"""

from __future__ import annotations

from enum import StrEnum

from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.graph.rewriting.db import RewriteDatabaseQuery

from scanopt_cli.integration.compilation.blocks import innermost


class CompilationStage(StrEnum):
    """The two places in a compilation where passes run."""

    LOOPS = "loops"
    TRIMS = "trims"


class Always(GraphRewriter):
    """Runs one stage of a pipeline on every graph with a loop that it is given.

    An exception is for PyTensor to handle, as one of its own rewriters: it logs the error and goes
    on with the graph as it was, or raises it, by ``pytensor.config.on_opt_error``.
    """

    def __init__(self, stage: CompilationStage) -> None:
        self.stage = stage

    def apply(self, fgraph: FunctionGraph) -> None:
        """Rewrite ``fgraph`` in place."""
        from scanopt_cli.integration.compilation.optimizing_stage import run_stage

        mode = mode_of(fgraph)
        # DebugMode compares the graph before and after each rewrite, and rewrites several times.
        if type(mode).__name__ != "DebugMode":
            run_stage(fgraph, self.stage, innermost(), mode)


class WhenEnabled(Always):
    """Runs inside of `scanopt_cli.enabled` only, and where the mode does not say it itself."""

    def apply(self, fgraph: FunctionGraph) -> None:
        """Rewrite ``fgraph`` in place, if that was asked for."""
        if innermost() is None:
            return
        query = query_of(mode_of(fgraph))
        # A mode that includes the tag has the other rewriter; one that excludes it wants none.
        if query is None or "scanopt" not in (*query.include, *query.exclude):
            super().apply(fgraph)


class Unseal(GraphRewriter):
    """Gives PyTensor its Scans back, see `scanopt_cli.integration.compilation.sealing`."""

    def apply(self, fgraph: FunctionGraph) -> None:
        """Unseal the loops of ``fgraph``, if any are sealed."""
        # By its name, for its module imports PyTensor's Scan.
        if any(type(node.op).__name__ == "SealedScan" for node in fgraph.apply_nodes):
            from scanopt_cli.integration.compilation.sealing import unseal

            unseal(fgraph)


def mode_of(fgraph: FunctionGraph) -> Mode | None:
    """Return the mode of the compilation in progress, where known."""
    mode = getattr(fgraph, "_compile_mode", None)
    return None if mode is None else get_mode(mode)


def query_of(mode: Mode | None) -> RewriteDatabaseQuery | None:
    """Return what ``mode`` takes from ``optdb``, where known."""
    query = getattr(mode, "_optimizer", None)
    return query if isinstance(query, RewriteDatabaseQuery) else None
