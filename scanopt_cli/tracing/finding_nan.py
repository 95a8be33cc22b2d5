"""`first_nan`: the first NaN or infinity that a graph and its loops compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from scanopt_cli.errors import ScanoptError
from scanopt_cli.ir.folding import bounded_folding
from scanopt_cli.ir.graph import GraphLike, as_graph
from scanopt_cli.text import comma_separated
from scanopt_cli.tracing.arguments_given import ArgumentsLike, arguments_of
from scanopt_cli.tracing.child import answer
from scanopt_cli.tracing.nan_result import BadNode, FirstNan, HarmlessNode, ReadValue
from scanopt_cli.tracing.requests import NanRequest
from scanopt_cli.tracing.result import OuterStep
from scanopt_cli.verification.spawning import tables

_INF = "inf"


@bounded_folding()
def first_nan(
    graph: GraphLike,
    arguments: ArgumentsLike = None,
    *,
    allow: str | Sequence[str] = (),
    masked: bool = False,
    seed: int = 0,
    timeout: float = 300.0,
    progress: Callable[[str], None] | None = None,
) -> FirstNan:
    """Run a graph and its loops in Python, and return the first NaN or infinity that stays.

    A NaN or infinity stays if a slot of a loop holds it at the end of a step, or an output of the
    graph does. Others are harmless, and listed as such: a branch of a switch that is not taken.
    The graph is evaluated as it is, without rewrites, in a child process.

    Parameters
    ----------
    graph
        A loaded graph, the path of its file, a FunctionGraph or an ``(inputs, outputs)`` pair.
    arguments
        As of `trace`.
    allow
        ``inf``: infinities are as good as numbers; only NaNs are looked for.
    masked
        Whether one that does not stay counts, too: the first that any node computes.
    seed
        The seed of arguments that are drawn.
    timeout
        Seconds of processor time.
    progress
        Called with a short description of what is being done.

    Raises
    ------
    ScanoptError
        If arguments do not fit, or the graph cannot be evaluated.
    """
    allow_inf = allows_inf(allow)
    work = as_graph(graph)
    given = arguments_of(work, arguments, seed)
    request = NanRequest(
        graphs=tables(work),
        arguments=given,
        allow_inf=allow_inf,
        masked=masked,
        timeout=timeout,
    )
    facts, _ = answer(request, work.source, progress)
    node = facts["node"]
    return FirstNan(
        **facts
        | {
            "source": work.source,
            "is_drawn": given.values is None,
            "held_by": tuple(ReadValue(**one) for one in facts["held_by"]),
            "node": None if node is None else _node(node),
            "reaches": tuple(facts["reaches"]),
            "harmless": tuple(HarmlessNode(**one) for one in facts["harmless"]),
        }
    )


def _node(told: Any) -> BadNode:
    return BadNode(
        **told
        | {
            "outer_steps": tuple(OuterStep(**one) for one in told["outer_steps"]),
            "inputs": tuple(ReadValue(**one) for one in told["inputs"]),
        }
    )


def allows_inf(allow: str | Sequence[str]) -> bool:
    """Return whether infinities are allowed.

    Raises
    ------
    ScanoptError
        If something else is.
    """
    for name in comma_separated(allow):
        if name != _INF:
            raise ScanoptError(f"{name!r} cannot be allowed", where="--allow", hint="allow inf")
    return bool(comma_separated(allow))
