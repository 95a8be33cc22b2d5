"""`enabled`: the passes in every compilation of a block of code, and what they did there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from pytensor.graph.fg import FunctionGraph

from scanopt_cli.analysis.statistics import Statistics
from scanopt_cli.integration.compilation.blocks import enter, leave
from scanopt_cli.integration.compilation.registering import register
from scanopt_cli.pipeline.contract import Pass
from scanopt_cli.pipeline.grammar import parse, print_pipeline
from scanopt_cli.pipeline.runner import PassRun

DEFAULT = "grad"
"""The pipeline where none is named: programs that wait for a compilation wait for gradients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """What the passes did to one graph that was compiled, or to the body of one of its loops.

    Attributes
    ----------
    before, after
        What was in the graph before and after: the graph as PyTensor was about to rewrite its
        loops, not as it was compiled in the end.
    passes
        What each pass did, in order.
    seconds
        Wall time that all of it took, which is part of the time of the compilation.
    """

    before: Statistics
    after: Statistics
    passes: tuple[PassRun, ...]
    seconds: float


class Enabled:
    """What `enabled` yields.

    Attributes
    ----------
    passes
        The passes that run in every compilation.
    """

    def __init__(self, passes: Sequence[Pass]) -> None:
        self.passes = tuple(passes)
        self._compilations: list[Compilation] = []
        self._positions: WeakKeyDictionary[FunctionGraph, int] = WeakKeyDictionary()

    @property
    def pipeline(self) -> str:
        """The passes as text."""
        return print_pipeline(self.passes)

    @property
    def compilations(self) -> tuple[Compilation, ...]:
        """What was done so far, one entry for each graph in which something changed."""
        return tuple(self._compilations)

    @property
    def seconds(self) -> float:
        """Wall time that the passes took so far, where they changed anything."""
        return sum(done.seconds for done in self._compilations)

    def record(self, fgraph: FunctionGraph, done: Compilation) -> None:
        """Add what was done to ``fgraph``, to what was done to it before."""
        position = self._positions.get(fgraph)
        if position is None:
            self._positions[fgraph] = len(self._compilations)
            self._compilations.append(done)
            return
        earlier = self._compilations[position]
        self._compilations[position] = replace(
            done,
            before=earlier.before,
            passes=earlier.passes + done.passes,
            seconds=earlier.seconds + done.seconds,
        )


@contextmanager
def enabled(passes: str | Sequence[Pass] = DEFAULT) -> Iterator[Enabled]:
    """Run ``passes`` in every compilation inside of the ``with`` block.

    ::

        with scanopt_cli.enabled() as done:
            trace = pm.sample()
        for compilation in done.compilations:
            print(compilation.before.scans, "->", compilation.after.scans)

    It makes no difference who compiles, in which thread, and in which mode, with these exceptions:
    a mode that rewrites nothing (``Mode(..., optimizer=None)``), or only what its linker needs,
    stays as it is, and so do DebugMode and one that excludes the tag ``scanopt``. Functions that
    are compiled inside stay as they are after the block; nothing else does.

    Blocks may be nested; the innermost counts, and ``passes="none"`` switches off. A mode that
    includes the tag ``scanopt`` uses the passes of the innermost block, outside of all blocks the
    preset ``grad``.

    An error in a pass is treated as PyTensor treats one in its own rewriters: it is logged, and the
    graph is compiled as if the passes were not there, or it is raised, if
    ``pytensor.config.on_opt_error`` says so.

    Parameters
    ----------
    passes
        A pipeline as text, a preset, or passes. Those that trim buffers, and all behind them, run
        when PyTensor has simplified the graph around the loops, the others before its first rewrite
        of loops.

    Yields
    ------
    Enabled
        The record of what was done, in ``compilations``. The logger ``scanopt_cli.compiling`` tells
        the same while it happens: changes at INFO, what was left alone and why at DEBUG.

    Raises
    ------
    PassError
        If the pipeline is malformed.
    """
    block = Enabled(parse(passes) if isinstance(passes, str) else passes)
    register()
    enter(block)
    try:
        yield block
    finally:
        leave(block)
