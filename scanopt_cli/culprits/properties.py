"""What may be wrong with a graph: the properties that `bisect` looks for.

Foreign graphs are evaluated in a child process, with limits of time and memory, or by a command.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from scanopt_cli.culprits.commands import run_command
from scanopt_cli.ir.graph import Graph
from scanopt_cli.presentation import Presented
from scanopt_cli.serialization.unpickler.generators import from_text
from scanopt_cli.verification.child_process import MEMORY
from scanopt_cli.verification.child_record import AppliedRewrite
from scanopt_cli.verification.modes import PLAIN
from scanopt_cli.verification.result import (
    Difference,
    DifferenceKind,
    Verdict,
    VerificationTimes,
)
from scanopt_cli.verification.spawning import ARGUMENTS, Gate, signal_name
from scanopt_cli.verification.verifying import Evaluation, evaluate

type Arguments = tuple[np.ndarray | np.random.Generator, ...]


class State(StrEnum):
    """Whether a graph has a property."""

    BROKEN = "broken"
    FINE = "fine"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether a graph has a property, and what was seen of it.

    Attributes
    ----------
    state
        The answer; it is unknown if the graph could not be evaluated.
    why
        What was seen, in a few words.
    mode
        The mode that the graph must be compiled by to show it; ``None`` if it shows as it is.
    n_rewrites, last
        How many of PyTensor's rewrites were applied, and the last one, if they were counted.
    kinds
        What kinds of things were seen, such as other shapes, or errors of one class. A graph of
        none of the kinds of another one is broken in another way.
    times
        How long it took to compile and to call the graph, if that was done here.
    """

    state: State
    why: str = ""
    mode: str | None = None
    n_rewrites: int = 0
    last: AppliedRewrite | None = None
    kinds: tuple[str, ...] = ()
    times: VerificationTimes | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Limits(Presented):
    """Bounds of one evaluation, and of one run of passes.

    Attributes
    ----------
    timeout
        Seconds of processor time.
    memory
        Bytes of address space that passes may use.
    """

    timeout: float = 300.0
    memory: int = MEMORY


class Property(Presented, ABC):
    """A property that a graph may have, such as that it computes other values than another one."""

    @property
    @abstractmethod
    def text(self) -> str:
        """The property in a few words."""

    @property
    def hint(self) -> str | None:
        """What to do if a graph has the property before any rewrite."""
        return None

    @abstractmethod
    def of(self, graph: Graph, original: Graph, limits: Limits) -> Outcome:
        """Say whether a graph has the property; ``original`` is the one that it was made from."""

    @property
    def mode(self) -> str | None:
        """The mode in which PyTensor's rewrites may be what breaks a graph, if there is one."""
        return None

    @property
    def is_gated(self) -> bool:
        """Whether a graph can be evaluated after some of PyTensor's rewrites, by `gated`."""
        return self.mode is not None

    def gated(self, graph: Graph, original: Graph, gate: Gate, limits: Limits) -> Outcome:
        """Say whether a graph has the property after some of PyTensor's rewrites."""
        raise NotImplementedError

    def shown(self, graph: Graph, limits: Limits) -> tuple[Outcome, Arguments | None]:
        """Say whether a graph has the property once PyTensor has compiled it, and for what.

        The arguments are ``None`` if it has it for none in particular, or they are neither arrays
        nor random generators.
        """
        return self.gated(graph, graph, Gate(), limits), None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ValuesDiffer(Property):
    """A graph computes other values than the original does as it is, without any rewrite.

    Attributes
    ----------
    compiled_by
        The mode that compiles the graph, `PLAIN` for none.
    rtol
        How far values may be apart, as a fraction of them; ``None`` for what rounding explains.
    runs, seed
        How many runs are drawn beside recorded calls, and from which seed.
    """

    compiled_by: str = "default"
    rtol: float | None = None
    runs: int = 5
    seed: int = 0

    @property
    def text(self) -> str:
        """The property in a few words."""
        compiled = "" if self.compiled_by == PLAIN else f", compiled by {self.compiled_by}"
        return f"values differ from those of the graph as it is{compiled}"

    @property
    def mode(self) -> str | None:
        """The mode, if one compiles the graph."""
        return None if self.compiled_by == PLAIN else self.compiled_by

    def of(self, graph: Graph, original: Graph, limits: Limits) -> Outcome:
        """Compare the graph with the original, as they are and compiled, as `verify` does."""
        return self._compared(graph, original, None, limits)

    def gated(self, graph: Graph, original: Graph, gate: Gate, limits: Limits) -> Outcome:
        """Compare the graph, after some of PyTensor's rewrites, with the original as it is."""
        return self._compared(graph, original, gate, limits)

    def shown(self, graph: Graph, limits: Limits) -> tuple[Outcome, Arguments | None]:
        """Compare a graph that PyTensor compiles with itself as it is."""
        with TemporaryDirectory(prefix="scanopt-shown-") as name:
            outcome = self.gated(graph, graph, Gate(None, Path(name)), limits)
            with suppress(OSError), np.load(Path(name) / ARGUMENTS, allow_pickle=False) as arrays:
                kept = (arrays[key] for key in arrays.files)
                values = tuple(from_text(str(a)) if a.dtype.kind == "U" else a for a in kept)
                return outcome, values
        return outcome, None

    def _compared(
        self, graph: Graph, original: Graph, gate: Gate | None, limits: Limits
    ) -> Outcome:
        found = evaluate(
            original,
            graph,
            runs=self.runs,
            seed=self.seed,
            modes=self.compiled_by,
            timeout=limits.timeout,
            rtol=self.rtol,
            gate=gate,
        )
        verdict = found.verification.verdict
        if verdict is Verdict.DIFFERS:
            first, *_ = differences = found.verification.differences
            why = f"{first.b} in place of {first.a}"
            kinds = dict.fromkeys(map(_kind, differences))
            return replace(_outcome(found, State.BROKEN, why, first.mode), kinds=tuple(kinds))
        # What is infinite or NaN with PyTensor's rewrites as without them, is not broken by them.
        is_compared = gate is not None and found.verification.runs > 0 and found.has_ended
        if verdict is Verdict.COULD_NOT_RUN and not is_compared:
            return _outcome(found, State.UNKNOWN, found.verification.reason or "", None)
        return _outcome(found, State.FINE, "values agree", None)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CompilingRaises(Property):
    """A mode raises an error when it compiles a graph; ``error`` is a part of its text."""

    compiled_by: str = "default"
    error: str = ""

    @property
    def text(self) -> str:
        """The property in a few words."""
        error = f"an error with {self.error!r}" if self.error else "an error"
        return f"compiling by {self.compiled_by} raises {error}"

    @property
    def mode(self) -> str | None:
        """The mode that raises."""
        return self.compiled_by

    def of(self, graph: Graph, original: Graph, limits: Limits) -> Outcome:
        """Compile the graph."""
        return self.gated(graph, original, Gate(), limits)

    def gated(self, graph: Graph, original: Graph, gate: Gate, limits: Limits) -> Outcome:
        """Compile the graph with some of PyTensor's rewrites."""
        del original  # which need not compile either
        found = evaluate(
            graph, graph, runs=1, modes=self.compiled_by, timeout=limits.timeout, gate=gate
        )
        if found.error is not None and self.error in found.error:
            kinds = (_class(found.error),)
            return replace(
                _outcome(found, State.BROKEN, found.error, self.compiled_by), kinds=kinds
            )
        if found.error is not None:  # whether it would have come to the other one is open
            return _outcome(found, State.UNKNOWN, f"compiling raises {found.error}", None)
        if found.rewritten is None:
            return _outcome(found, State.UNKNOWN, found.verification.reason or "", None)
        return _outcome(found, State.FINE, "it compiles", None)


# The exit code by which a command says that it cannot tell, as `git bisect run` has it.
_UNTESTED = 125


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CommandFails(Property):
    """A command fails on a graph; ``{}`` in it is the path of the graph's file.

    As with ``git bisect run``, it fails if it ends with another exit code than 0, whichever, but
    125 leaves open whether it does; or by a signal, or if it takes more seconds than it may. A
    signal, and the end of its time, are faults of other kinds than an exit code.

    A command that compiles the graph is run with a limit to PyTensor's rewrites in its processes,
    and with ``PYTHONHASHSEED=0`` unless the caller has set it, so that they come in the same order.
    """

    command: str

    @property
    def text(self) -> str:
        """The property in a few words."""
        return f"`{self.command}` fails"

    @property
    def hint(self) -> str:
        """What may be found if the command fails on the graph as it is."""
        return (
            "let it fail on what it compiles, to find a rewrite of PyTensor's, or not on the graph "
            "as it is, to find one of a pass"
        )

    @property
    def is_gated(self) -> bool:
        """Whether PyTensor's rewrites can be limited: in what the command compiles."""
        return True

    def of(self, graph: Graph, original: Graph, limits: Limits) -> Outcome:
        """Run the command on the graph, without a shell.

        Raises
        ------
        ScanoptError
            If there is no such command, or it has no place for the path.
        """
        del original
        return self._run(graph, None, limits)

    def gated(self, graph: Graph, original: Graph, gate: Gate, limits: Limits) -> Outcome:
        """Run the command on the graph with some of PyTensor's rewrites.

        Raises
        ------
        ScanoptError
            As `of` does; or if a process that imports PyTensor cannot use scanopt.
        """
        del original
        return self._run(graph, gate, limits)

    def _run(self, graph: Graph, gate: Gate | None, limits: Limits) -> Outcome:
        ended = run_command(
            self.command, graph, timeout=limits.timeout, memory=limits.memory, gate=gate
        )
        state, why, kind = State.BROKEN, f"exit code {ended.code}", "exit code"
        if ended.code is None:
            why, kind = f"no answer within {limits.timeout:g} s", "no answer"
        elif ended.code < 0:
            why = kind = f"ended by {signal_name(-ended.code)}"
        elif ended.code == 0:
            state = State.FINE
        elif ended.code == _UNTESTED:
            state, why = State.UNKNOWN, f"{why}, cannot be tested"
        rewritten = ended.rewritten
        return Outcome(
            state,
            why,
            n_rewrites=rewritten.count if rewritten else 0,
            last=rewritten.last if rewritten else None,
            kinds=(kind,) if state is State.BROKEN else (),
        )


def _class(error: str) -> str:
    """Return the class of an error that the worker tells of."""
    return error.partition(":")[0]


def _kind(difference: Difference) -> str:
    """Return what kind of difference it is; of errors, by their class."""
    match difference.kind:
        case DifferenceKind.ONLY_A_RAISES:
            return f"{difference.kind} {_class(difference.a)}"
        case DifferenceKind.ONLY_B_RAISES | DifferenceKind.REWRITE_FAILS:
            return f"{difference.kind} {_class(difference.b)}"
    return str(difference.kind)


def _outcome(found: Evaluation, state: State, why: str, mode: str | None) -> Outcome:
    rewritten = found.rewritten
    return Outcome(
        state,
        why,
        mode,
        rewritten.count if rewritten else 0,
        rewritten.last if rewritten else None,
        times=found.verification.times,
    )
