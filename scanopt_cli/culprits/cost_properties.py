"""What a call may cost: the properties of a graph that takes more time or memory than a bound.

Only passes are to blame for these: a graph without PyTensor's rewrites is slow and large as it is.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from scanopt_cli.benchmarking.benching import STEPS
from scanopt_cli.benchmarking.single_calls import (
    CallLimits,
    TooCostlyError,
    bytes_of_call,
    seconds_of_call,
)
from scanopt_cli.culprits.properties import Limits, Outcome, Property, State
from scanopt_cli.errors import VerificationError
from scanopt_cli.ir.graph import Graph
from scanopt_cli.text import size_text, time_text


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _Costly(Property):
    """A call costs more than a bound.

    Attributes
    ----------
    compiled_by
        The mode that compiles the graph.
    seed, steps
        Of arguments that are drawn, if no call is recorded: their seed, and how many steps loops
        have where arguments decide it.
    """

    compiled_by: str = "default"
    seed: int = 0
    steps: int = STEPS

    def of(self, graph: Graph, original: Graph, limits: Limits) -> Outcome:
        """Compile the graph and call it, on the arguments of the original."""
        how = CallLimits(
            mode=self.compiled_by,
            seed=self.seed,
            timeout=limits.timeout,
            memory=limits.memory,
            steps=self.steps,
        )
        try:
            return self._outcome(graph, original, how)
        except TooCostlyError as error:
            return Outcome(State.BROKEN, str(error), self.compiled_by)
        except VerificationError as error:
            return Outcome(State.UNKNOWN, error.what)

    @abstractmethod
    def _outcome(self, graph: Graph, original: Graph, how: CallLimits) -> Outcome:
        """Say whether a call costs too much."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Slower(_Costly):
    """A call takes more than ``seconds`` of processor time, the least of several."""

    seconds: float

    @property
    def text(self) -> str:
        """The property in a few words."""
        most = time_text(self.seconds)
        return f"a call takes more than {most} of processor time, compiled by {self.compiled_by}"

    def _outcome(self, graph: Graph, original: Graph, how: CallLimits) -> Outcome:
        taken = seconds_of_call(graph, original, how, self.seconds)
        state = State.BROKEN if taken > self.seconds else State.FINE
        return Outcome(state, f"a call takes {time_text(taken)}", self.compiled_by)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Larger(_Costly):
    """A call takes more than ``size`` bytes of memory, beyond what the process has before it."""

    size: int

    @property
    def text(self) -> str:
        """The property in a few words."""
        most = size_text(str(self.size))
        return f"a call takes more than {most} of memory, compiled by {self.compiled_by}"

    def _outcome(self, graph: Graph, original: Graph, how: CallLimits) -> Outcome:
        taken = bytes_of_call(graph, original, how)
        state = State.BROKEN if taken > self.size else State.FINE
        return Outcome(state, f"a call takes {size_text(str(taken))}", self.compiled_by)
