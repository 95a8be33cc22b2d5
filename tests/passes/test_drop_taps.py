"""drop-taps: its legal cases by number, and a twin that must not fire for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.scan.utils import until

import scanopt_cli as so
from scanopt_cli.ir.graph import Graph
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import SlotKind
from support.compiled_ways import EVERY_WAY, NUMBA, VM, assert_right
from support.graph_building import (
    arguments,
    assert_same_values,
    graph_of,
    only_scan,
    optimized,
    outputs_of,
    scan,
    scan_views,
)

N = pt.lscalar("n")
V = pt.dvector("v")
M = pt.dmatrix("m")

Step = Callable[..., Any]


def nearest(y3: Any, y2: Any, y1: Any) -> Any:
    return pt.sin(y1) + 0.3


def second(y3: Any, y2: Any, y1: Any) -> Any:
    return pt.cos(y2) * 1.1


def outermost(y3: Any, y2: Any, y1: Any) -> Any:
    return pt.tanh(y1) + y3 * 0.5


def farthest(y3: Any, y2: Any, y1: Any) -> Any:
    return pt.exp(-y3)


STEPS = {"nearest": nearest, "second": second, "outermost": outermost, "farthest": farthest}
TAPS = {"nearest": (-1,), "second": (-2,), "outermost": (-3, -1), "farthest": (-3,)}
BY_NAME = pytest.mark.parametrize("name", STEPS)


def _loop(step: Step, start: Any = V, n_steps: Any = N) -> Any:
    return scan(step, outputs_info=[{"initial": start, "taps": [-3, -2, -1]}], n_steps=n_steps)


def _taps(view: ScanView) -> list[tuple[int, ...]]:
    kinds = (SlotKind.MIT_SOT, SlotKind.SIT_SOT, SlotKind.MIT_MOT)
    return [slot.taps for slot in view.of_kind(*kinds)]


def _gradient(ys: Any, of: Any, order: int = 1) -> Any:
    cost = (ys**2).sum()
    for _ in range(order):
        cost = pytensor.grad(cost, of).sum()
    return cost


def _assert_same(graph: Graph, after: Graph, steps: Sequence[int] = (0, 1, 2, 5)) -> None:
    values = {"v": np.array([0.3, -0.7, 1.2]), "m": np.arange(6.0).reshape(3, 2) / 7, "x": 1.3}
    for n in steps:
        assert_same_values(graph, after, n=n, k=1, **values)


@BY_NAME
@pytest.mark.parametrize("start", [V, M], ids=["numbers", "vectors"])
def test_cases_1_and_2_taps_that_are_read_stay(name: str, start: Any) -> None:
    graph = graph_of(_loop(STEPS[name], start))
    after, remarks = optimized(graph, "drop-taps")
    assert _taps(only_scan(after.fgraph)) == [TAPS[name]]
    assert any("no longer reads the taps" in remark for remark in remarks)
    _assert_same(graph, after)


def test_case_2_one_row_makes_a_sit_sot() -> None:
    after, _ = optimized(graph_of(_loop(nearest)), "drop-taps")
    assert [slot.kind for slot in only_scan(after.fgraph).slots] == [SlotKind.SIT_SOT]


def test_case_2_no_tap_is_read() -> None:
    graph = graph_of(_loop(lambda y3, y2, y1: pt.constant(np.float64(0.5))))
    after, _ = optimized(graph, "drop-taps")
    assert _taps(only_scan(after.fgraph)) == [(-1,)]
    _assert_same(graph, after)


@pytest.mark.parametrize(
    "read",
    [
        lambda ys: ys[-1],
        lambda ys: ys[::-1][:2],
        lambda ys: ys[1:],
        lambda ys: ys[-1] + ys.owner.inputs[0][:2],
        lambda ys: ys[-1] * ys.owner.inputs[0][0],
        lambda ys: ys.owner.inputs[0][2:],
        lambda ys: ys.owner.inputs[0][::-1][:-3],
    ],
    ids=["last", "reversed", "steps", "initial rows", "first", "kept rows", "reversed buffer"],
)
def test_case_2_readers(read: Callable[[Any], Any]) -> None:
    graph = graph_of(read(_loop(nearest)))
    after, _ = optimized(graph, "drop-taps")
    assert _taps(only_scan(after.fgraph)) == [(-1,)]
    _assert_same(graph, after, (2, 5))


def test_case_2_initial_rows_as_an_array() -> None:
    """A buffer that is not made of initial rows and room."""
    k = pt.dvector("v")
    ys = _loop(nearest)
    buffer = pt.concatenate([k, pt.zeros(N)])
    view = ScanView.of(ys.owner.inputs[0].owner)
    view.slots[0].outer_input = buffer
    (made,) = view.rebuild().values()
    graph = graph_of(made[3:])
    after, _ = optimized(graph, "drop-taps")
    assert _taps(only_scan(after.fgraph))[0] in ((-1,), (-3, -1))
    _assert_same(graph, after)


def test_case_2_with_other_states_and_a_generator() -> None:
    rng = pytensor.shared(np.random.default_rng(3), name="rng")

    def step(a: Any, y3: Any, y2: Any, y1: Any, z: Any, generator: Any) -> Any:
        new, draw = pt.random.normal(0, 1, rng=generator, return_next_rng=True)
        return [y1 * 0.5 + draw, z @ z + a, new]

    ys, zs, _ = scan(
        step,
        sequences=[pt.arange(N).astype("float64")],
        outputs_info=[{"initial": V, "taps": [-3, -2, -1]}, M[:2] * 0.1, rng],
        n_steps=N,
    )
    graph = graph_of(ys, zs)
    after, _ = optimized(graph, "drop-taps")
    assert (-1,) in _taps(only_scan(after.fgraph))
    values = {"v": np.array([0.3, -0.7, 1.2]), "m": np.eye(2), "n": 4}
    data = {**values, "rng": np.random.default_rng(3)}
    assert len(arguments(graph, **data)) == len(graph.inputs)
    assert_same_values(graph, after, **data)


@pytest.mark.parametrize("step", [lambda y3, y2, y1: y1 + y2 * y3, outermost], ids=["all", "two"])
def test_case_2_twin_a_tap_that_is_read(step: Step) -> None:
    after, _ = optimized(graph_of(_loop(step)), "drop-taps")
    assert min(_taps(only_scan(after.fgraph))[0]) == -3


def test_case_1_twin_every_tap_is_read() -> None:
    graph = graph_of(_loop(lambda y3, y2, y1: y1 + y2 * y3))
    assert optimized(graph, "drop-taps")[1] == []


@pytest.mark.parametrize(
    "read",
    [lambda buffer: buffer, lambda buffer: buffer[1:4], lambda buffer: buffer[pt.lscalar("k")]],
    ids=["whole", "both kinds", "some row"],
)
def test_case_2_twin_initial_rows_are_read_outside(read: Callable[[Any], Any]) -> None:
    graph = graph_of(read(_loop(nearest).owner.inputs[0]))
    after, remarks = optimized(graph, "drop-taps")
    assert _taps(only_scan(after.fgraph)) == [(-3, -1)]
    assert any("keeps the unread taps" in remark for remark in remarks)
    _assert_same(graph, after, (2, 5))


def test_case_2_twin_a_condition() -> None:
    ys = scan(
        lambda y3, y2, y1: (y1 * 2, until(y1 > 3)),
        outputs_info=[{"initial": V, "taps": [-3, -2, -1]}],
        n_steps=N,
    )
    graph = graph_of(ys)
    after, _ = optimized(graph, "drop-taps")
    assert _taps(only_scan(after.fgraph)) == [(-3, -1)]
    _assert_same(graph, after)


def test_case_2_twin_a_trimmed_buffer() -> None:
    graph, _ = optimized(graph_of(_loop(nearest)[-1]), "save-mem")
    after, _ = optimized(graph, "drop-taps")
    assert min(_taps(only_scan(after.fgraph))[0]) == -3
    _assert_same(graph, after, (1, 5))


def test_case_2_too_few_initial_rows_raise() -> None:
    """PyTensor runs such a loop, on rows that are not there."""
    graph = graph_of(_loop(second))
    after, _ = optimized(graph, "drop-taps")
    for rows in (1, 2):
        (got,) = outputs_of(after, v=np.ones(rows), n=3)
        assert isinstance(got, Exception)


@BY_NAME
def test_cases_3_and_4_gradients(name: str) -> None:
    graph = graph_of(_gradient(_loop(STEPS[name]), V))
    after, remarks = optimized(graph, "drop-taps")
    (backward,) = (v for v in scan_views(after.fgraph) if v.of_kind(SlotKind.MIT_MOT))
    (slot,) = backward.of_kind(SlotKind.MIT_MOT)
    assert sorted(slot.out_taps) == sorted(-tap for tap in TAPS[name])
    assert sorted(slot.taps) == [0, *sorted(slot.out_taps)]
    assert any("no longer writes the rows" in remark for remark in remarks)
    _assert_same(graph, after, (1, 2, 5))


def test_case_3_twin_every_row_is_written() -> None:
    graph = graph_of(_gradient(_loop(lambda y3, y2, y1: y1 * y2 + pt.sin(y3)), V))
    assert optimized(graph, "drop-taps")[1] == []


@pytest.mark.tiered(every=5)
@BY_NAME
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("start", [V, M], ids=["numbers", "vectors"])
@pytest.mark.parametrize("preset", ["drop-taps", "default", "grad", "loop"])
def test_derivatives(name: str, order: int, start: Any, preset: str) -> None:
    graph = graph_of(_gradient(_loop(STEPS[name], start), start, order))
    after = so.optimize(graph, preset).graph
    _assert_same(graph, after, (1, 4))


@pytest.mark.tiered(every=4)
@BY_NAME
@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("way", ["optimize -p default", "optimize -p grad", "enabled('loop')"])
def test_compiled(name: str, order: int, way: str) -> None:
    ys = _loop(STEPS[name])
    outputs = [_gradient(ys, V, order) if order else ys]
    values = [[np.array([0.3, -0.7, 1.2]), np.int64(n)] for n in (1, 4)]
    mode = NUMBA if "loop" in way else VM
    assert_right([V, N], outputs, values, EVERY_WAY[way], mode)


@BY_NAME
def test_the_gradient_of_what_was_rewritten(name: str) -> None:
    """The smaller loop has the derivatives of the one before."""
    graph = graph_of(_loop(STEPS[name]))
    after, _ = optimized(graph, "drop-taps")
    found = []
    for one in (graph, after):
        v = next(i for i in one.inputs if i.name == "v")
        gradient = pytensor.grad((one.outputs[0] ** 2).sum(), v)
        found.append(graph_of(gradient, pytensor.grad(gradient.sum(), v)))
    _assert_same(found[0], found[1], (1, 4))
