"""`loops-to-ops`: rows that are joined, reshaped, sorted, read and written by index; solutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_loops_to_ops import (
    Built,
    differentiated,
    float_inputs,
    h,
    m,
    mapped,
    t,
    three,
    v,
    values,
    w,
    x,
)

from scanopt_cli.ir.graph import Graph
from support.compiled_ways import NUMBA, VM, assert_close, compiled
from support.evaluating import assert_same_outcomes, evaluate
from support.graph_building import arguments, graph_of, optimized, scan
from support.needless_loops import (
    LOOPS,
    RUN,
    assert_compiled_values_stay,
    assert_needs_no_loop,
    assert_values_stay,
    has_loop,
)
from support.tiers import deep, examples

k, j = pt.lvector("k"), pt.lvector("j")
q = pt.lmatrix("q")
PLACES = {
    "k": lambda steps: np.arange(steps) % 3 - 1,
    "j": lambda steps: np.arange(steps) % 2,
    "q": lambda steps: np.arange(2 * steps).reshape(steps, 2) % 3,
}


def numbers(steps: int) -> dict[str, Any]:
    """Values of all inputs; ``w`` can be solved by, and places are within three entries."""
    found = values(steps) | {name: make(steps) for name, make in PLACES.items()}
    return found | {"w": found["w"] + 4 * np.eye(3)}


CASES: dict[str, Built] = {
    "1: rows joined": lambda: mapped(lambda r, q: pt.concatenate([r, q]) * 2, m, m**2),
    "1: joined with an invariant": lambda: mapped(lambda r, h: pt.concatenate([h, r]), m, given=h),
    "1: matrices joined": lambda: mapped(lambda r: pt.concatenate([r, r * 2], axis=1), t),
    "1: numbers stacked": lambda: mapped(lambda a, x: pt.stack([a, x, pt.exp(a)]), v, given=x),
    "1: rows stacked": lambda: mapped(lambda r: pt.stack([r, r * r]), m),
    "1: a row split": lambda: mapped(
        lambda r: (lambda parts: parts[1] * parts[0].sum())(
            pt.split(r, [1, 2], n_splits=2, axis=0)
        ),
        m,
    ),
    "1: reshaped": lambda: mapped(lambda r: r.reshape((3, 2)), t),
    "1: reshaped, one length left out": lambda: mapped(lambda r: r.reshape((3, -1)), t),
    "6: reshaped, a length left out beside one that may be 0": lambda: mapped(
        lambda r: r.reshape((r.shape[1], -1)), t
    ),
    "1: reshaped as another row": lambda: mapped(lambda r, q: r.reshape(q.shape) * q, t, t * 2),
    "1: flattened": lambda: mapped(lambda r: r.flatten(), t),
    "1: some axes joined": lambda: mapped(
        lambda r: pt.join_dims(pt.stack([r, r * 2]), start_axis=0, n_axes=2), t
    ),
    "1: an axis split": lambda: mapped(lambda r: pt.split_dims(r, shape=(2, 1), axis=0), t),
    "1: of a specified shape": lambda: mapped(lambda r: pt.specify_shape(r, (None, 3)) * 2, t),
    "1: filled in": lambda: mapped(lambda a: pt.alloc(pt.exp(a), 2, 3), v),
    "1: repeated": lambda: mapped(lambda r: pt.repeat(r, 2), m),
    "1: sorted": lambda: mapped(lambda r: pt.sort(r), m),
    "1: sorted along one axis": lambda: mapped(lambda r: pt.sort(r, axis=0), t),
    "1: ranks": lambda: mapped(lambda r: pt.argsort(r) * 1.0, m),
    "1: any and all": lambda: mapped(
        lambda r: pt.switch(pt.any(r > 1), 1.0, 0.5) * pt.switch(pt.all(r > 0), r, r**2), m
    ),
    "1: a solution": lambda: mapped(lambda r, w: pt.linalg.solve(w, r), m, given=w),
    "1: a solution of columns": lambda: mapped(
        lambda r, w: pt.linalg.solve_triangular(w, r.T, lower=True), t, given=w
    ),
    "1: products of two rows": lambda: mapped(lambda r, q: r @ q.T, t, t * 2),
    "1: a matrix times its row": lambda: mapped(lambda r, q: r @ q, t, m),
    "6: the largest": lambda: mapped(lambda r: r.max() - r.min(), m),
    "6: the largest along one axis": lambda: mapped(lambda r: r.max(axis=1), t),
    "6: where the largest is": lambda: mapped(lambda r: pt.argmax(r) * r, m),
    "6: where it is along one axis": lambda: mapped(lambda r: pt.argmin(r, axis=0) * r, t),
    "6: softmax": lambda: mapped(lambda r: pt.special.softmax(r), m),
    "6: log-softmax": lambda: mapped(lambda r: pt.special.log_softmax(r, axis=0), t),
    "6: entries": lambda: mapped(lambda r: r[0] * r[-1], m),
    "6: a column": lambda: mapped(lambda r: r[:, 1], t),
    "6: an entry of an invariant": lambda: mapped(lambda a, h: a * h[1], v, given=h),
    "6: a place that no step changes": lambda: mapped(
        lambda r, i: r[i[0]], m, given=pt.constant([1, 2])
    ),
    "6: chosen entries": lambda: mapped(lambda r: r[[2, 0]], m),
    "6: chosen columns": lambda: mapped(lambda r: r[:, [2, 0, 2]], t),
    "6: an entry set": lambda: mapped(lambda r: pt.set_subtensor(r[0], 2.0) ** 2, m),
    "6: a slice set": lambda: mapped(lambda r: pt.set_subtensor(r[1:], r[0]) ** 2, m),
    "6: a column added to": lambda: mapped(lambda r, q: pt.inc_subtensor(r[:, 0], q[:2]), t, m),
    "6: a row written into an invariant": lambda: mapped(
        lambda a, h: pt.set_subtensor(h[1], a), v, given=h
    ),
    "6: chosen entries added to": lambda: mapped(
        lambda r: pt.inc_subtensor(r[[2, 0, 2]], r * 2) ** 2, m
    ),
    "7: an entry of an invariant": lambda: mapped(lambda i, h: h[i] ** 2, k, given=h),
    "7: a row of an invariant": lambda: mapped(lambda i, w: pt.tanh(w[i]), k, given=w),
    "7: a column of an invariant": lambda: mapped(lambda i, w: w[1:, i] ** 2, k, given=w),
    "7: by two places": lambda: mapped(lambda i, j, w: w[i, j], k, j, given=w),
    "7: by a place and a number": lambda: mapped(lambda i, w: w[i, 1], k, given=w),
    "7: an entry of the row": lambda: mapped(lambda r, i: r[i], m, k[: m.shape[0]]),
    "7: by several places": lambda: mapped(lambda i, h: h[i].sum(), q, given=h),
    "7: an entry written": lambda: mapped(
        lambda r, i: pt.set_subtensor(r[i], 0.5) ** 2, m, k[: m.shape[0]]
    ),
    "7: entries of a small row": lambda: mapped(lambda i, w: (w[i] ** 2).sum(), k, given=three(w)),
    "8: entries added to": lambda: scan(
        lambda i, a, s: pt.inc_subtensor(s[i], a**2), sequences=[k, v], outputs_info=[h]
    )[-1],
    "8: rows added to": lambda: scan(
        lambda i, r, s: pt.inc_subtensor(s[i], r**2), sequences=[k, m], outputs_info=[w]
    )[-1],
    "8: a number added to rows": lambda: scan(
        lambda i, a, s: pt.inc_subtensor(s[i], a), sequences=[k, v], outputs_info=[w]
    )[-1],
    "8: entries at two places": lambda: scan(
        lambda i, j, a, s: pt.inc_subtensor(pt.inc_subtensor(s[i], a)[j], -a * a),
        sequences=[k, j, v],
        outputs_info=[h],
    )[-1],
    "8: what no step changes": lambda: scan(
        lambda i, s, x: pt.inc_subtensor(s[i], x),
        sequences=[k],
        outputs_info=[h],
        non_sequences=[x],
    )[-1],
}


@pytest.mark.parametrize("steps", [0, 1, 5])
@pytest.mark.parametrize("pipeline", [RUN, LOOPS], ids=["scan", "traced loop"])
@pytest.mark.parametrize("case", CASES)
def test_case(case: str, pipeline: str, steps: int) -> None:
    graph = graph_of(CASES[case]())
    assert_needs_no_loop(graph, pipeline, numbers(steps))


@pytest.mark.parametrize("mode", [VM, *deep(NUMBA)], ids=["vm", "numba"])
@pytest.mark.parametrize("case", CASES)
def test_compiled(case: str, mode: Any) -> None:
    graph = graph_of(CASES[case]())
    work, _ = optimized(graph, RUN)
    function = compiled(work.inputs, work.outputs, mode)
    for steps in (1, 4):
        data = arguments(graph, **numbers(steps))
        wanted = evaluate(graph.inputs, graph.outputs, data)
        for old, new in zip(wanted, function(*data), strict=True):
            assert_close(old, new)


@pytest.mark.tiered(every=4)
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(
    "case", [name for name, build in CASES.items() if float_inputs(graph_of(build()))]
)
def test_derivatives(case: str, order: int) -> None:
    graph = differentiated(CASES[case], order, lambda before: optimized(before, RUN)[0])
    for steps in (1, 4):
        found = evaluate(graph.inputs, graph.outputs, arguments(graph, **numbers(steps)))
        half = len(found) // 2
        pairs = zip(found[:half], found[half:], strict=True)
        # PyTensor cannot run a second derivative of a row that is not read.
        pairs = [pair for pair in pairs if not isinstance(pair[0], AttributeError)]
        assert_same_outcomes([old for old, _ in pairs], [new for _, new in pairs], rtol=1e-7)


@pytest.mark.parametrize("preset", ["default", "grad"])
@pytest.mark.parametrize("case", CASES)
def test_presets_leave_no_loop(case: str, preset: str) -> None:
    assert not has_loop(optimized(graph_of(CASES[case]()), preset)[0])


@pytest.mark.parametrize(
    "case",
    [
        "1: rows joined",
        "1: reshaped",
        "6: the largest",
        "6: softmax",
        "6: entries",
        "6: chosen entries",
        "7: an entry of an invariant",
        "7: a row of an invariant",
    ],
)
def test_gradients_need_no_loops_either(case: str) -> None:
    built = graph_of(CASES[case]())
    cost = pt.sum(built.outputs[0] ** 2)
    graph = graph_of(cost, *pt.grad(cost, float_inputs(built)))
    work, remarks = optimized(graph, "grad")
    assert not has_loop(work), remarks
    data = arguments(graph, **numbers(4))
    old = evaluate(graph.inputs, graph.outputs, data)
    assert_same_outcomes(old, evaluate(work.inputs, work.outputs, data), rtol=1e-9)


# Each is a case but for one thing.
TWINS: dict[str, Built] = {
    "the length of a row varies": lambda: mapped(lambda r, i: r[: i + 2].sum(), m, k),
    "a length to be made varies": lambda: mapped(lambda a, i: pt.alloc(a, i + 2).sum(), v, k),
    "a length that may be negative": lambda: mapped(
        lambda a, n: pt.alloc(a, n[0]).sum(), v, given=q[0]
    ),
    "lengths of which one may be left out": lambda: mapped(
        lambda r, n: r.reshape((n[0], 2)), t, given=q[0]
    ),
    "parts whose lengths may be negative": lambda: mapped(
        lambda r, n: pt.split(r, n, n_splits=2, axis=0)[0], m, given=q[0]
    ),
    "a mask": lambda: mapped(lambda r: r[r > 0].sum(), m),
    "a slice is written at a place that varies": lambda: mapped(
        lambda r, i: pt.set_subtensor(r[1:, i], 0.0), t, k
    ),
    "places between slices": lambda: mapped(lambda r: r[[0, 1], :, [0, 1]], pt.dtensor4("b")),
    "rows of a row at several places": lambda: mapped(lambda r, i: r[i], t, q),
    "the entries added to are read": lambda: scan(
        lambda i, a, s: pt.inc_subtensor(s[i], a * s[0]), sequences=[k, v], outputs_info=[h]
    )[-1],
    "all traces of what entries are added to": lambda: scan(
        lambda i, a, s: pt.inc_subtensor(s[i], a), sequences=[k, v], outputs_info=[h]
    ),
    "entries that are set, of which the last one stays": lambda: scan(
        lambda i, a, s: pt.set_subtensor(s[i], a), sequences=[k, v], outputs_info=[h]
    )[-1],
    "entries of a slice are added to": lambda: scan(
        lambda i, a, s: pt.inc_subtensor(s[:i], a), sequences=[j, v], outputs_info=[h]
    )[-1],
    "factors": lambda: mapped(lambda r: pt.linalg.cholesky(r @ r.T), t),
    "a solution by a matrix that varies": lambda: mapped(
        lambda r, h: pt.linalg.solve(r @ r.T, h[:2]), t, given=h
    ),
    # What it takes to hold all steps at once:
    "rows of an array, of which a number stays": lambda: mapped(
        lambda i, w: pt.tanh(w[i]).sum(), k, given=w
    ),
    "an invariant joined to each row": lambda: mapped(
        lambda r, h: pt.concatenate([r, h]).max(), m, given=h
    ),
    "an array filled in": lambda: mapped(
        lambda a, h: (pt.alloc(a, h.shape[0]) * h).max(), v, given=h
    ),
    "an invariant written into": lambda: mapped(
        lambda a, h: pt.set_subtensor(h[0], a).max(), v, given=h
    ),
    "a sum of products of two rows": lambda: scan(
        lambda r, q, s: s + r.T @ q, sequences=[t, t], outputs_info=[w]
    )[-1],
}


@pytest.mark.parametrize("name", TWINS)
def test_must_not_fire(name: str) -> None:
    graph = graph_of(TWINS[name]())
    assert has_loop(optimized(graph, RUN)[0])


ERRORS: dict[str, tuple[Built, dict[str, Any]]] = {
    "an entry": (lambda: mapped(lambda r: r[1] * 2, m), {"m": (1,)}),
    "an entry that is written": (
        lambda: mapped(lambda r: pt.set_subtensor(r[1], 0), m),
        {"m": (1,)},
    ),
    "an entry of an invariant": (lambda: mapped(lambda a, h: a * h[3], v, given=h), {}),
    "chosen entries": (lambda: mapped(lambda r: r[[0, 4]], m), {}),
    "the largest of none": (lambda: mapped(lambda r: r.max(), m), {"m": (0,)}),
    "where it is": (lambda: mapped(lambda r: pt.argmax(r), m), {"m": (0,)}),
    "softmax of none": (lambda: mapped(lambda r: pt.special.softmax(r), m), {"m": (0,)}),
    "what is left beside 0": (
        lambda: mapped(lambda r: r.reshape((r.shape[0], -1)), m),
        {"m": (0,)},
    ),
    "another number of entries": (lambda: mapped(lambda r: r.reshape((4, -1)), m), {}),
    "a place that varies": (lambda: mapped(lambda i, h: h[i + 2], k, given=h), {}),
    "a place that varies, too small": (lambda: mapped(lambda i, h: h[i - 4], k, given=h), {}),
    "a place of the row": (lambda: mapped(lambda r, i: r[i + 3], m, k[: m.shape[0]]), {}),
    "an entry that is added to": (
        lambda: scan(
            lambda i, a, s: pt.inc_subtensor(s[i + 2], a), sequences=[k, v], outputs_info=[h]
        )[-1],
        {},
    ),
}


@pytest.mark.parametrize("mode", [VM, *deep(NUMBA)], ids=["vm", "numba"])
@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_those_of_a_step(name: str, mode: Any) -> None:
    """Each is raised if the loop runs a step, and is of the class that the loop raises."""
    build, shapes = ERRORS[name]
    graph = graph_of(build())
    work, _ = optimized(graph, RUN)
    assert not has_loop(work)
    old, new = (compiled(one.inputs, one.outputs, mode) for one in (graph, work))
    for steps in (0, 3):
        given = numbers(steps) | {k: np.ones((steps, *shape)) for k, shape in shapes.items()}
        data = arguments(graph, **given)
        outcomes = [_outcome(one, data) for one in (old, new)]
        if steps:
            assert outcomes[0] == outcomes[1]
            assert isinstance(outcomes[1], type) or mode is not VM
        elif "added to" not in name:  # the last value of no steps is an error
            assert not isinstance(outcomes[1], type)


def _outcome(function: Any, data: Any) -> Any:
    """The class of the error that a function raises, or how many numbers it returns."""
    try:
        return [np.size(one) for one in function(*data)]
    except Exception as error:
        return type(error)


READS: dict[str, Callable[..., Any]] = {
    "places": lambda r, i, h: r * h[i],
    "largest": lambda r, i, h: r - r.max(),
    "softmax": lambda r, i, h: pt.special.softmax(r),
    "joined": lambda r, i, h: pt.concatenate([r[1:], r[:1]]),
    "stacked": lambda r, i, h: pt.stack([r[0], r.sum(), h[i]]),
    "sorted": lambda r, i, h: pt.sort(r),
    "written": lambda r, i, h: pt.set_subtensor(r[i], h[0]),
    "chosen": lambda r, i, h: r[[2, 0, 1]] + r[i],
    "reshaped": lambda r, i, h: r.reshape((1, -1)).sum(axis=0),
    "row of a matrix": lambda r, i, h: pt.outer(h, h)[i] * r,
}


@st.composite
def programs(draw: Any) -> Graph:
    """Maps of several reads and layouts, one of what another one gives, and gradients of them."""
    names = draw(st.lists(st.sampled_from(list(READS)), min_size=1, max_size=3))
    rows, places = m, k[: m.shape[0]]
    if draw(st.booleans()):
        rows, places = rows[::-1], places[::-1]

    def step(r: Any, i: Any, h: Any) -> Any:
        for name in names:
            r = READS[name](r, i, h)
        return r

    found = scan(step, sequences=[rows, places], non_sequences=[h])
    outputs = [found]
    if draw(st.booleans()):
        outputs += pt.grad(pt.sum(pt.sin(found)), [m, h], disconnected_inputs="ignore")
    return graph_of(*outputs)


@settings(max_examples=examples(25, 150))
@given(graph=programs(), steps=st.integers(1, 4))
def test_generated_maps_keep_their_values(graph: Graph, steps: int) -> None:
    assert_values_stay(graph, numbers(steps))


@settings(max_examples=examples(3, 25))
@given(graph=programs(), mode=st.sampled_from([VM, *(() if examples(0, 1) == 0 else (NUMBA,))]))
def test_generated_maps_keep_their_values_compiled(graph: Graph, mode: Any) -> None:
    assert_compiled_values_stay(graph, numbers(3), mode)
