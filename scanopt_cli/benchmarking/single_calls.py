"""What a call of one graph costs, as far as it takes to say whether that is more than a bound."""

from __future__ import annotations

from dataclasses import dataclass

from scanopt_cli.benchmarking.benching import STEPS
from scanopt_cli.benchmarking.requests import BenchRequest
from scanopt_cli.benchmarking.taking_turns import WORKER
from scanopt_cli.errors import VerificationError
from scanopt_cli.ir.graph import Graph
from scanopt_cli.tracing.arguments_given import arguments_of
from scanopt_cli.tracing.requests import Arguments
from scanopt_cli.verification.input_pairing import matched
from scanopt_cli.verification.modes import compiling_modes
from scanopt_cli.verification.spawning import tables
from scanopt_cli.verification.talking_child import ChildError, Fault, TalkingChild

# Turns of so many seconds; the least of them counts, which a busy machine changes least.
_TURNS = 7
_TURN = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """How calls are made and bounded: the mode, drawn arguments, and the limits of the process."""

    mode: str
    seed: int
    timeout: float
    memory: int
    steps: int = STEPS


class TooCostlyError(Exception):
    """A call takes more time or memory than the process has; the text says which."""


def seconds_of_call(graph: Graph, original: Graph, limits: CallLimits, bound: float) -> float:
    """Return the processor time of a call, the least of several turns.

    Arguments are those of the ``original``. It ends as soon as a turn is within the ``bound``.

    Raises
    ------
    TooCostlyError
        If the time of the process ends during a call, and was more than the bound.
    ChildError
        If the graph cannot be compiled or called.
    """
    with _child(graph, original, limits) as child:
        order = _found(child)
        compiling = child.ask("compile", "compiling")["processor"]
        try:
            child.ask("first", "calling", **order)
            times: list[float] = []
            while len(times) < _TURNS and (not times or min(times) > bound):
                times.append(child.ask("turn", "calling", seconds=_TURN)["processor"])
        except ChildError as error:
            if error.fault is Fault.TIME and limits.timeout - compiling > bound:
                raise TooCostlyError(error.what) from None
            raise
    return min(times)


def bytes_of_call(graph: Graph, original: Graph, limits: CallLimits) -> int:
    """Return the most memory that a call takes, beyond what the process has before it.

    Raises
    ------
    TooCostlyError
        If there is not enough memory for a call.
    VerificationError
        If the graph cannot be compiled or called, or the system does not tell.
    """
    with _child(graph, original, limits) as child:
        order = _found(child)
        child.ask("compile", "compiling")
        try:
            child.ask("first", "calling", **order)
            taken = child.ask("memory", "measuring memory")["bytes"]
        except ChildError as error:
            if error.fault is Fault.MEMORY:
                raise TooCostlyError(error.what) from None
            raise
    if taken is None:
        raise VerificationError("this system does not say how much memory a process takes")
    return int(taken)


def _child(graph: Graph, original: Graph, limits: CallLimits) -> TalkingChild:
    pair = matched(original, graph)
    reference = pair.a if pair.a.recorded or not pair.b.recorded else pair.b
    given = arguments_of(reference, None, limits.seed)
    request = BenchRequest(
        graphs=tables(pair.a, pair.b),
        which=1,
        modes=compiling_modes(limits.mode),
        arguments=Arguments(
            values=given.values,
            text=given.text,
            contents={**pair.b.values, **pair.a.values},
            seed=limits.seed,
        ),
        steps=limits.steps,
        growth=None,
        timeout=limits.timeout,
        memory=limits.memory,
    )
    return TalkingChild(WORKER, request, graph.source)


def _found(child: TalkingChild) -> dict[str, object]:
    found = child.ask("find", "looking for arguments")
    return {"attempt": found["attempt"], "together": found["together"], "size": None}
