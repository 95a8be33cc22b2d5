"""`first_difference`: where the loops of two graphs begin to compute something else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from scanopt_cli.ir.folding import bounded_folding
from scanopt_cli.ir.graph import GraphLike, as_graph
from scanopt_cli.tracing.arguments_given import ArgumentsLike, arguments_of
from scanopt_cli.tracing.child import answer
from scanopt_cli.tracing.requests import DifferenceRequest
from scanopt_cli.tracing.result import FirstDifference, LoopPair, OuterStep, PairOfValues
from scanopt_cli.verification.input_pairing import matched
from scanopt_cli.verification.spawning import tables


@bounded_folding()
def first_difference(
    a: GraphLike,
    b: GraphLike,
    arguments: ArgumentsLike = None,
    *,
    seed: int = 0,
    timeout: float = 300.0,
    progress: Callable[[str], None] | None = None,
) -> FirstDifference:
    """Run the loops of two graphs side by side, and return the first value that differs.

    Loops, slots and nodes are matched as `diff` matches them; values are compared with the
    tolerance of `verify`, both graphs as they are, in a child process.

    Parameters
    ----------
    a, b
        Loaded graphs, paths of their files, FunctionGraphs or ``(inputs, outputs)`` pairs. Inputs
        correspond as in `verify`.
    arguments
        As of `trace`; recorded calls are those of ``a``, or of ``b`` if it has none.
    seed
        The seed of arguments that are drawn.
    timeout
        Seconds of processor time.
    progress
        Called with a short description of what is being done.

    Raises
    ------
    ScanoptError
        If the graphs' signatures do not match, arguments do not fit, or a graph cannot be
        evaluated.
    """
    pair = matched(as_graph(a), as_graph(b))
    reference = pair.a if pair.a.recorded or not pair.b.recorded else pair.b
    given = arguments_of(reference, arguments, seed)
    contents = {**pair.b.values, **pair.a.values}
    request = DifferenceRequest(
        graphs=tables(pair.a, pair.b), arguments=replace(given, contents=contents), timeout=timeout
    )
    facts, _ = answer(request, f"{pair.a.source} and {pair.b.source}", progress)
    at = facts.pop("at")
    return FirstDifference(
        **facts
        | {
            "is_drawn": given.values is None,
            "loops": tuple(LoopPair(**one) for one in facts["loops"]),
            "unmatched": tuple(facts["unmatched"]),
            "outer_steps": tuple(OuterStep(**one) for one in facts["outer_steps"]),
            "at": None if at is None else PairOfValues(**at),
            "inputs": tuple(PairOfValues(**one) for one in facts["inputs"]),
        }
    )
