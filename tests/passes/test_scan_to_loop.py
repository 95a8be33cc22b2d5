"""`scan-to-loop`: Scans become loops of states and traces, and compute the same."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph
from pytensor.scalar.basic import add
from pytensor.scan.op import Scan
from pytensor.scan.utils import until
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.loop import TracedLoop
from support.evaluating import PLAIN
from support.graph_building import (
    assert_same_values,
    gradient_with_mit_mots,
    graph_of,
    only_scan,
    optimized,
    rid_of,
    scan,
)
from support.tiers import deep

x, w = pt.dscalars("x", "w")
n = pt.lscalar("n")
v = pt.dvector("v")
m = pt.dmatrix("m")


def converted(graph: Graph) -> Graph:
    return rid_of(Scan, graph, "scan-to-loop")


def loops(graph: Graph) -> list[TracedLoop]:
    return [node.op for node in walk(graph.fgraph) if isinstance(node.op, TracedLoop)]


def whole(states: Any) -> Any:
    return states.owner.inputs[0]


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_cases_1_2_and_5(steps: int) -> None:
    ys, zs = scan(
        lambda s, t, y, w: [y * w + s * t, y - s],
        sequences=[{"input": v, "taps": [0, 1]}],
        outputs_info=[x, None],
        non_sequences=[w],
        n_steps=n,
    )
    graph = graph_of(whole(ys), zs, ys[-2:])
    work = converted(graph)
    (op,) = loops(work)
    assert (op.n_states, op.n_traced) == (1, 1)
    assert_same_values(graph, work, x=0.5, w=2.0, v=np.arange(7.0), n=steps)


@pytest.mark.parametrize("taps", [[-1, -2], [-3], [-1, -8], [-2, -9], [-12, -5]])
@pytest.mark.parametrize("steps", [0, 1, 3, 14])
def test_case_3(taps: list[int], steps: int) -> None:
    initial = m[: -min(taps)]
    ys = scan(
        lambda *rows: sum(rows[1:], rows[0] * 0.5) + 1,
        outputs_info=[{"initial": initial, "taps": taps}],
        n_steps=n,
    )
    graph = graph_of(whole(ys), ys[-1:])
    work = converted(graph)
    (op,) = loops(work)
    assert op.n_states == (-min(taps) if min(taps) >= -8 else 1)
    assert_same_values(graph, work, m=np.arange(30.0).reshape(15, 2), n=steps)


def test_case_4() -> None:
    rng = pytensor.shared(np.random.default_rng(5))
    draws, following = scan(
        lambda rng: pt.random.normal(rng=rng).owner.outputs[::-1],
        outputs_info=[None, rng],
        n_steps=4,
    )
    graph = graph_of(draws, following)
    work = converted(graph)
    one, other = (pytensor.function(g.inputs, g.outputs[0], mode=PLAIN)() for g in (graph, work))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("taps", [[-1], [-1, -3]])
def test_case_6(taps: list[int], order: int) -> None:
    """Gradients have mit_mots, with several taps ahead and behind."""
    graph = graph_of(gradient_with_mit_mots(x, taps, order))
    assert_same_values(graph, converted(graph), x=0.5)


@pytest.mark.parametrize("bound", [0.5, 5.0, 1e9])
def test_case_7(bound: float) -> None:
    ys, zs = scan(
        lambda y, w: ([y * 2, y + 1], until(y > w)),
        outputs_info=[x, None],
        non_sequences=[w],
        n_steps=12,
    )
    graph = graph_of(whole(ys), zs, ys[-1], ys.shape[0])
    work = converted(graph)
    assert_same_values(graph, work, x=1.0, w=bound)


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("steps", [1, 2, 6])
@pytest.mark.parametrize("read", [lambda ys: ys[-1], lambda ys: ys[-3:].sum()])
def test_buffers_that_do_not_hold_every_step(read: Any, steps: int) -> None:
    ys, zs = scan(lambda y: [y * 2, y + 1], outputs_info=[x, None], n_steps=n)
    graph = graph_of(read(ys), read(zs))
    short, _ = optimized(graph, "default")
    assert_same_values(short, converted(short), x=1.0, n=steps + 2)


def test_initial_rows_that_are_broadcast() -> None:
    """A buffer may be filled with one number; PyTensor and passes write such buffers."""
    ys = scan(lambda y, c: y @ c + y, outputs_info=[m * 0], non_sequences=[m], n_steps=3)
    view = only_scan(graph_of(ys).fgraph)
    room: Any = pt.empty((4, *view.of_kind(SlotKind.NON_SEQ)[0].outer_input.shape))
    (state,) = view.of_kind(SlotKind.SIT_SOT)
    state.outer_input = pt.set_subtensor(room[:1], np.ones((1, 1, 1)))
    (buffer,) = view.rebuild().values()
    graph = graph_of(buffer)
    assert_same_values(graph, converted(graph), m=np.array([[0.5, 0.1], [0.3, 0.2]]))


@pytest.mark.parametrize("more", [1, 4])
def test_rows_behind_the_last_step_are_zero(more: int) -> None:
    """A buffer with more room than steps, as in truncated gradients."""
    ys = scan(lambda y: y * 2, outputs_info=[x], n_steps=3)
    node = whole(ys).owner
    longer = node.op(node.inputs[0], pt.join(0, node.inputs[1], pt.ones(more)))
    graph = graph_of(longer)
    assert_same_values(graph, converted(graph), x=1.0)


def test_loops_in_loops() -> None:
    def outer(row: Any) -> Any:
        return scan(lambda s, y: y * 0.5 + s, sequences=[row], outputs_info=[x * 0 + 1.0])[-1]

    graph = graph_of(scan(outer, sequences=[m]))
    work = converted(graph)
    assert len(loops(work)) == 2
    assert_same_values(graph, work, m=np.arange(6.0).reshape(2, 3), x=2.0)


def test_the_gradient_of_the_loop() -> None:
    ys = scan(
        lambda s, y, w: pt.tanh(y * w + s), sequences=[v], outputs_info=[x], non_sequences=[w]
    )
    graph = graph_of(ys.sum() + ys[-1] ** 2)
    work = converted(graph)
    slopes = []
    for one in (graph, work):
        by_name = {variable.name: variable for variable in one.inputs}
        wrt = [by_name[name] for name in ("x", "w", "v")]
        function = pytensor.function(wrt, pytensor.grad(one.outputs[0], wrt), mode=PLAIN)
        slopes.append(function(0.3, 0.7, np.arange(4.0)))
    for one_slope, other in zip(*slopes, strict=True):
        np.testing.assert_allclose(one_slope, other)


@pytest.mark.parametrize("steps", [0, 1, 4])
@pytest.mark.parametrize(
    "core",
    [
        lambda ys, zs: [whole(ys), zs, ys[-1:]],
        lambda ys, zs: [zs.sum(axis=0), ys.sum()],
        lambda ys, zs: [pytensor.grad((ys * zs).sum(), [x, w])[1], ys.shape[0]],
    ],
)
def test_loops_with_a_batch(core: Any, steps: int) -> None:
    ys, zs = scan(
        lambda s, y, c: [y * c + s, y * y],
        sequences=[v],
        outputs_info=[x, None],
        non_sequences=[w],
        n_steps=n,
    )
    xs, vs = pt.dvector("xs"), pt.dmatrix("vs")
    outputs = vectorize_graph(core(ys, zs), {x: xs, v: vs})
    graph = graph_of(*outputs)
    work = converted(graph)
    values = np.random.default_rng(4)
    data = {"xs": values.normal(size=3), "vs": values.normal(size=(3, 5)), "w": 0.5, "n": steps}
    assert_same_values(graph, work, **data)


@pytest.mark.parametrize("taps", [[-1, -2], [-9]])
def test_older_rows_with_a_batch(taps: list[int]) -> None:
    ys = scan(
        lambda *rows: sum(rows[1:], rows[0] * 0.5) + w,
        outputs_info=[{"initial": v, "taps": taps}],
        n_steps=5,
        non_sequences=[],
    )
    rows = pt.dmatrix("rows")
    graph = graph_of(vectorize_graph(ys, {v: rows}))
    work = converted(graph)
    initial = np.random.default_rng(4).normal(size=(3, -min(taps)))
    assert_same_values(graph, work, rows=initial, w=0.5)


def test_a_result_that_does_not_depend_on_the_batch() -> None:
    ys, zs = scan(lambda y, z: [y * 2, z + 1], outputs_info=[x, w], n_steps=3)
    batch = pt.dvector("batch")
    graph = graph_of(*vectorize_graph([ys, zs], {x: batch}))
    assert_same_values(graph, converted(graph), batch=np.arange(4.0), w=0.5)


def root_of(graph_input: Any) -> Any:
    """Return the estimates of a square root by Newton's method, until they stand."""
    return scan(
        lambda y, a: (0.5 * (y + a / y), until(abs(y * y - a) < 1e-3)),
        outputs_info=[pt.ones_like(graph_input)],
        non_sequences=[graph_input],
        n_steps=30,
    )


def test_a_batch_whose_entries_stop_together() -> None:
    batch, rows = pt.dvector("batch"), pt.dmatrix("rows")
    zs = scan(
        lambda row, i, y: ([y + row * i, y], until(pt.ge(i, 3))),
        sequences=[v, pt.arange(v.size)],
        outputs_info=[x, None],
    )
    graph = graph_of(*vectorize_graph([zs[0], zs[1].sum(), zs[0][-1]], {x: batch, v: rows}))
    data = {"batch": np.arange(3.0), "rows": np.arange(18.0).reshape(3, 6)}
    assert_same_values(graph, converted(graph), **data)


def falling(graph_input: Any) -> Any:
    """Return a loop whose step cannot be taken once it has ended."""
    return scan(lambda y: (y - pt.sqrt(y), until(y < 1.5)), outputs_info=[graph_input], n_steps=30)


@pytest.mark.parametrize("core", [root_of, falling])
@pytest.mark.parametrize("mode", [PLAIN, "FAST_RUN", *deep("NUMBA")])
def test_a_batch_whose_entries_stop_apart(core: Any, mode: Any) -> None:
    """PyTensor cannot stack what its Scans return, so it raises an error."""
    batch = pt.dvector("batch")
    (last,) = vectorize_graph([core(x)[-1]], {x: batch})
    numbers = np.array([1.1, 2.0, 400.0])
    work = optimized(graph_of(last), "scan-to-loop,trace-to-last")[0]
    (found_last,) = work.outputs
    slope = pytensor.grad(found_last.sum(), work.inputs)
    function = pytensor.function(list(work.inputs), [found_last, *slope], mode=mode)
    one = pytensor.function([x], [core(x)[-1], pytensor.grad(core(x)[-1], x)], mode=PLAIN)
    for found, wanted in zip(function(numbers), zip(*map(one, numbers), strict=True), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10)
    with pytest.raises(ValueError, match=r"shape"):
        pytensor.function([batch], [vectorize_graph(core(x), {x: batch})], mode=PLAIN)(numbers)


def test_twin_all_rows_of_entries_that_stop_apart() -> None:
    batch = pt.dvector("batch")
    graph = graph_of(vectorize_graph(root_of(x), {x: batch}))
    work = converted(graph)
    together = np.array([4.0, 4.0])
    assert_same_values(graph, work, batch=together)
    function = pytensor.function(list(work.inputs), list(work.outputs), mode=PLAIN)
    with pytest.raises(AssertionError, match="run different numbers of steps"):
        function([1.0, 400.0])


def truncated(taps: list[int], limit: int) -> Any:
    """A cost of a loop whose gradient is truncated."""
    ys, zs = scan(
        lambda s, *rest: [pt.tanh(sum(rest[:-1]) * rest[-1] + s), s * rest[0] ** 2],
        sequences=[v],
        outputs_info=[{"initial": m[: -min(taps)], "taps": taps}, None],
        non_sequences=[w],
        truncate_gradient=limit,
    )
    return ys.sum() + (ys[-1] ** 2).sum() + zs.sum() + (zs[0] ** 3).sum()


_QUICK = [([-1], 2), ([-1], 5), ([-1, -3], 4), ([-9, -1], 1), ([-9, -1], 6)]
_TRUNCATED = product([[-1], [-1, -3], [-9, -1]], [1, 2, 4, 5, 6])


@pytest.mark.tiered(every=7)
@pytest.mark.parametrize(
    ("taps", "limit"), [*_QUICK, *deep(*(case for case in _TRUNCATED if case not in _QUICK))]
)
def test_truncated_gradients(taps: list[int], limit: int) -> None:
    graph = graph_of(truncated(taps, limit))
    values = {"m": np.linspace(0, 1, 18).reshape(9, 2), "v": np.arange(5.0), "w": 0.7}
    work = converted(graph)
    assert len(loops(work)) == 2
    assert_same_values(graph, work, **values)
    slopes = [from_io(g.inputs, pytensor.grad(g.outputs[0], list(g.inputs))) for g in (graph, work)]
    assert_same_values(*slopes, **values)
    # Of a Scan, the gradient again has a limit, which its trip count does not pass.
    assert_same_values(slopes[0], converted(slopes[0]), **values)


def test_a_limit_that_truncates_nothing() -> None:
    ys = scan(lambda y: y * 2, outputs_info=[x], n_steps=3, truncate_gradient=3)
    assert len(loops(converted(graph_of(ys)))) == 1


def test_draws_of_a_truncated_loop() -> None:
    rng = pytensor.shared(np.random.default_rng(5))

    def step(y: Any, rng: Any, w: Any) -> Any:
        following, draw = pt.random.normal(rng=rng).owner.outputs
        return y * w + draw, following

    ys, _ = scan(step, outputs_info=[x, rng], non_sequences=[w], n_steps=6, truncate_gradient=2)
    graph = graph_of(ys[-1])
    found = []
    for one in (graph, converted(graph)):
        by_name = {variable.name: variable for variable in one.inputs}
        wrt = [by_name[name] for name in ("x", "w")]
        outputs = [one.outputs[0], *pytensor.grad(one.outputs[0], wrt)]
        found.append(pytensor.function(wrt, outputs, mode=PLAIN)(0.5, 0.7))
    np.testing.assert_allclose(*found)


def test_truncated_while_loops_stay() -> None:
    ys = scan(lambda y: (y * 2, until(y > 5)), outputs_info=[x], n_steps=9, truncate_gradient=2)
    _, remarks = optimized(graph_of(ys), "scan-to-loop")
    assert remarks == [
        "missed scan_fn: stays a Scan: its gradient is truncated, and it has a stop condition or "
        "a mit_mot"
    ]


def test_loops_in_place_stay() -> None:
    ys = scan(lambda y: Elemwise(add, {0: 0})(y * 2, 1.0), outputs_info=[x], n_steps=3)
    _, remarks = optimized(graph_of(ys), "scan-to-loop")
    assert remarks == ["missed scan_fn: a step works in place"]
