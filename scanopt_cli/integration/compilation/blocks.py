"""The ``with scanopt_cli.enabled():`` blocks that a program is in, and what they record.

They apply to the whole process, like PyTensor's own flags: a thread started inside a block compiles
with the passes too. Blocks of several threads may end in any order.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pytensor.compile.debug import profiling
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.presentation import Presented, show
from scanopt_cli.remarks import RemarkKind

if TYPE_CHECKING:
    from scanopt_cli.analysis.statistics import Statistics
    from scanopt_cli.integration.compilation.left_loops import LoopLeft
    from scanopt_cli.pipeline.contract import Pass
    from scanopt_cli.pipeline.runner import PassRun
    from scanopt_cli.remarks import Remark

_TO_LOOPS = "scan-to-loop"
_TO_NUMBERS = "unroll-small"

DEFAULT = "loop"
"""The default pipeline: what programs compile under `enabled` is mostly gradients."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Compilation(Presented):
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
    warnings
        Likely mistakes in the graph: loops of which every step draws the same random numbers. They
        are Python warnings as well.
    function
        The name of the function that is compiled, or what the program asked PyMC for
        (``logp_dlogp``), if there is one.
    place
        The line of the program that has it compiled, ``model.py:41 in fit``, if that is known.
    left
        The loops after the passes, with what a step of each computes.
    """

    before: Statistics
    after: Statistics
    passes: tuple[PassRun, ...]
    seconds: float
    warnings: tuple[Remark, ...] = ()
    function: str | None = None
    place: str | None = None
    left: tuple[LoopLeft, ...] = ()

    def why(self, loop: LoopLeft) -> tuple[Remark, ...]:
        """Return why passes left ``loop`` a Scan, or operations of its step on arrays."""
        return tuple(
            remark
            for run in self.passes
            if run.name == (_TO_LOOPS if loop.design == "Scan" else _TO_NUMBERS)
            for remark in run.remarks
            if remark.kind is RemarkKind.MISSED
            and remark.scan == loop.name
            and (remark.place is None or loop.place is None or remark.place == loop.place)
        )


class Enabled(Presented):
    """What `enabled` yields: the passes, which run in every compilation, and what they did."""

    def __init__(self, passes: Sequence[Pass]) -> None:
        self.passes = tuple(passes)
        self._compilations: list[Compilation] = []
        self._before = _rewriting_seconds()
        self._at_end: float | None = None
        self._positions: WeakKeyDictionary[FunctionGraph, int] = WeakKeyDictionary()

    @property
    def pipeline(self) -> str:
        """The passes as the text of a pipeline."""
        from scanopt_cli.pipeline.grammar import print_pipeline

        return print_pipeline(self.passes)

    @property
    def compilations(self) -> tuple[Compilation, ...]:
        """What the passes did so far: one entry for each graph with loops that they ran on."""
        return tuple(self._compilations)

    @property
    def seconds(self) -> float:
        """Wall time of the passes so far."""
        return sum(done.seconds for done in self._compilations)

    @property
    def rewriting_seconds(self) -> float:
        """Wall time in which PyTensor rewrote graphs in the block so far, with and without loops.

        The passes are part of it. What a backend does at the first call of a function is not.
        """
        now = _rewriting_seconds() if self._at_end is None else self._at_end
        return now - self._before

    def report(self) -> None:
        """Print the loops of each compilation before and after, the time, and what is left.

        That is what a step of each loop still computes on arrays, or why a loop stays a Scan.
        """
        show(self)

    def end(self) -> None:
        """Let no more time count."""
        self._at_end = _rewriting_seconds()

    def knows(self, fgraph: FunctionGraph) -> bool:
        """Whether there is a record of ``fgraph`` already."""
        return fgraph in self._positions

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
            warnings=earlier.warnings + done.warnings,
            function=earlier.function,
            place=earlier.place,
        )


def _rewriting_seconds() -> float:
    return float(profiling.total_graph_rewrite_time)


_blocks: list[Enabled] = []
_lock = threading.Lock()


@contextmanager
def entered(block: Enabled) -> Iterator[Enabled]:
    """Make ``block`` the innermost one, until it is left or another is entered."""
    with _lock:
        _blocks.append(block)
    try:
        yield block
    finally:
        block.end()
        with _lock:
            _blocks[:] = [other for other in _blocks if other is not block]


def block_of(fgraph: FunctionGraph) -> Enabled | None:
    """Return the block that has a record of ``fgraph``, or else the innermost one.

    A block of another thread may have been entered while ``fgraph`` is compiled.
    """
    with _lock:
        knowing = (block for block in _blocks if block.knows(fgraph))
        return next(knowing, _blocks[-1] if _blocks else None)


def innermost() -> Enabled | None:
    """Return the block that was entered last; ``None`` outside of all blocks."""
    with _lock:
        return _blocks[-1] if _blocks else None
