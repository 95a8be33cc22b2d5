"""Statistics of a derivative: raw, after PyTensor's rewrites, after scanopt's, after both."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from time import perf_counter

from pytensor.compile.mode import get_default_mode
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.analysis.statistics import Statistics, statistics
from scanopt_cli.errors import GradientError
from scanopt_cli.ir.graph import Graph
from scanopt_cli.passes.simplify import MOST_TERMS, most_terms
from scanopt_cli.pipeline.optimizing import optimize

_PRESET = "grad"


class Stage(StrEnum):
    """The rewrites that a graph goes through before its statistics are collected.

    ``raw``: none; these statistics are always collected. ``pytensor``: the rewrites of the current
    mode, without those that work in place, which change no counts. ``scanopt``: `optimize` with the
    preset ``grad``. ``both``: ``scanopt``, then ``pytensor``. Compare ``pytensor`` with ``both``:
    PyTensor fuses elementwise nodes, which scanopt leaves to it.
    """

    RAW = "raw"
    PYTENSOR = "pytensor"
    SCANOPT = "scanopt"
    BOTH = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReport:
    """The statistics of a graph after a stage, and how many seconds the stage took."""

    stage: Stage
    statistics: Statistics
    seconds: float


def staged(stage: Stage, graph: Graph) -> StageReport:
    """Apply ``stage`` to a copy of ``graph`` and collect its statistics; nothing is compiled.

    Raises
    ------
    GradientError
        If PyTensor would not rewrite the graph in time.
    """
    start = perf_counter()
    cleans = stage in (Stage.SCANOPT, Stage.BOTH)
    work = (optimize(graph, _PRESET).graph if cleans else graph.copy()).fgraph
    if stage in (Stage.PYTENSOR, Stage.BOTH):
        _rewrite(work)
    return StageReport(
        stage=stage, statistics=statistics(work), seconds=round(perf_counter() - start, 3)
    )


def _rewrite(work: FunctionGraph) -> None:
    """Apply the rewrites of the current mode, without those that work in place.

    Raises
    ------
    GradientError
        If a sum or product has too many terms for the rewrites to end in time.
    """
    if most_terms(work) > MOST_TERMS:
        raise GradientError(
            f"a sum or product of it has more than {MOST_TERMS:,} terms, "
            "which PyTensor does not simplify in time",
            hint="count it with --stage raw",
        )
    mode = get_default_mode().excluding("inplace")
    with _quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mode.optimizer.rewrite(work)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep PyTensor from logging that a rewrite failed and was skipped, which is harmless."""
    logger = logging.getLogger("pytensor")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
