"""Statistics of a derivative: raw, after PyTensor's rewrites, after scanopt's, after both."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import inf
from time import perf_counter, thread_time
from typing import Any

from pytensor.compile.mode import Mode, get_default_mode
from pytensor.graph.features import Feature
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter

from scanopt_cli.analysis.statistics import Statistics, statistics
from scanopt_cli.analysis.term_counts import MOST_TERMS, most_terms
from scanopt_cli.autodiff.choices import Stage
from scanopt_cli.errors import ScanoptError
from scanopt_cli.ir.graph import Graph
from scanopt_cli.pipeline.optimizing import optimize
from scanopt_cli.presentation import Presented

_PRESET = "grad"
_TOO_LONG = "PyTensor's rewrites take too long"
_TOO_LONG_HINT = "a stage that is asked for by name has no time limit"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StageReport(Presented):
    """The statistics of a graph after a stage, and how many seconds the stage took by the clock."""

    stage: Stage
    statistics: Statistics
    seconds: float


class RewriteTimeoutError(ScanoptError):
    """PyTensor does not rewrite a graph in time."""


@dataclass
class StagedGraph:
    """A graph of which copies go through stages; scanopt's passes run once for all of them."""

    graph: Graph

    @cached_property
    def _cleaned(self) -> tuple[Graph, float]:
        """The graph after scanopt's passes, and how many seconds they took."""
        start = perf_counter()
        return optimize(self.graph, _PRESET).graph, perf_counter() - start

    def after(self, stage: Stage, deadline: float = inf) -> StageReport:
        """Apply ``stage`` to a copy of the graph and collect its statistics; nothing is compiled.

        Raises
        ------
        RewriteTimeoutError
            If PyTensor has not rewritten the graph when `time.thread_time` passes ``deadline``, or
            if it would hang.
        """
        if thread_time() > deadline:
            raise RewriteTimeoutError(_TOO_LONG, hint=_TOO_LONG_HINT)
        graph, seconds = self.graph, 0.0
        if stage in (Stage.SCANOPT, Stage.BOTH):
            graph, seconds = self._cleaned
        start = perf_counter()
        work = graph.copy().fgraph
        if stage in (Stage.PYTENSOR, Stage.BOTH):
            rewrite_as_pytensor(work, deadline, get_default_mode().excluding("inplace"))
        found = statistics(work)
        seconds += perf_counter() - start
        return StageReport(stage=stage, statistics=found, seconds=round(seconds, 3))


class _DeadlinePassed(BaseException):
    """Not an `Exception`, because PyTensor goes on after those."""


class _Deadline(Feature):
    """Stops the rewriting of a graph or body at its first change after ``deadline``."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline

    def on_change_input(self, *_: object, **__: object) -> None:
        if thread_time() > self._deadline:
            raise _DeadlinePassed


class _Timed(GraphRewriter):
    """The rewrites of a mode, which stop at a deadline."""

    def __init__(self, rewriter: GraphRewriter, deadline: float) -> None:
        self._rewriter = rewriter
        self._deadline = deadline

    def add_requirements(self, fgraph: FunctionGraph) -> None:
        self._rewriter.add_requirements(fgraph)
        fgraph.attach_feature(_Deadline(self._deadline))

    def apply(self, fgraph: FunctionGraph, *args: Any, **kwargs: Any) -> Any:
        return self._rewriter.apply(fgraph, *args, **kwargs)


class _TimedMode(Mode):
    """A mode whose rewrites stop at a deadline: PyTensor asks it for those of each body, too."""

    def __init__(self, mode: Mode, deadline: float) -> None:
        super().__init__(mode.linker, mode.provided_optimizer, mode.optdb)  # type: ignore[has-type]
        self._deadline = deadline

    @property
    def optimizer(self) -> GraphRewriter:
        """What PyTensor runs on a graph, and on each body in it."""
        return _Timed(super().optimizer, self._deadline)


def rewrite_as_pytensor(work: FunctionGraph, deadline: float, mode: Mode) -> None:
    """Apply the rewrites of a mode.

    Raises
    ------
    RewriteTimeoutError
        If PyTensor has not rewritten the graph when `time.thread_time` passes ``deadline``, or if
        it would hang.
    """
    if most_terms(work) > MOST_TERMS:
        raise RewriteTimeoutError(
            f"PyTensor does not simplify its sum or product of more than {MOST_TERMS:,} terms"
        )
    with _quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            _TimedMode(mode, deadline).optimizer.rewrite(work)
        except _DeadlinePassed:
            raise RewriteTimeoutError(_TOO_LONG, hint=_TOO_LONG_HINT) from None


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
