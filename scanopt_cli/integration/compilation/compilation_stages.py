"""The places in a compilation where passes run, and the mode that it is for."""

from __future__ import annotations

import sys
from enum import StrEnum
from weakref import WeakSet

from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.db import RewriteDatabaseQuery

TAG = "scanopt"
"""Modes that include this tag use the passes, and those that exclude it do not."""

TAGS_OF_MODES = ("fast_run", "fast_compile")
"""The tags of the modes that rewrite more than their linker needs, which use the passes too."""

_LOOPS = frozenset({"pytensor.scan.op", "scanopt_cli.loop.operators"})
"""The modules of loops."""

_failed: WeakSet[FunctionGraph] = WeakSet()


class CompilationStage(StrEnum):
    """The two places in a compilation where passes run."""

    LOOPS = "loops"
    TRIMS = "trims"


def mode_of(fgraph: FunctionGraph) -> Mode | None:
    """Return the mode of the compilation in progress; ``None`` if unknown."""
    mode = getattr(fgraph, "_compile_mode", None)
    return None if mode is None else get_mode(mode)


def uses_passes(mode: Mode) -> bool:
    """Whether the passes of a block run when a graph is compiled for ``mode``."""
    query = query_of(mode)
    # DebugMode compares the graph before and after each rewrite, and rewrites several times.
    if query is None or TAG in query.exclude or type(mode).__name__ == "DebugMode":
        return False
    return TAG in query.include or any(tag in query.include for tag in TAGS_OF_MODES)


def has_loops(fgraph: FunctionGraph) -> bool:
    """Whether there is a loop in a graph or in the graphs inside: a Scan, or one of scanopt's.

    Without their modules there is none, and they are not imported to ask.
    """
    if not _LOOPS & sys.modules.keys():
        return False
    from pytensor.scan.op import Scan

    from scanopt_cli.ir.inner_graphs import core_op, walk
    from scanopt_cli.ir.slots import HasSlots

    return any(isinstance(core_op(node.op), Scan | HasSlots) for node in walk(fgraph))


def note_failure(fgraph: FunctionGraph) -> None:
    """Note that a pass failed on ``fgraph``. PyTensor compiles it without the passes."""
    _failed.add(fgraph)


def has_failed(fgraph: FunctionGraph) -> bool:
    """Whether a pass failed on ``fgraph``."""
    return fgraph in _failed


def query_of(mode: Mode | None) -> RewriteDatabaseQuery | None:
    """Return the query by which ``mode`` selects from ``optdb``; ``None`` if unknown."""
    query = getattr(mode, "_optimizer", None)
    return query if isinstance(query, RewriteDatabaseQuery) else None
