"""The ``with scanopt_cli.enabled():`` blocks that a program is in, and what they record.

They apply to the whole process, like PyTensor's own flags: a thread started inside a block compiles
with the passes too. Blocks of several threads may end in any order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pytensor.compile.debug import profiling
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.presentation import Presented, show
from scanopt_cli.remarks import RemarkKind

if TYPE_CHECKING:
    from scanopt_cli.analysis.statistics import Statistics
    from scanopt_cli.integration.compilation.left_loops import LoopLeft
    from scanopt_cli.integration.compilation.progress import Progress
    from scanopt_cli.pipeline.contract import Pass
    from scanopt_cli.pipeline.runner import PassRun
    from scanopt_cli.remarks import Remark

_TO_LOOPS = "scan-to-loop"
_TO_NUMBERS = "unroll-small"

DEFAULT = "loop"
"""The default pipeline: what programs compile under `enabled` is mostly gradients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSeconds:
    """Where the wall time of one compilation went, in seconds.

    The bodies of loops have no stages of their own: those of the graph around them include them.

    Attributes
    ----------
    passes
        The passes of scanopt.
    rewriting
        PyTensor's own rewriting.
    reading
        Reading from disk what another process has rewritten and compiled.
    linking
        What PyTensor makes of the rewritten graph, before the first call.
    writing
        Writing the code of the graph, when Numba compiles it: at the first call.
    numba
        What Numba does besides.
    llvm
        Machine code from LLVM, as far as Numba compiles it.
    """

    passes: float = 0.0
    rewriting: float = 0.0
    reading: float = 0.0
    linking: float = 0.0
    writing: float = 0.0
    numba: float = 0.0
    llvm: float = 0.0

    @property
    def total(self) -> float:
        """The sum of all stages."""
        return float(sum(getattr(self, item.name) for item in fields(self)))


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
    stages
        Where the seconds of the whole compilation went.
    """

    before: Statistics
    after: Statistics
    passes: tuple[PassRun, ...]
    seconds: float
    warnings: tuple[Remark, ...] = ()
    function: str | None = None
    place: str | None = None
    left: tuple[LoopLeft, ...] = ()
    stages: StageSeconds = field(default_factory=StageSeconds)

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


@dataclass(slots=True)
class Record:
    """What is known of a compilation so far; it is put together when it is asked for.

    Attributes
    ----------
    done
        What the passes did, or how to read what another process has noted of it.
    stages
        Where the seconds went; by default all to the passes.
    thread
        The thread that compiles.
    """

    done: Compilation | Callable[[], Compilation]
    stages: Callable[[], StageSeconds] | None = None
    thread: int = field(default_factory=threading.get_ident)

    def compilation(self) -> Compilation:
        """Return all of it."""
        if not isinstance(self.done, Compilation):
            self.done = self.done()
        if self.stages is None:
            return replace(self.done, stages=StageSeconds(passes=self.done.seconds))
        return replace(self.done, stages=self.stages())


class Enabled(Presented):
    """What `enabled` yields: the passes, which run in every compilation, and what they did.

    Parameters
    ----------
    passes
        The passes, or their pipeline as text, which is read when they are asked for.
    keeps
        Whether results are kept on disk for other processes, and read.
    progress
        What is told of compilations while they run; ``None`` if nothing is.
    """

    def __init__(
        self,
        passes: str | Sequence[Pass],
        *,
        keeps: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self._passes = passes
        self._is_default = passes == DEFAULT
        self.keeps = keeps
        self.progress = progress
        self._records: list[Record] = []
        self._before = _rewriting_seconds()
        self._at_end: float | None = None
        self._positions: WeakKeyDictionary[FunctionGraph, int] = WeakKeyDictionary()

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The passes."""
        if isinstance(self._passes, str):
            from scanopt_cli.pipeline.grammar import parse

            self._passes = parse(self._passes)
        return tuple(self._passes)

    @property
    def pipeline(self) -> str:
        """The passes as the text of a pipeline."""
        from scanopt_cli.pipeline.grammar import print_pipeline

        return print_pipeline(self.passes)

    def told_passes(self) -> tuple[str, frozenset[str]]:
        """Return the passes as text, and the modules that they are of, unless that is scanopt."""
        if self._is_default:
            return DEFAULT, frozenset()
        return self.pipeline, frozenset(type(item).__module__ for item in self.passes)

    @property
    def n_records(self) -> int:
        """The number of compilations so far."""
        return len(self._records)

    @property
    def compilations(self) -> tuple[Compilation, ...]:
        """What the passes did so far: one entry for each graph with loops that they ran on."""
        return tuple(record.compilation() for record in self._records)

    @property
    def seconds(self) -> float:
        """Wall time of the passes so far."""
        return sum(done.seconds for done in self.compilations)

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
        if self.progress is not None:
            self.progress.end()

    def knows(self, fgraph: FunctionGraph) -> bool:
        """Whether there is a record of ``fgraph`` already."""
        return fgraph in self._positions

    def record_of(self, fgraph: FunctionGraph) -> Record | None:
        """Return what is known of the compilation of ``fgraph``."""
        position = self._positions.get(fgraph)
        return None if position is None else self._records[position]

    def records(self, start: int = 0) -> list[Record]:
        """Return the records from ``start`` on that this thread has added."""
        return [one for one in self._records[start:] if one.thread == threading.get_ident()]

    def record(self, fgraph: FunctionGraph, done: Compilation) -> None:
        """Record what the passes did to ``fgraph``, joined with what they did to it before."""
        known = self.record_of(fgraph)
        if known is None:
            self.add(fgraph, Record(done))
            return
        earlier = known.compilation()
        known.done = replace(
            done,
            before=earlier.before,
            passes=earlier.passes + done.passes,
            seconds=earlier.seconds + done.seconds,
            warnings=earlier.warnings + done.warnings,
            function=earlier.function,
            place=earlier.place,
        )

    def add(self, fgraph: FunctionGraph | None, record: Record) -> None:
        """Add the record of the compilation of ``fgraph``, or of a body that is not known here."""
        with _lock:
            if fgraph is not None:
                self._positions[fgraph] = len(self._records)
            self._records.append(record)


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
