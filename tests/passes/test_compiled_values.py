"""What PyTensor compiles from a rewritten graph: its own rewrites must not undo what ours rely on.

Other tests run a graph as it is. Users compile it, and PyTensor then reads the loops once more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.configdefaults import config
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until

from scanopt_cli.ir.graph import Graph
from support.evaluating import PLAIN, Outcome, assert_same_outcomes
from support.graph_building import arguments, graph_of, optimized, scan

FAST = Mode(linker="vm", optimizer="fast_run")
PIPELINES = ("save-mem", "normalize-reads,carry-reductions,save-mem", "default", "grad")

READS: dict[str, Callable[[Any], Any]] = {
    "last": lambda ys: ys[-1],
    "second last": lambda ys: ys[-2],
    "last of the buffer": lambda ys: ys.owner.inputs[0][-1],
    "second last of the buffer": lambda ys: ys.owner.inputs[0][-2],
    "last three": lambda ys: ys[-3:],
    "first of the last three": lambda ys: ys[-3:][0],
    "some of the last three": lambda ys: ys[-3:][pt.lscalar("i")],
    "last of the buffer as a slice": lambda ys: ys.owner.inputs[0][-1:],
    "without the last": lambda ys: ys[-3:-1],
    "last three, reversed": lambda ys: ys[-3:][::-1],
    "first three reversed": lambda ys: ys[::-1][:3],
    "in the middle": lambda ys: ys[-5:-2],
    "one from the start": lambda ys: ys[4],
    "sum of the last": lambda ys: ys[-2:].sum(),
    "first and last": lambda ys: ys[0] + ys[-1],
    "sum and last": lambda ys: ys.sum() * ys[-2],
    "most and least": lambda ys: ys.max() - ys.min(),
}


def values(graph: Graph, mode: Any, data: list[np.ndarray]) -> list[Outcome]:
    """What the outputs are if ``mode`` compiles them one by one; errors are outcomes too.

    Rewrites of PyTensor's own that fail are left out, as they are for a user.
    """
    found: list[Outcome] = []
    for output in graph.outputs:
        try:
            with config.change_flags(on_opt_error="ignore"):
                function = pytensor.function(
                    list(graph.inputs), output, mode=mode, on_unused_input="ignore"
                )
            with np.errstate(all="ignore"):
                found.append(function(*data))
        except Exception as error:
            found.append(error)
    return found


@pytest.mark.tiered(every=6)
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("steps", [40, pt.lscalar("n")], ids=["40", "n"])
def test_trimmed_loops_compile_to_the_same_values(read: str, pipeline: str, steps: Any) -> None:
    """PyTensor takes a row of a trimmed buffer for the step of that number, if it can."""
    x = pt.dscalar("x")
    states = scan(lambda y: y - 0.01 * y**2, outputs_info=[x], n_steps=steps)
    graph = graph_of(READS[read](states))
    data = arguments(graph, x=1.0, n=40, i=1)
    work, _ = optimized(graph, pipeline)
    assert_same_outcomes(values(graph, PLAIN, data), values(work, FAST, data))


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_traces_while_loops_and_batches(pipeline: str) -> None:
    x, s = pt.dscalar("x"), pt.dvector("s")
    trace = scan(lambda y: pt.tanh(y), sequences=[s])
    stopping = scan(
        lambda y: (y * 1.1, until(y > 2)), outputs_info=[x], n_steps=50, name="stopping"
    )
    states = scan(lambda y: y - 0.01 * y**2, outputs_info=[x], n_steps=9)
    batched = vectorize_graph(states[-2], {x: pt.dvector("xs")})
    graph = graph_of(trace[-2], trace[-3:], stopping[-1], batched)
    data = arguments(graph, x=1.0, s=np.arange(7) / 10, xs=[1.0, 2.0])
    work, _ = optimized(graph, pipeline)
    assert_same_outcomes(values(graph, PLAIN, data), values(work, FAST, data))
