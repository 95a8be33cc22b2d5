"""How graphs are compiled and called where their time counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.compile.executor import Function
from pytensor.compile.mode import Mode
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.verification.worker import compiled


def compiled_as_users_do(fgraph: FunctionGraph, mode: Mode) -> tuple[Function, bool]:
    """Compile a graph; return as well whether its arguments are overwritten.

    That is so only if the graph itself holds operations that do.
    """
    try:
        return compiled(fgraph, mode, overwrites=False), False
    except Exception:
        return compiled(fgraph, mode), True


def await_results(outputs: Sequence[Any]) -> Sequence[Any]:
    """Wait for results of JAX, which returns before it has computed them."""
    for output in outputs:
        wait = getattr(output, "block_until_ready", None)
        if wait is not None:
            wait()
    return outputs
