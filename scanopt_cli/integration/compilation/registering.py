"""The entries in PyTensor's ``optdb``: where in a compilation the passes run.

Its rewriters check whether to run, and only then import the passes. Until then they cost nothing:
this module imports neither the passes nor PyTensor's Scan.

The passes run at two positions, because many of them do not apply to a loop with trimmed buffers:

* Passes that do not trim run before PyTensor's first rewrite of loops (``scan_eqopt1``, 0.05), as
  soon as OpFromGraphs are inlined (-0.01) and equal nodes merged (0). A compiled graph is not
  differentiated any more, so mit_mots may become plain states. The rest of PyTensor's rewrites,
  which take most of the compilation time, then work on fewer and smaller loops. After these passes
  the loops are sealed: PyTensor's own rewrites of loops, some of which are unsound, do not see
  them.
* Passes that trim run once PyTensor has simplified the graph around the loops, after the positions
  of its own trimming (1.611 and 1.612). The loops are unsealed right before.

Before PyTensor moves branches into functions (48.9), conditionals that share nodes are merged, and
behind that, Numba is told how what guards return lies in memory. And before PyTensor has nodes work
in place (from 50.1 on, and 95 for conditionals), it is kept from computing branches for them that
are not taken.
"""

from __future__ import annotations

import logging
import sys
from functools import cache
from importlib import import_module

from pytensor.compile.mode import Mode, optdb
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.graph.rewriting.db import RewriteDatabaseQuery

# The module, not names of it: PyTensor is imported, and so is this module, while it is executed, if
# a program's first use of scanopt is `enabled`.
from scanopt_cli.integration.compilation import blocks
from scanopt_cli.integration.compilation.compilation_stages import (
    TAG,
    TAGS_OF_MODES,
    CompilationStage,
    has_loops,
    mode_of,
    note_failure,
    query_of,
)

_POSITIONS = {CompilationStage.LOOPS: 0.02, CompilationStage.TRIMS: 1.615}
_UNSEALING = 1.6145
_LAZY_BRANCHES = "scanopt_cli.ir.lazy_branches"
# What is done with branches, by functions of modules: before PyTensor's own merging of conditionals
# (48.8), behind its moving of branches, and behind its DestroyHandler (49.5). The module of guards
# imports Numba.
_OF_BRANCHES: tuple[tuple[float, str, str, tuple[str, ...]], ...] = (
    (48.75, _LAZY_BRANCHES, "merge_conditionals", (TAG, *TAGS_OF_MODES)),
    (48.95, "scanopt_cli.loop.codegen.guards", "keep_layouts", ("numba",)),
    (49.55, _LAZY_BRANCHES, "keep_branches_lazy", (TAG, *TAGS_OF_MODES)),
)
_CONDITIONALS, _NAMES = "pytensor.conditional.op", ("IfElse", "LazyIfElse")
_OPTIMIZING = "scanopt_cli.integration.compilation.optimizing_stage"


def register() -> None:
    """Add the passes to ``optdb``, once. An error is only a warning: PyTensor works without them.

    Each stage has two entries: one that the tag selects, and one that every mode with rewrites
    selects, which does nothing outside of `scanopt_cli.enabled`. Unsealing has one entry, which
    every mode selects that may have sealed anything.
    """
    try:
        for stage, position in _POSITIONS.items():
            name = f"{TAG}_{stage}"
            if name not in optdb:
                optdb.register(name, Always(stage), TAG, position=position)
                optdb.register(
                    f"{name}_when_enabled", WhenEnabled(stage), *TAGS_OF_MODES, position=position
                )
        if f"{TAG}_unseal" not in optdb:
            tags = (TAG, "minimum_compile", *TAGS_OF_MODES)
            optdb.register(f"{TAG}_unseal", Unseal(), *tags, position=_UNSEALING)
        for position, module, function, chosen_by in _OF_BRANCHES:
            name = f"{TAG}_{function}"
            if name not in optdb:
                optdb.register(name, OfBranches(module, function), *chosen_by, position=position)
    except Exception as error:
        logging.getLogger(__name__).warning("no passes are registered in PyTensor: %s", error)


class Always(GraphRewriter):
    """Runs one stage of a pipeline on every graph with a loop that it is given."""

    def __init__(self, stage: CompilationStage) -> None:
        self.stage = stage

    def apply(self, fgraph: FunctionGraph) -> None:
        """Rewrite ``fgraph`` in place."""
        # It looks for loops itself, but is not imported where there are none.
        if _OPTIMIZING not in sys.modules and not has_loops(fgraph):
            return
        from scanopt_cli.integration.compilation.optimizing_stage import run_stage

        mode = mode_of(fgraph)
        # DebugMode compares the graph before and after each rewrite, and rewrites several times.
        if type(mode).__name__ != "DebugMode":
            try:
                block = blocks.block_of(fgraph)
                run_stage(fgraph, self.stage, block, mode, seals=_will_unseal(mode))
            except Exception:
                note_failure(fgraph)
                raise


class WhenEnabled(Always):
    """Runs only inside of `scanopt_cli.enabled`, in modes that do not mention the tag."""

    def apply(self, fgraph: FunctionGraph) -> None:
        """Rewrite ``fgraph`` in place, in a block and if the mode does not mention the tag."""
        if blocks.innermost() is None:
            return
        query = query_of(mode_of(fgraph))
        # A mode that includes the tag has the other rewriter; one that excludes it wants none.
        if query is None or TAG not in (*query.include, *query.exclude):
            super().apply(fgraph)


class OfBranches(GraphRewriter):
    """Calls a function on the conditionals of every graph that uses the passes.

    It does so where there is no loop, too: the body of a loop may have a branch.
    """

    def __init__(self, module: str, function: str) -> None:
        self.module, self.function = module, function

    def apply(self, fgraph: FunctionGraph) -> None:
        """Rewrite the conditionals of ``fgraph``, in place."""
        mode = mode_of(fgraph)
        query = query_of(mode)
        if query is None or TAG in query.exclude or _CONDITIONALS not in sys.modules:
            return
        # Compared by name: a module that is called may be imported for nothing.
        if not any(type(node.op).__name__ in _NAMES for node in fgraph.apply_nodes):
            return
        if TAG in query.include or blocks.innermost() is not None:
            getattr(import_module(self.module), self.function)(fgraph, mode)


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
    if query is None or query.subquery or query.extra_rewrites:
        return query is None or _selects_unsealing(query)
    tags = (tuple(one or ()) for one in (query.include, query.require, query.exclude))
    return _is_unsealing(*tags, query.position_cutoff)


@cache
def _is_unsealing(
    include: tuple[str, ...], require: tuple[str, ...], exclude: tuple[str, ...], cutoff: float
) -> bool:
    """Whether modes of these tags run it: to ask takes milliseconds, for each stage and body."""
    return _selects_unsealing(
        RewriteDatabaseQuery(include, require, exclude, position_cutoff=cutoff)
    )


def _selects_unsealing(query: RewriteDatabaseQuery) -> bool:
    return any(isinstance(item, Unseal) for item in optdb.query(query))
