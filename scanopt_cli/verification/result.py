"""What a verification found: plain data, ready for any renderer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The answer to "do the two graphs compute the same?"."""

    IDENTICAL = "identical"
    AGREES = "agrees"
    DIFFERS = "differs"
    COULD_NOT_RUN = "could_not_run"


class DifferenceKind(StrEnum):
    """In what two evaluations on the same arguments differ."""

    VALUES = "values"
    SHAPE = "shape"
    DTYPE = "dtype"
    STATE = "state"
    ONLY_A_RAISES = "only_a_raises"
    ONLY_B_RAISES = "only_b_raises"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One output that differs in one run, or one run that only one of the graphs survives.

    Attributes
    ----------
    kind
        In what the two differ. ``state`` is for outputs that are not arrays, such as generators.
    run
        Which run, counted from 0.
    mode
        The mode that compiled the second graph; ``None`` if it was evaluated as it is.
    arguments
        What the run was given, in words.
    output, name
        Position and name of the output; ``None`` if no single output is meant.
    where
        Index of the largest deviation within the output; ``()`` for a scalar.
    a, b
        What each graph gave there: the value, shape, dtype or error as text, exact for numbers.
    elements
        How many elements are out of tolerance.
    abs_error, rel_error
        Largest deviations over the elements that are finite on both sides; ``None`` if none is.
    """

    kind: DifferenceKind
    run: int
    mode: str | None = None
    arguments: str
    a: str
    b: str
    output: int | None = None
    name: str | None = None
    where: tuple[int, ...] | None = None
    elements: int | None = None
    abs_error: float | None = None
    rel_error: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Whether two graphs compute the same, and on what evidence.

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
        What differs, one entry an output and run.
    reason
        Why nothing, or not everything, could be evaluated.
    modes
        The modes in which the second graph was compiled as well.
    notes
        What else a reader should know, one sentence each: where PyTensor compiles the first graph
        to other values than it has, too.
    remarks
        How the graphs were compared, where it is not as one would expect: inputs that correspond by
        name, outputs too small to be compared.
    """

    verdict: Verdict
    runs: int
    runs_tried: int
    differences: tuple[Difference, ...] = ()
    reason: str | None = None
    modes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the graphs were shown to agree."""
        return self.verdict in (Verdict.IDENTICAL, Verdict.AGREES)
