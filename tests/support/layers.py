"""OpFromGraphs, called layers, for the tests of the passes that are about these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply

from scanopt_cli.ir.graph import Graph
from scanopt_cli.ir.inner_graphs import core_op, walk
from support.compiled_ways import NUMBA, VM, compiled
from support.tiers import deep

MODES = [VM, *deep(NUMBA)]
V, W, U = pt.dscalars("v", "w", "u")
X, Y = pt.dvectors("x", "y")
FIVE = pt.tensor("five", shape=(5,))
P, Q = pt.dscalars("p", "q")
VALUES: dict[str, Any] = {
    "v": 0.3,
    "w": 0.7,
    "u": -1.2,
    "x": np.array([0.3, 0.5, -0.2, 1.1, 2.0]),
    "y": np.array([1.0, 0.5, 2.0, -1.0, 0.1]),
    "five": np.arange(5.0),
}


def layer(*outputs: Any, inputs: Any = (P, Q), **more: Any) -> OpFromGraph:
    return OpFromGraph(list(inputs), list(outputs), name="layer", **more)


def is_graph(node: Apply) -> bool:
    return isinstance(core_op(node.op), OpFromGraph)


def ends(graph: Graph) -> list[tuple[int, int]]:
    """How many inputs and outputs each OpFromGraph has, at any depth."""
    return sorted(
        (len(node.inputs), len(node.outputs)) for node in walk(graph.fgraph) if is_graph(node)
    )


def assert_equal_values(graph: Graph, after: Graph, mode: Any = VM) -> None:
    wanted, got = (
        compiled(each.inputs, each.outputs, mode)(*(VALUES[str(v.name)] for v in each.inputs))
        for each in (graph, after)
    )
    for old, new in zip(wanted, got, strict=True):
        assert old.shape == new.shape
        np.testing.assert_allclose(new, old, rtol=1e-13)


def given_gradient(inputs: Any, outputs: Any, cotangents: Any) -> Any:
    return [cotangents[0] * 2, disconnected_type()]


def tangents(inputs: Any, given: Any) -> Any:
    return [given[0] * 2]


class Own(OpFromGraph):
    """A program's own class."""
