"""The places in a compilation where passes run, and the mode that it is for."""

from __future__ import annotations

from enum import StrEnum

from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.db import RewriteDatabaseQuery


class CompilationStage(StrEnum):
    """The two places in a compilation where passes run."""

    LOOPS = "loops"
    TRIMS = "trims"


def mode_of(fgraph: FunctionGraph) -> Mode | None:
    """Return the mode of the compilation in progress; ``None`` if unknown."""
    mode = getattr(fgraph, "_compile_mode", None)
    return None if mode is None else get_mode(mode)


def query_of(mode: Mode | None) -> RewriteDatabaseQuery | None:
    """Return the query by which ``mode`` selects from ``optdb``; ``None`` if unknown."""
    query = getattr(mode, "_optimizer", None)
    return query if isinstance(query, RewriteDatabaseQuery) else None
