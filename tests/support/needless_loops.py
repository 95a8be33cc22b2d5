"""What must hold where `loops-to-ops` replaces loops by Ops on whole arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from scanopt_cli.ir.graph import Graph
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.ir.scan_view import is_loop
from support.compiled_ways import assert_close, compiled
from support.evaluating import assert_same_outcomes, evaluate
from support.graph_building import arguments, optimized

RUN = "guard-last-rows,loops-to-ops"
LOOPS = "guard-last-rows,scan-to-loop,loops-to-ops,remove-unused"


def has_loop(graph: Graph) -> bool:
    return any(is_loop(node) for node in walk(graph.fgraph))


def assert_needs_no_loop(
    graph: Graph, pipeline: str, given: dict[str, Any], *, rtol: float = 1e-9
) -> None:
    """Check that a pipeline leaves no loop, and that values stay as they are."""
    work, remarks = optimized(graph, pipeline)
    assert not has_loop(work), remarks
    data = arguments(graph, **given)
    old = evaluate(graph.inputs, graph.outputs, data)
    new = evaluate(work.inputs, work.outputs, data)
    if given["n"] == 0:  # a Scan of no steps does not know how long its rows would be
        assert [np.size(one) if not isinstance(one, Exception) else type(one) for one in old] == [
            np.size(one) if not isinstance(one, Exception) else type(one) for one in new
        ]
        return
    assert_same_outcomes(old, new, rtol=rtol)


def assert_values_stay(graph: Graph, given: dict[str, Any]) -> None:
    """Check the values that the pass leaves in each form of loops, and the preset grad."""
    data = arguments(graph, **given)
    wanted = evaluate(graph.inputs, graph.outputs, data)
    for pipeline in (RUN, LOOPS, "grad"):
        work, _ = optimized(graph, pipeline)
        assert_same_outcomes(wanted, evaluate(work.inputs, work.outputs, data), rtol=1e-7)


def assert_compiled_values_stay(graph: Graph, given: dict[str, Any], mode: Any) -> None:
    """Check what PyTensor compiles from what the pass leaves."""
    data = arguments(graph, **given)
    work, _ = optimized(graph, RUN)
    got = compiled(work.inputs, work.outputs, mode)(*data)
    for old, new in zip(evaluate(graph.inputs, graph.outputs, data), got, strict=True):
        assert_close(old, new)
