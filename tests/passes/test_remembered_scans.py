"""A TracedLoop remembers the settings of the Scan that it was, and the kinds of its slots."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given
from pytensor.scan.basic import scan as pytensor_scan
from pytensor.tensor.shape import Reshape

import scanopt_cli as so
from scanopt_cli import loop
from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.ir.former_scans import FormerScan
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.loop import TracedLoop
from scanopt_cli.loop.body import Body
from support.generated.strategies import GeneratedScan, scan_graphs
from support.graph_building import assert_same_values, graph_of, labels, only_scan, scan
from support.there_and_back import RoundTrip, loop_ops
from support.tiers import deep

x, w = pt.dscalars("x", "w")
n = pt.lscalar("n")
v = pt.dvector("v")
m = pt.dmatrix("m")


def with_settings() -> Graph:
    with pytest.warns(FutureWarning, match="`mode` argument"):
        ys = pytensor_scan(
            lambda row, y, w: y * w + row,
            sequences=[v],
            outputs_info=[x],
            non_sequences=[w],
            mode="FAST_COMPILE",
            profile="mine",
            allow_gc=True,
            name="settings",
            return_updates=False,
        )
    return graph_of(ys)


def one_loop(graph: Graph) -> Any:
    (op,) = loop_ops(graph)
    return op


def test_settings_come_back() -> None:
    trip = RoundTrip.of(with_settings())
    one, other = one_loop(trip.scans), one_loop(trip.back)
    assert one == other
    for name in ("name", "mode", "profile", "allow_gc", "truncate_gradient", "strict"):
        assert getattr(one, name) == getattr(other, name)
    assert so.digest(trip.back) == so.digest(trip.scans)


def test_passes_in_between_keep_settings() -> None:
    trip = RoundTrip.of(with_settings())
    graph = so.optimize(trip.loops, "merge-equal,simplify,push-out,trace-to-last").graph
    back = one_loop(so.optimize(graph, "loop-to-scan").graph)
    assert (back.mode, back.profile, back.allow_gc) == ("FAST_COMPILE", "mine", True)


def test_pickles_and_files_keep_it(tmp_path: Path) -> None:
    """Files leave the mode out, as of a Scan: that is the business of who compiles."""
    loops = RoundTrip.of(with_settings()).loops
    op = one_loop(loops)
    again = pickle.loads(pickle.dumps(op))
    assert (again, again.former, again.mode) == (op, op.former, "FAST_COMPILE")
    so.save(loops, tmp_path / "loops.pkl")
    loaded = one_loop(so.load(tmp_path / "loops.pkl"))
    assert (loaded, loaded.former, loaded.mode) == (op, op.former, None)


@pytest.mark.parametrize(
    "former",
    [
        (),
        (("sit_sot",), None, False),
        (("sit_sot",), None, False, True, 1),
        (("sit_sot", "seq"), None, False, True),  # more slots than it has
        (("sequence",), None, False, True),
        (["sit_sot"], None, False, True),
        (("sit_sot",), 1, False, True),
        (("sit_sot",), None, 0, True),
        (("sit_sot",), None, False, 1),
    ],
)
def test_what_is_no_memory_of_a_scan(former: Any) -> None:
    state = pt.dscalar()
    body = Body(index=pt.lscalar(), states=[state], next_states=[state * 2]).freeze()
    assert TracedLoop(body, 1, False, (("sit_sot",), "mine", True, True)).inner_slots()[0].former
    with pytest.raises(TypeError, match="remembers of a Scan"):
        TracedLoop(body, 1, False, former)


def both_kinds() -> tuple[TracedLoop, TracedLoop]:
    """Return a loop that was a Scan, and one of the same body that was none."""
    op = one_loop(RoundTrip.of(graph_of(scan(lambda y: y * 2, outputs_info=[x], n_steps=n))).loops)
    return op, TracedLoop(op.fgraph, op.n_states, op.is_while, name=op.name)


def test_loops_that_remember_otherwise_are_not_merged() -> None:
    """They compute the same, so their digests are equal; they become different Scans."""
    one, other = both_kinds()
    assert one != other
    assert one == one.clone_with_inner_graph(one.fgraph)
    assert Sameness().of_op(one) == Sameness().of_op(other)
    exact = Sameness(exact=True)
    assert exact.of_op(one) != exact.of_op(other)
    outputs = [op.make_node(n, x).outputs[1] for op in (one, other)]
    assert len(loop_ops(so.optimize(graph_of(*outputs), "merge-equal").graph)) == 2
    outputs = [one.make_node(n, x).outputs[1] for _ in range(2)]
    assert len(loop_ops(so.optimize(graph_of(*outputs), "merge-equal").graph)) == 1


def reshapes(graph: Graph) -> int:
    return sum(isinstance(node.op, Reshape) for node in walk(graph.fgraph))


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_trace_of_a_scan_has_its_own_shape(steps: int) -> None:
    """Of no steps it has no rows and no columns; a trace of `scanopt_cli.loop` has columns."""
    ys = scan(lambda s: s * v, sequences=[pt.arange(n)], n_steps=n)
    trip = RoundTrip.of(graph_of(ys))
    assert reshapes(trip.back) == 0
    assert_same_values(trip.scans, trip.back, v=np.ones(2), n=steps)
    _, rows = loop.scan(lambda s, _, c: (s, s * c), x, None, v, max_steps=n)
    back = so.optimize(graph_of(rows), "loop-to-scan").graph
    assert reshapes(back) == 1


@pytest.mark.parametrize("length", [3, 5])
def test_sequences_of_lengths_that_nobody_knows(length: int) -> None:
    ys = scan(lambda row, y: y + row, sequences=[v], outputs_info=[x], n_steps=n)
    view = only_scan(graph_of(ys).fgraph)
    view.slots[0].outer_input = v  # without the slice of so many rows
    (buffer,) = view.rebuild().values()
    trip = RoundTrip.of(graph_of(buffer))
    assert loop_ops(trip.back) == loop_ops(trip.scans)
    assert_same_values(trip.scans, trip.back, v=np.arange(float(length)), x=0.5, n=4)
    trace = one_loop(trip.loops)
    forgetful = TracedLoop(trace.fgraph, 1, False).make_node(n, x, v).outputs[1]
    back = so.optimize(graph_of(forgetful), "loop-to-scan").graph
    assert "non_seq[0]" in labels(only_scan(back.fgraph))


def test_states_without_readers_stay_what_they_are() -> None:
    """Of whole numbers, and without a trace, others become untraced states."""
    _, ys = scan(
        lambda i, y: [i + 1, y * i], outputs_info=[pt.constant(0, dtype="int64"), x], n_steps=n
    )
    trip = RoundTrip.of(graph_of(ys))
    assert loop_ops(trip.back) == loop_ops(trip.scans)
    assert labels(only_scan(trip.back.fgraph)) == ["sit_sot[0]", "sit_sot[1]"]


@pytest.mark.parametrize("is_declared", [True, False])
def test_lengths_that_a_step_declares_stay(is_declared: bool) -> None:
    def step(y: Any, w: Any) -> Any:
        made = pt.dot(w, y)
        return pt.specify_shape(made, (2,)) if is_declared else made

    start = pt.specify_shape(v, (2,))
    ys = scan(step, outputs_info=[start], non_sequences=[m], n_steps=n)
    trip = RoundTrip.of(graph_of(ys[-1], ys.sum(axis=0)))
    assert loop_ops(trip.back) == loop_ops(trip.scans)
    assert trip.costs[2].is_at_most(trip.costs[0])
    assert_same_values(trip.scans, trip.back, v=np.ones(2), m=np.eye(2) / 2, n=3)


def test_the_last_of_a_map_is_that_of_a_trace_again() -> None:
    ys = scan(lambda row: pt.exp(row), sequences=[m], n_steps=4)
    scans = so.optimize(graph_of(ys[-1]), "remove-unused").graph
    loops = so.optimize(scans, "scan-to-loop,trace-to-last").graph
    assert one_loop(loops).n_traced == 0
    back = so.optimize(loops, "loop-to-scan").graph
    assert labels(only_scan(back.fgraph)) == ["seq[0]", "nit_sot[0]"]
    assert_same_values(scans, back, m=np.arange(12.0).reshape(4, 3))


def test_twin_a_map_that_may_run_no_step() -> None:
    ys = scan(lambda row: pt.exp(row), sequences=[m])
    scans = so.optimize(graph_of(ys[-1]), "remove-unused").graph
    loops = so.optimize(scans, "scan-to-loop,trace-to-last").graph
    back = so.optimize(loops, "loop-to-scan").graph
    assert labels(only_scan(back.fgraph)) == ["seq[0]", "untraced[0]"]
    for rows in (0, 1, 4):
        assert_same_values(loops, back, m=np.ones((rows, 3)))


@pytest.mark.parametrize("mode", ["FAST_RUN", *deep("NUMBA")])
@pytest.mark.parametrize("name", ["FAST_COMPILE", None])
def test_what_comes_back_compiles(mode: str, name: str | None) -> None:
    """A buffer that is kept is one that PyTensor compiled before, too."""
    ys = scan(lambda y, w: pt.tanh(y * w), outputs_info=[x], non_sequences=[w], n_steps=6)
    cost = (ys**2).sum() if name else ys[-1]
    trip = RoundTrip.of(graph_of(cost, *pytensor.grad(cost, [x, w])))
    values = [
        pytensor.function(list(graph.inputs), list(graph.outputs), mode=mode)(0.3, 0.7)
        for graph in (trip.scans, trip.back)
    ]
    np.testing.assert_allclose(*values)


def test_a_type_that_says_more_stays() -> None:
    """The rows that a step copies are three wide, for the second state's first rows are."""
    us, rows = pt.dvector("us"), pt.constant(np.zeros((2, 3)))
    _, ys = scan(
        lambda u, _y2, _y1: (u, u),
        outputs_info=[us, {"initial": rows, "taps": [-2, -1]}],
        n_steps=n,
    )
    trip = RoundTrip.of(graph_of(ys))
    scans, _, back = trip.costs
    assert trip.told == 1
    assert back.is_at_most(scans, told=1)
    assert trip.back.outputs[0].type.shape == (None, 3)


@given(scan_graphs(blockwise=False, gradients=False))
def test_generated_scans_come_back_at_no_cost(generated: GeneratedScan) -> None:
    trip = RoundTrip.of(from_io(generated.inputs, generated.outputs))
    scans, _, back = trip.costs
    assert back.is_at_most(scans, told=trip.told)


def test_a_former_scan_is_a_plain_tuple() -> None:
    """So a pickle of a loop holds nothing but what any pickle may."""
    op, _ = both_kinds()
    assert op.former is not None
    assert type(op.former) is tuple
    assert all(type(kind) is str for kind in FormerScan(*op.former).kinds)


@pytest.mark.parametrize("order", [1, *deep(2)])
def test_a_gradient_as_loops_is_saved_and_read(order: int, tmp_path: Path) -> None:
    """Passes that build a loop again say anew which kinds its slots had."""
    v, w = pt.dvector("v"), pt.dmatrix("w")
    states = scan(lambda h, w: pt.tanh(w @ h), outputs_info=[v], non_sequences=[w], n_steps=4)
    found = (states[-1] ** 2).sum()
    for _ in range(order):
        found = pt.grad(found, w).sum()
    graph = so.optimize(from_io([v, w], [found]), "loop").graph
    so.save(graph, tmp_path / "loops.pkl")
    assert so.digest(so.load(tmp_path / "loops.pkl")) == so.digest(graph)
