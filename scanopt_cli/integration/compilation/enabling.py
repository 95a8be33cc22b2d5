"""`enabled`: run passes in every compilation inside a block of code, and record their effect."""

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
"""The pipeline if none is named: programs that wait for a compilation wait for gradients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """What the passes did to one compiled graph, or to the body of one of its loops.

    Attributes
    ----------
    before, after
        Statistics of the graph before and after the passes. This is the graph at the point where
        PyTensor would rewrite its loops, not the graph at the end of the compilation.
    passes
        What each pass did, in order.
    seconds
        Wall time of the passes, which is part of the compilation time.
    """

    before: Statistics
    after: Statistics
    passes: tuple[PassRun, ...]
    seconds: float


class Enabled:
    """What `enabled` yields: the passes, and a record of what they did.

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
        """The passes as the text of a pipeline."""
        return print_pipeline(self.passes)

    @property
    def compilations(self) -> tuple[Compilation, ...]:
        """What the passes did so far: one entry for each graph that they changed."""
        return tuple(self._compilations)

    @property
    def seconds(self) -> float:
        """Wall time of the passes so far, in the graphs that they changed."""
        return sum(done.seconds for done in self._compilations)

    def record(self, fgraph: FunctionGraph, done: Compilation) -> None:
        """Record what the passes did to ``fgraph``, joined with what they did to it before."""
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

    The passes run for every caller, thread and mode, with these exceptions: a mode that rewrites
    nothing (``Mode(..., optimizer=None)``) or only what its linker needs, DebugMode, and a mode
    that excludes the tag ``scanopt`` compile without them. Functions compiled inside the block keep
    their optimised graphs after it; the block has no other lasting effect.

    Blocks may be nested; the innermost applies, and ``passes="none"`` switches the passes off. A
    mode that includes the tag ``scanopt`` uses the passes of the innermost block; outside of all
    blocks it uses the preset ``grad``.

    PyTensor handles an error in a pass like an error in its own rewriters: it logs the error and
    compiles the graph as if the passes were not there, or raises the error, depending on
    ``pytensor.config.on_opt_error``.

    Parameters
    ----------
    passes
        A pipeline as text, a preset, or passes. The first pass that trims buffers and all passes
        after it run once PyTensor has simplified the graph around the loops; those before it run
        before PyTensor's first rewrite of loops.

    Yields
    ------
    Enabled
        The record of what the passes did, in ``compilations``. The logger ``scanopt_cli.compiling``
        reports the same as it happens: changes at INFO, what the passes kept and why at DEBUG.

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
