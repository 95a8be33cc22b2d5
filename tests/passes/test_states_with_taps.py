"""`loop-to-scan` makes taps of states that shift rows, mit_sots and mit_mots of rings of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.scan.utils import until

from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.loop import TracedLoop
from scanopt_cli.loop.body import Body
from support.evaluating import PLAIN
from support.graph_building import (
    assert_same_values,
    gradient_with_mit_mots,
    graph_of,
    labels,
    only_scan,
    rid_of,
    scan,
)
from support.there_and_back import RoundTrip, loop_ops
from support.tiers import deep

x, y, w = pt.dscalars("x", "y", "w")
n = pt.lscalar("n")
v = pt.dvector("v")
m = pt.dmatrix("m")
ROWS = np.arange(30.0).reshape(15, 2) / 10


def turned(graph: Graph) -> Graph:
    return rid_of(TracedLoop, graph, "loop-to-scan")


def loop_of(
    step: Callable[..., list[Any]],
    initial: list[Any],
    n_steps: Any = n,
) -> tuple[list[Any], list[Any]]:
    """Return the last values and the traces of a TracedLoop."""
    index, states = pt.lscalar("index"), [start.type() for start in initial]
    body = Body(
        index=index,
        states=states,
        next_states=step(index, *states),
    )
    outputs, k = TracedLoop.over(n_steps, body, initial, {}), len(initial)
    return outputs[:k], outputs[k : 2 * k]


def whole(states: Any) -> Any:
    return states.owner.inputs[0]


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("taps", [[-2, -1], [-3, -1], [-4], [-8, -3, -2], [-12, -5], [-9, -1]])
def test_mit_sots_come_back(taps: list[int]) -> None:
    ys = scan(
        lambda *rows: sum(rows[1:], rows[0] * 0.5) + 1,
        outputs_info=[{"initial": m[: -min(taps)], "taps": taps}],
        n_steps=n,
    )
    for outputs in ([whole(ys), ys[-1:]], [ys.sum(axis=0)], [ys[2:], ys[0]], [ys[-1]]):
        trip = RoundTrip.of(graph_of(*outputs), "remove-unused,clean-slices")
        scans, _, back = trip.costs
        assert back.is_at_most(scans)
        assert loop_ops(trip.back) == loop_ops(trip.scans)
        for steps in (0, 1, 3, 14):
            assert_same_values(trip.scans, trip.back, m=ROWS, n=steps)


@pytest.mark.parametrize("taps", [[-1, -2], [-12]])
@pytest.mark.parametrize("mode", ["FAST_RUN", *deep("NUMBA")])
def test_gradients_of_what_comes_back(taps: list[int], mode: str) -> None:
    ys = scan(
        lambda *rows: pt.tanh(sum(rows[1:-1], rows[0] * rows[-1])) + 0.1,
        outputs_info=[{"initial": m[: -min(taps)], "taps": taps}],
        non_sequences=[w],
        n_steps=n,
    )
    trip = RoundTrip.of(graph_of((ys**2).sum() + ys[-1].sum()))
    slopes = []
    for graph in (trip.scans, trip.back):
        inputs = {variable.name: variable for variable in graph.inputs}
        given = [inputs[name] for name in ("m", "w", "n")]
        slope = pytensor.grad(graph.outputs[0], given[:2])
        slopes.append(pytensor.function(given, [graph.outputs[0], *slope], mode=mode)(ROWS, 0.5, 5))
    for one, other in zip(*slopes, strict=True):
        np.testing.assert_allclose(one, other)


def test_chains_that_no_scan_wrote() -> None:
    """All outputs of all states are rows of one buffer."""
    lasts, traces = loop_of(lambda _, a, b, c: [b, c, a * 2 - c + 1], [m[0], m[1], m[2]])
    graph = graph_of(*lasts, *traces, traces[2][1:], traces[1][-1], traces[0][2])
    work = turned(graph)
    view = only_scan(work.fgraph)
    assert labels(view) == ["mit_sot[0]"]
    assert view.slots[0].taps == (-3, -1)
    for steps in (2, 5):
        assert_same_values(graph, work, m=ROWS, n=steps)


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_numbers_of_different_variables_are_stacked(steps: int) -> None:
    _, traces = loop_of(lambda i, a, b: [b, a * 0.5 + b + i], [x, y])
    graph = graph_of(traces[1])
    work = turned(graph)
    assert sorted(labels(only_scan(work.fgraph))) == ["mit_sot[0]", "seq[0]"]
    assert_same_values(graph, work, x=0.5, y=2.0, n=steps)


def test_twin_rows_of_different_variables() -> None:
    """They may be of different lengths."""
    u = pt.dvector("u")
    _, traces = loop_of(lambda _, a, b: [b, a * 0.5 + b], [u, v])
    graph = graph_of(*traces)
    work = turned(graph)
    assert labels(only_scan(work.fgraph)) == ["sit_sot[0]", "sit_sot[1]"]
    assert_same_values(graph, work, u=np.ones(2), v=np.ones(2), n=3)


def test_twin_rows_in_another_order() -> None:
    _, traces = loop_of(lambda _, a, b: [b, a * 0.5 + b], [m[1], m[0]])
    graph = graph_of(*traces)
    work = turned(graph)
    assert labels(only_scan(work.fgraph)) == ["sit_sot[0]", "sit_sot[1]"]
    assert_same_values(graph, work, m=ROWS, n=3)


def test_twin_a_state_in_between_is_computed() -> None:
    _, traces = loop_of(lambda _, a, b, c: [b, c + 1, a - b * c], [m[0], m[1], m[2]])
    graph = graph_of(*traces)
    work = turned(graph)
    assert labels(only_scan(work.fgraph)) == ["mit_sot[0]", "sit_sot[0]"]
    assert_same_values(graph, work, m=ROWS, n=5)


def test_twin_a_state_that_is_shifted_twice() -> None:
    _, traces = loop_of(lambda _, a, b, c: [c, c, a - b + c], [m[0], m[3], m[1]])
    graph = graph_of(*traces)
    work = turned(graph)
    view = only_scan(work.fgraph)
    assert labels(view) == ["mit_sot[0]", "sit_sot[0]"]
    assert_same_values(graph, work, m=ROWS, n=5)


def test_twin_the_oldest_is_not_read() -> None:
    lasts, _ = loop_of(lambda _, a, b: [b, b * 0.5], [m[0], m[1]])
    graph = graph_of(*lasts)
    work = turned(graph)
    assert {label.partition("[")[0] for label in labels(only_scan(work.fgraph))} <= {
        "sit_sot",
        "untraced",
    }
    assert_same_values(graph, work, m=ROWS, n=5)


def test_states_that_take_each_others_values() -> None:
    _, traces = loop_of(lambda _, a, b, c: [b, c, a], [m[0], m[1], m[2]])
    graph = graph_of(*traces)
    work = turned(graph)
    view = only_scan(work.fgraph)
    assert labels(view) == ["mit_sot[0]"]
    assert view.slots[0].taps == (-3,)
    assert_same_values(graph, work, m=ROWS, n=5)


def test_twin_whole_numbers_without_a_trace() -> None:
    lasts, _ = loop_of(lambda _, a, b: [b, a + b], [pt.lscalar("i"), pt.lscalar("j")])
    graph = graph_of(*lasts)
    work = turned(graph)
    assert labels(only_scan(work.fgraph)) == ["untraced[0]", "untraced[1]"]
    assert_same_values(graph, work, i=1, j=1, n=10)


@pytest.mark.parametrize("bound", [0.5, 5.0, 1e9])
def test_taps_of_a_loop_that_stops(bound: float) -> None:
    ys = scan(
        lambda a, b, w: (a + b, until(b > w)),
        outputs_info=[{"initial": m[:2, 0], "taps": [-2, -1]}],
        non_sequences=[w],
        n_steps=12,
    )
    trip = RoundTrip.of(graph_of(whole(ys), ys[-1], ys.shape[0]), "remove-unused")
    assert loop_ops(trip.back) == loop_ops(trip.scans)
    assert_same_values(trip.scans, trip.back, m=ROWS, w=bound)


def ring(shift: int, *, size: int = 3, extra: int = 0) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the outputs of a loop that carries the last rows of a trace in one array."""

    index, rows = pt.lscalar("index"), pt.tensor("rows", shape=(size, 2), dtype="float64")
    value = rows[(index + shift) % size] * 0.5 + rows[(index + shift + size - 1) % size]
    place = (index + shift + extra) % size
    next_states = [pt.set_subtensor(rows[place], value)]
    body = Body(index=index, states=[rows], next_states=next_states, traced=[value])
    last, rings, trace, _ = TracedLoop.over(n, body, [pt.specify_shape(m[:size], (size, 2))], {})
    return [last], [rings], [trace]


@pytest.mark.parametrize("steps", [0, 1, 2, 7])
def test_a_ring_of_rows(steps: int) -> None:
    _, _, (trace,) = ring(3)
    graph = graph_of(trace)
    work = turned(graph)
    assert labels(only_scan(work.fgraph)) == ["mit_sot[0]"]
    assert_same_values(graph, work, m=ROWS, n=steps)


@pytest.mark.parametrize(
    ("shift", "extra"),
    [(1, 0), (3, 1)],  # the oldest row is not row 0; what is written is not the oldest
)
def test_twin_rings_that_are_shifted(shift: int, extra: int) -> None:
    _, _, (trace,) = ring(shift, extra=extra)
    graph = graph_of(trace)
    work = turned(graph)
    assert "mit_sot[0]" not in labels(only_scan(work.fgraph))
    assert_same_values(graph, work, m=ROWS, n=7)


def test_twin_rings_that_are_traced() -> None:
    index, rows = pt.lscalar("index"), pt.tensor("rows", shape=(3, 2), dtype="float64")
    new = pt.set_subtensor(rows[index % 3], rows[index % 3] * 2)
    body = Body(index=index, states=[rows], next_states=[new], traced=[new])
    graph = graph_of(TracedLoop.over(n, body, [pt.specify_shape(m[:3], (3, 2))], {})[2])
    work = turned(graph)
    assert "mit_sot[0]" not in labels(only_scan(work.fgraph))
    assert_same_values(graph, work, m=ROWS, n=7)


def test_twin_rings_that_are_read() -> None:
    (last,), _, (trace,) = ring(3)
    graph = graph_of(trace, last)
    work = turned(graph)
    assert "mit_sot[0]" not in labels(only_scan(work.fgraph))
    assert_same_values(graph, work, m=ROWS, n=7)


def array_of(following: Callable[[Any, Any], Any]) -> Any:
    """Return the sums of the rows that a step reads of an array, which it carries."""
    index, rows = pt.lscalar("index"), pt.tensor("rows", shape=(3, 2), dtype="float64")
    sums = rows[index % 3].sum()
    body = Body(index=index, states=[rows], next_states=[following(index, rows)], traced=[sums])
    return TracedLoop.over(n, body, [pt.specify_shape(m[:3], (3, 2))], {})[2]


def test_an_array_that_is_a_ring() -> None:
    graph = graph_of(array_of(lambda i, rows: pt.set_subtensor(rows[i % 3], rows[i % 3] * 2)))
    work = turned(graph)
    assert sorted(labels(only_scan(work.fgraph))) == ["mit_sot[0]", "nit_sot[0]"]
    assert_same_values(graph, work, m=ROWS, n=7)


@pytest.mark.parametrize(
    "following",
    [
        lambda i, rows: pt.set_subtensor(rows[i % 3], rows[(i + 1) % 3] + rows.sum(axis=0)),
        lambda i, rows: pt.inc_subtensor(rows[i % 3], rows[i % 3]),
        lambda i, rows: pt.set_subtensor(rows[i % 2], rows[i % 3] * 2),
        lambda i, rows: pt.set_subtensor(rows[i % 3, 0], rows[i % 3, 1]),
        lambda i, rows: pt.set_subtensor(rows[(2 * i) % 3], rows[i % 3]),
        lambda i, rows: pt.set_subtensor(rows[i % 3], rows[i % 3][:1]),
        lambda i, rows: rows[::-1],
        lambda i, rows: pt.set_subtensor(
            pt.set_subtensor(rows[i % 3], rows[i % 3] * 2)[(i + 1) % 3], rows[i % 3]
        ),
    ],
)
def test_twin_arrays_that_are_no_rings(following: Any) -> None:
    graph = graph_of(array_of(following))
    work = turned(graph)
    assert "mit_sot[0]" not in labels(only_scan(work.fgraph))
    assert_same_values(graph, work, m=ROWS, n=7)


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("taps", [[-1], [-1, -3]])
@pytest.mark.parametrize("order", [1, 2])
def test_mit_mots_come_back(taps: list[int], order: int) -> None:
    graph = graph_of(gradient_with_mit_mots(x, taps, order))
    trip = RoundTrip.of(graph, "remove-unused,clean-slices")
    scans, _, back = trip.costs
    assert (back.traces, back.arrays) == (scans.traces, scans.arrays)
    found = [view.info for view in loop_ops(trip.back)]
    assert [len(info.mit_mot_in_slices) for info in found] == [
        len(op.info.mit_mot_in_slices) for op in loop_ops(trip.scans)
    ]
    assert any(info.mit_mot_in_slices for info in found)
    assert_same_values(trip.scans, trip.back, x=0.5)
    compiled = [
        pytensor.function(list(g.inputs), list(g.outputs), mode=mode)(0.5)
        for g in (trip.scans, trip.back)
        for mode in (PLAIN, "FAST_RUN")
    ]
    for value in compiled[1:]:
        np.testing.assert_allclose(value, compiled[0])


def test_second_gradients_of_what_comes_back() -> None:
    ys = scan(
        lambda a, b: pt.sin(a) * b, outputs_info=[{"initial": v, "taps": [-2, -1]}], n_steps=5
    )
    trip = RoundTrip.of(graph_of((ys**2).sum()))

    def hessian(of: Graph) -> Graph:
        (given,) = of.inputs
        slope = pytensor.grad(of.outputs[0], given)
        return from_io([given], [pytensor.grad(slope.sum(), given)])

    assert_same_values(hessian(trip.scans), hessian(trip.back), v=np.array([0.5, 0.7]))
