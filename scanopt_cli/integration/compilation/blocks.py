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

from pytensor.graph.fg import FunctionGraph

from scanopt_cli.presentation import Presented

if TYPE_CHECKING:
    from scanopt_cli.analysis.statistics import Statistics
    from scanopt_cli.pipeline.contract import Pass
    from scanopt_cli.pipeline.runner import PassRun
    from scanopt_cli.remarks import Remark

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
    """

    before: Statistics
    after: Statistics
    passes: tuple[PassRun, ...]
    seconds: float
    warnings: tuple[Remark, ...] = ()


class Enabled(Presented):
    """What `enabled` yields: the passes, which run in every compilation, and what they did."""

    def __init__(self, passes: Sequence[Pass]) -> None:
        self.passes = tuple(passes)
        self._compilations: list[Compilation] = []
        self._positions: WeakKeyDictionary[FunctionGraph, int] = WeakKeyDictionary()

    @property
    def pipeline(self) -> str:
        """The passes as the text of a pipeline."""
        from scanopt_cli.pipeline.grammar import print_pipeline

        return print_pipeline(self.passes)

    @property
    def compilations(self) -> tuple[Compilation, ...]:
        """What the passes did so far: one entry for each graph that they changed or warn of."""
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
            warnings=earlier.warnings + done.warnings,
        )


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
        with _lock:
            _blocks[:] = [other for other in _blocks if other is not block]


def innermost() -> Enabled | None:
    """Return the block that was entered last; ``None`` outside of all blocks."""
    with _lock:
        return _blocks[-1] if _blocks else None
