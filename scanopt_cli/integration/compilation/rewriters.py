"""The rewriters that PyTensor holds: they check whether to run, and only then import the passes.

Until then they cost nothing: this module imports neither the passes nor PyTensor's Scan.
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

    PyTensor handles an exception like one of its own rewriters: it logs the error and goes on with
    the unchanged graph, or raises the error, depending on ``pytensor.config.on_opt_error``.
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


def mode_of(fgraph: FunctionGraph) -> Mode | None:
    """Return the mode of the compilation in progress; ``None`` if unknown."""
    mode = getattr(fgraph, "_compile_mode", None)
    return None if mode is None else get_mode(mode)


def query_of(mode: Mode | None) -> RewriteDatabaseQuery | None:
    """Return the query by which ``mode`` selects from ``optdb``; ``None`` if unknown."""
    query = getattr(mode, "_optimizer", None)
    return query if isinstance(query, RewriteDatabaseQuery) else None
