"""The result of a verification: plain data, for any renderer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from scanopt_cli.presentation import Presented


class Verdict(StrEnum):
    """The answer to "do the two graphs compute the same?"."""

    IDENTICAL = "identical"
    AGREES = "agrees"
    DIFFERS = "differs"
    COULD_NOT_RUN = "could_not_run"


class DifferenceKind(StrEnum):
    """What differs between two graphs, or between two evaluations on the same arguments."""

    VALUES = "values"
    SHAPE = "shape"
    DTYPE = "dtype"
    STATE = "state"
    ONLY_A_RAISES = "only_a_raises"
    ONLY_B_RAISES = "only_b_raises"
    REWRITE_FAILS = "rewrite_fails"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopAt:
    """A loop, and where it was written: ``model.py:41 in step``; ``None`` if that is not known."""

    name: str
    place: str | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Difference(Presented):
    """One output that differs in one run, or one run in which only one graph raises.

    Or a rewrite of PyTensor's that fails while the second graph is compiled, and not the first.

    Attributes
    ----------
    kind
        What differs. ``state`` is for outputs that are not arrays, such as generators.
    run
        Which run, counted from 0; ``None`` for a rewrite that fails.
    mode
        The mode that compiled the second graph; ``None`` if it was evaluated as it is.
    arguments
        A description of the run's arguments.
    output, name
        Position and name of the output; ``None`` if no single output is meant.
    where
        Index of the largest deviation within the output; ``()`` for a scalar.
    a, b
        The value, shape, dtype or error that each graph gives there, as text, exact for numbers.
    rewrite
        The name of the rewrite that fails, ``None`` for all else. Then ``b`` is its error.
    elements
        How many elements are out of tolerance.
    abs_error, rel_error
        Largest deviations over the elements that are finite on both sides; ``None`` if none is.
    loops
        The loops of the second graph that the output comes from: the first ones that the first
        graph does not compute, or else those nearest to the output.
    """

    kind: DifferenceKind
    run: int | None
    mode: str | None = None
    arguments: str
    a: str
    b: str
    output: int | None = None
    name: str | None = None
    where: tuple[int, ...] | None = None
    rewrite: str | None = None
    elements: int | None = None
    abs_error: float | None = None
    rel_error: float | None = None
    loops: tuple[LoopAt, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilationTimes:
    """What it took to compile one of two graphs by one mode, and to call it: wall time.

    Attributes
    ----------
    graph
        Which one: ``a`` or ``b``.
    mode
        The mode; ``plain`` if the graph was evaluated as it is.
    compiling
        The seconds that PyTensor took.
    first_call
        The seconds of the first call, in which Numba and JAX compile what PyTensor made for them;
        0 if there was none.
    later_calls
        The seconds of all other calls together.
    calls
        How many calls there were.
    """

    graph: str
    mode: str
    compiling: float = 0.0
    first_call: float = 0.0
    later_calls: float = 0.0
    calls: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationTimes:
    """How long a verification took: wall time.

    Attributes
    ----------
    seconds
        In all, the start of the child process included.
    compilations
        Of that, what it took to compile graphs and to call them. The rest is the start of the
        process, and drawing arguments and comparing values.
    """

    seconds: float
    compilations: tuple[CompilationTimes, ...] = ()

    @property
    def compiling(self) -> float:
        """The seconds of compilations and of first calls, in which Numba and JAX compile."""
        return sum(each.compiling + each.first_call for each in self.compilations)

    @property
    def running(self) -> float:
        """The seconds of all other calls."""
        return sum(each.later_calls for each in self.compilations)

    @classmethod
    def joined(cls, several: Iterable[VerificationTimes]) -> VerificationTimes:
        """Return the times of several verifications together."""
        seconds, found = 0.0, dict[tuple[str, str], CompilationTimes]()
        for one in several:
            seconds += one.seconds
            for more in one.compilations:
                key = more.graph, more.mode
                known = found.get(key, CompilationTimes(graph=more.graph, mode=more.mode))
                found[key] = CompilationTimes(
                    graph=more.graph,
                    mode=more.mode,
                    compiling=known.compiling + more.compiling,
                    first_call=known.first_call + more.first_call,
                    later_calls=known.later_calls + more.later_calls,
                    calls=known.calls + more.calls,
                )
        return cls(seconds=seconds, compilations=tuple(found.values()))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Verification(Presented):
    """Whether two graphs compute the same values, and on what evidence.

    Attributes
    ----------
    verdict
        ``identical``: the same bits in every run that could be evaluated; ``agrees``: the same
        within tolerance; ``differs``: see ``differences``; ``could_not_run``: see ``reason``.
    runs
        How many runs gave the same values.
    runs_tried
        How many runs were planned: recorded calls and drawn ones.
    differences
        What differs, one entry for each output, run and mode.
    reason
        Why no run, or not every run, could be evaluated and compared.
    modes
        The modes in which the second graph was compiled as well.
    notes
        Further findings, one sentence each: that a mode, as PyTensor compiles by it, changes the
        values of the first graph too.
    remarks
        How the comparison departs from the usual one: inputs that correspond by name, outputs too
        small to be compared.
    times
        How long it took; equal verifications may have taken different times.
    """

    verdict: Verdict
    runs: int
    runs_tried: int
    differences: tuple[Difference, ...] = ()
    reason: str | None = None
    modes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    times: VerificationTimes | None = field(default=None, compare=False)

    @property
    def ok(self) -> bool:
        """Whether the graphs agreed in the runs that were evaluated."""
        return self.verdict in (Verdict.IDENTICAL, Verdict.AGREES)
