"""`trace-to-last`, case 5: a trace that is read from its end is a ring of its last rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode, get_mode
from pytensor.scan.utils import until

from scanopt_cli.ir.graph import Graph
from scanopt_cli.loop import TracedLoop
from support.compiled_ways import NUMBA, VM, compiled
from support.evaluating import assert_same_outcomes, has_unknown_shape
from support.graph_building import graph_of, optimized, outputs_of, scan

N = pt.lscalar("n")
V = pt.dvector("v")
X = pt.dvector("x")
LIMIT = pt.dscalar("limit")
COUNTS = (0, 1, 2, 3, 4, 7, 30)


def state(n_steps: Any = N) -> Any:
    return scan(lambda h: h * 0.9 + 1, outputs_info=[V], n_steps=n_steps)


def two_taps() -> Any:
    start = pt.stack([V, V * 2])
    taps = {"initial": start, "taps": [-2, -1]}
    return scan(lambda a, b: b + 0.5 * (b - a) + 1, outputs_info=[taps], n_steps=N)


def mapped() -> Any:
    return scan(lambda h: (h + 1, h * 2), outputs_info=[V, None], n_steps=N)[1]


def stopped() -> Any:
    def step(h: Any, limit: Any) -> Any:
        return h + 1, until(h[0] > limit)

    return scan(step, outputs_info=[V], non_sequences=[LIMIT], n_steps=N)


READS = {
    "[-3:]": lambda rows: rows[-3:],
    "[-2:-1]": lambda rows: rows[-2:-1],
    "[-1:-4:-1]": lambda rows: rows[-1:-4:-1],
    "[::-1][:3]": lambda rows: rows[::-1][:3],
    "[-3]": lambda rows: rows[-3],
    "[-1] and [-3:]": lambda rows: rows[-1].sum() + rows[-3:].sum(),
    "[[-1, -3]]": lambda rows: rows[[-1, -3]],
}


def has_trace(graph: Graph) -> bool:
    """Whether a trace of the one loop of a graph is read."""
    (node,) = (n for n in graph.fgraph.apply_nodes if isinstance(n.op, TracedLoop))
    traces = node.outputs[node.op.n_states : -1]
    return any(graph.fgraph.clients[trace] for trace in traces)


def agree(graph: Graph, work: Graph, count: int, limit: float = 1e9, mode: Mode = VM) -> None:
    values = {"v": [1.0, 2.0], "n": count, "limit": limit}
    expected = outputs_of(graph, **values)
    for got in (outputs_of(work, **values), run(compiled(work.inputs, work.outputs, mode), values)):
        if not has_unknown_shape(expected[0], got[0]):
            assert_same_outcomes(expected, got)


def run(function: Any, values: dict[str, Any]) -> list[Any]:
    names = [container.name for container in function.input_storage]
    try:
        return list(function(*(np.asarray(values[str(name)]) for name in names)))
    except IndexError as error:
        return [error]


@pytest.mark.tiered(every=7)
@pytest.mark.parametrize("loop", [state, two_taps, mapped, stopped])
@pytest.mark.parametrize("read", READS)
def test_a_window_of_each_kind_of_loop(loop: Any, read: str) -> None:
    graph = graph_of(READS[read](loop()))
    work, _ = optimized(graph, "clean-slices,scan-to-loop,trace-to-last,remove-unused")
    assert not has_trace(work)
    for count in COUNTS if read == "[-3:]" else (0, 2, 7):
        agree(graph, work, count)


@pytest.mark.parametrize("limit", [0.5, 1.5, 3.5, 9.5])
def test_a_loop_that_stops_early(limit: float) -> None:
    graph = graph_of(stopped()[-3:])
    work, _ = optimized(graph, "scan-to-loop,trace-to-last,remove-unused")
    assert not has_trace(work)
    agree(graph, work, 20, limit)


def test_the_initial_row_is_a_row_of_the_buffer() -> None:
    """Of a buffer with its initial row, the last rows may be the first."""
    buffer = state().owner.inputs[0]
    graph = graph_of(buffer[-3:])
    work, _ = optimized(graph, "scan-to-loop,trace-to-last,remove-unused")
    assert not has_trace(work)
    for count in COUNTS:
        agree(graph, work, count)


@pytest.mark.parametrize(
    "read",
    [lambda rows: rows[:3], lambda rows: rows[-3:].sum() + rows.sum(), lambda rows: rows[::2]],
    ids=["[:3]", "all", "[::2]"],
)
def test_twin_rows_are_not_read_from_the_end(read: Any) -> None:
    work, _ = optimized(graph_of(read(state())), "scan-to-loop,trace-to-last,remove-unused")
    assert has_trace(work)


def test_twin_the_trace_is_hardly_longer() -> None:
    work, _ = optimized(graph_of(state(8)[-3:]), "scan-to-loop,trace-to-last,remove-unused")
    assert has_trace(work)


@pytest.mark.deep
@pytest.mark.parametrize("loop", [state, two_taps, mapped, stopped])
def test_by_numba(loop: Any) -> None:
    graph = graph_of(loop()[-3:])
    work, _ = optimized(graph, "loop")
    for count in (0, 1, 7):
        agree(graph, work, count, mode=NUMBA)


@pytest.mark.jax
@pytest.mark.parametrize("n_steps", [X.shape[0], pt.minimum(X.shape[0], V.shape[0])])
def test_jax_takes_a_window_of_a_loop_of_as_many_steps_as_an_array_has_rows(n_steps: Any) -> None:
    """JAX takes no ``arange`` of a length that is computed of shapes."""
    pytest.importorskip("jax")
    rows = scan(
        lambda row, h: h * 0.9 + row, sequences=[X[:n_steps]], outputs_info=[V[0]], n_steps=n_steps
    )
    graph = graph_of(rows[-3:], rows[-1:-4:-1])
    work, _ = optimized(graph, "loop")
    function = compiled(work.inputs, work.outputs, get_mode("JAX"))
    for length in (1, 2, 3, 4, 12):
        values = {"v": np.arange(12.0), "x": np.arange(float(length))}
        found = [np.asarray(value) for value in run(function, values)]
        assert_same_outcomes(outputs_of(graph, **values), found)


@pytest.mark.jax
def test_jax_knows_the_shape_of_a_window_in_a_loop() -> None:
    pytest.importorskip("jax")

    def outer(h: Any) -> Any:
        rows = scan(lambda g: g * 0.9 + 1, outputs_info=[h], n_steps=20)
        return rows[-2:].sum(0), rows[-3:]

    graph = graph_of(scan(outer, outputs_info=[V, None], n_steps=4)[1][-1:])
    work, _ = optimized(graph, "loop")
    found = run(compiled(work.inputs, work.outputs, get_mode("JAX")), {"v": [1.0, 2.0]})
    assert_same_outcomes(outputs_of(graph, v=[1.0, 2.0]), [np.asarray(found[0])])
