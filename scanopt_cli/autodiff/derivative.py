"""The result of `grad`: the graph of each order, with its statistics and its pedigree."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from scanopt_cli.analysis.statistics import Statistics
from scanopt_cli.autodiff.candidates import Candidate
from scanopt_cli.autodiff.choices import Strategy
from scanopt_cli.autodiff.pedigree.pedigree import Pedigree
from scanopt_cli.autodiff.stages import StageReport
from scanopt_cli.ir.graph import Graph
from scanopt_cli.presentation import Presented
from scanopt_cli.verification.result import Difference, VerificationTimes


class Outcome(StrEnum):
    """The outcome of a check; ``NOT_CHECKED`` says nothing about whether the values are right."""

    AGREES = "agrees"
    DIFFERS = "differs"
    NOT_CHECKED = "not_checked"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Check(Presented):
    """How the values of a derivative compare with those of an independent computation.

    Attributes
    ----------
    outcome
        Whether the values agree.
    against
        The name of the independent computation.
    runs, runs_tried
        How many runs on random arguments agree, and how many were tried.
    reason
        Why nothing, or not everything, could be compared; or where the derivative raises although
        the independent computation gives values.
    differences
        The differences in value.
    modes
        The modes that also compiled the derivative for the check.
    seconds
        Duration of the check.
    times
        Of that, how long graphs were compiled and called; equal checks may have taken different
        times.
    """

    outcome: Outcome
    against: str
    runs: int = 0
    runs_tried: int = 0
    reason: str | None = None
    differences: tuple[Difference, ...] = ()
    modes: tuple[str, ...] = ()
    seconds: float = 0.0
    times: VerificationTimes | None = field(default=None, compare=False)

    def __str__(self) -> str:
        runs = f"{self.runs} of {self.runs_tried} runs"
        match self.outcome:
            case Outcome.AGREES:
                text = f"agrees with {self.against} on {runs}"
                text += f", compiled by {', '.join(self.modes)} as well" if self.modes else ""
                text += f" (in {self.seconds:.1f} s)"
                return f"{text}; {self.reason}" if self.reason else text
            case Outcome.DIFFERS:
                first = self.differences[0]
                return (
                    f"differs from {self.against}: {first.b} instead of {first.a} "
                    f"in run {first.run} ({first.arguments}"
                    f"{'' if first.mode is None else f', compiled by {first.mode}'})"
                )
        return f"not checked: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OrderReport(Presented):
    """The derivative of one order; order 0 is the differentiated output itself.

    Attributes
    ----------
    order
        The order of the derivative.
    statistics
        The statistics of its graph as built.
    stages
        The statistics after each further stage that was asked for.
    pedigree
        The origins of the Scans of its graph.
    graph
        Its graph, with the inputs of the original. The outputs are the derivatives, one for each
        input in ``wrt``; for order 0 the differentiated output.
    """

    order: int
    statistics: Statistics
    stages: tuple[StageReport, ...] = ()
    pedigree: Pedigree
    graph: Graph = field(repr=False, metadata={"as_json": False})


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Derivative(Presented):
    """The derivatives of one output of a graph, from order 0 to the one that was asked for.

    Attributes
    ----------
    output
        The name of the output.
    wrt
        The names of the inputs that it is differentiated by (``#3`` for one without a name).
    strategy, reason
        The strategy that built it, and why that one.
    full
        Whether the last order is a whole Hessian.
    orders
        One report for each order, from order 0 on.
    notes
        Remarks on what was computed, one sentence each.
    check
        The result of checking its values, if that was asked for.
    compared
        The same derivative by the other strategies of a comparison.
    candidates
        The strategies side by side, if that was asked for.
    """

    output: str
    wrt: tuple[str, ...]
    strategy: Strategy
    reason: str
    full: bool = False
    orders: tuple[OrderReport, ...]
    notes: tuple[str, ...] = ()
    check: Check | None = None
    compared: tuple[Derivative, ...] = ()
    candidates: tuple[Candidate, ...] = ()

    @property
    def graph(self) -> Graph:
        """The graph of the last order: inputs of the original, one output for each of ``wrt``."""
        return self.orders[-1].graph

    @property
    def every(self) -> tuple[Derivative, ...]:
        """This derivative and those that are compared with it."""
        return (self, *self.compared)

    @property
    def pedigree(self) -> Pedigree:
        """The pedigree of the last order."""
        return self.orders[-1].pedigree

    def show(self, name: str) -> str:
        """Return one Scan of the derivative as text, by its name in the pedigree.

        Raises
        ------
        GradientError
            If no Scan has that name, or several have.
        """
        return self.pedigree.show(name)
