"""`loops-to-ops`: each case that whole arrays take over, and each that must stay a loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Variable
from pytensor.scan.utils import until

from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.ir.scan_view import is_loop
from scanopt_cli.loop.running_product import RunningProduct
from scanopt_cli.serialization.loading import load
from scanopt_cli.serialization.saving import save
from support.compiled_ways import NUMBA, VM, assert_close, compiled
from support.evaluating import assert_same_outcomes, evaluate
from support.graph_building import (
    arguments,
    graph_of,
    optimized,
    scan,
)
from support.needless_loops import LOOPS, RUN, assert_needs_no_loop, has_loop
from support.tiers import deep

v, u, h = pt.dvectors("v", "u", "h")
m, w = pt.dmatrices("m", "w")
t = pt.dtensor3("t")
x = pt.dscalar("x")
n = pt.lscalar("n")
f, g = pt.fvector("f"), pt.fmatrix("g")
i, j = pt.vector("i", dtype="int8"), pt.lvector("j")

type Built = Callable[[], Any]


def number(value: float) -> Any:
    return pt.constant(value, dtype="float64")


def values(steps: int) -> dict[str, Any]:
    draw = np.random.default_rng(steps)
    small = np.arange(steps) - steps // 2
    return {
        "v": np.where(small == 0, 0.0, draw.normal(size=steps)),
        "u": draw.normal(size=steps),
        "h": draw.normal(size=3),
        "m": draw.normal(size=(steps, 3)),
        "w": draw.normal(size=(3, 3)),
        "t": draw.normal(size=(steps, 2, 3)),
        "x": 0.7,
        "n": steps,
        "f": draw.normal(size=steps).astype("float32"),
        "g": draw.normal(size=(steps, 3)).astype("float32"),
        "i": np.full(steps, 100, dtype="int8"),
        "j": small,
    }


def added(*sequences: Variable, start: Any, step: Callable[..., Any] = lambda *a: sum(a)) -> Any:
    """A state to which what a step computes of rows is added."""
    return scan(
        lambda *given: given[-1] + step(*given[:-1]), sequences=sequences, outputs_info=[start]
    )


def mapped(step: Callable[..., Any], *sequences: Variable, given: Any = ()) -> Any:
    return scan(step, sequences=sequences, non_sequences=given)


def three(rows: Variable) -> Variable:
    """Rows that are known to have three entries along their last axis."""
    return pt.specify_shape(rows, (*(None,) * (rows.type.ndim - 1), 3))  # type: ignore[attr-defined]


def coupled() -> Any:
    """Running sums of what another one was, and is."""
    return scan(
        lambda a, s, t: [s + a, t + s * 2, s - t],
        sequences=[v],
        outputs_info=[number(0.5), number(1.0), None],
    )


CASES: dict[str, Built] = {
    "1: arithmetic": lambda: mapped(lambda a, b: pt.exp(a) * b + 1, v, m),
    "1: arithmetic of numbers": lambda: mapped(lambda a: pt.tanh(a) * 2, v),
    "1: a product with a matrix": lambda: mapped(lambda r, w: pt.tanh(r @ w), m, given=w),
    "1: a matrix times a row": lambda: mapped(lambda r, w: pt.dot(w, r) + 1, m, given=w),
    "1: matrices times a matrix": lambda: mapped(lambda r, w: pt.dot(r, w), t, given=w),
    "1: a matrix times matrices": lambda: mapped(lambda r, w: pt.dot(w, r.T), t, given=w),
    "1: an inner product with a vector": lambda: mapped(lambda r, h: pt.dot(r, h), m, given=h),
    "1: inner products of two rows": lambda: mapped(lambda r, q: pt.dot(r, q), m, m * 2),
    "1: a slice": lambda: mapped(lambda r: r[1:], m),
    "1: an entry in bounds": lambda: mapped(lambda r: r[1], pt.specify_shape(m, (None, 3))),
    "1: sums of rows": lambda: mapped(lambda r: r.sum() * (r**2).sum(), m),
    "1: products of rows": lambda: mapped(lambda r: r.prod(), m),
    "1: means of rows": lambda: mapped(lambda r: r.mean(), m),
    "1: sums over one axis": lambda: mapped(lambda r: r.sum(axis=0), t),
    "1: the largest of rows": lambda: mapped(lambda r: r.max() - r.min(), three(m)),
    "1: the largest along one axis": lambda: mapped(lambda r: r.max(axis=-1), three(t)),
    "1: softmax": lambda: mapped(lambda r: pt.special.softmax(r), three(m)),
    "1: log-softmax along one axis": lambda: mapped(
        lambda r: pt.special.log_softmax(r, axis=1), three(t)
    ),
    "1: logarithms of sums of exp": lambda: mapped(lambda r: pt.logsumexp(r), three(m)),
    "1: running sums of rows": lambda: mapped(lambda r: pt.cumsum(r) * pt.cumprod(r), m),
    "1: running sums along one axis": lambda: mapped(lambda r: pt.cumsum(r, axis=0), t),
    "1: a map in a state": lambda: scan(
        lambda a, s: a**2, sequences=[v], outputs_info=[number(3.0)]
    ),
    "1: the row before": lambda: scan(
        lambda a, s: [a**2, s + 1], sequences=[v], outputs_info=[number(3.0), None]
    )[1],
    "1: rows backwards": lambda: scan(lambda a: a * 2, sequences=[v], go_backwards=True),
    "2: a sum": lambda: added(v, start=number(0.5))[-1],
    "2: a sum of rows": lambda: added(m, start=h)[-1],
    "2: a sum of matrices": lambda: added(t, start=pt.ones((2, 3)))[-1],
    "2: a sum of a function": lambda: added(v, start=x, step=lambda a: pt.exp(a) * 3)[-1],
    "2: a difference": lambda: scan(lambda a, b, s: s - a + b, sequences=[v, u], outputs_info=[x])[
        -1
    ],
    "2: a sum of products": lambda: scan(
        lambda r, s, w: s + pt.dot(r, w), sequences=[m], outputs_info=[h], non_sequences=[w]
    )[-1],
    "2: a sum in float32": lambda: added(f, start=pt.constant(np.float32(1)))[-1],
    "2: integers that wrap": lambda: added(i, start=pt.constant(np.int8(1)))[-1],
    "2: what no step changes": lambda: scan(
        lambda a, s, x: s + x, sequences=[v], outputs_info=[x * 2], non_sequences=[x]
    )[-1],
    "3: a cumulative sum": lambda: added(v, start=number(0.5)),
    "3: of rows": lambda: added(m, start=h),
    "3: with its start": lambda: added(m, start=h).owner.inputs[0],
    "3: read at its end, and whole": lambda: (lambda s: s[-1] + s.sum())(added(v, start=x)),
    "3: backwards": lambda: scan(
        lambda a, s: s + a, sequences=[v], outputs_info=[x], go_backwards=True
    ),
    "3: in float32": lambda: added(g, start=pt.zeros(3, dtype="float32")),
    "3: integers that wrap": lambda: added(i, start=pt.constant(np.int8(1))),
    "3: integers": lambda: added(j, start=pt.constant(np.int64(5))),
    "4: a cumulative product": lambda: scan(lambda a, p: p * a, sequences=[v], outputs_info=[x]),
    "4: of rows": lambda: scan(lambda a, p: p * (a + 1), sequences=[m], outputs_info=[h]),
    "4: a product": lambda: scan(lambda a, p: a * p, sequences=[v], outputs_info=[x])[-1],
    "5: a running sum of a running sum": lambda: coupled()[1],
    "5: what is computed of both": lambda: coupled()[2],
}


def float_inputs(graph: Graph) -> list[Variable]:
    return [k for k in graph.inputs if k.type.dtype == "float64"]


def differentiated(build: Built, order: int, work: Callable[[Graph], Graph]) -> Graph:
    """What ``work`` makes of a graph, and derivatives of both by all inputs, in one graph."""
    before = graph_of(pt.as_tensor(build()))
    after = work(before)
    (new,) = pytensor.graph.replace.clone_replace(
        after.outputs, dict(zip(after.inputs, before.inputs, strict=True))
    )
    wrt = float_inputs(before)
    found = []
    for output in (before.outputs[0], new):
        cost = pt.sum(pt.sin(output))
        for _ in range(order):
            grads = pt.grad(cost, wrt, disconnected_inputs="ignore")
            cost = sum(pt.sum(one * (k + 1) * one) for k, one in enumerate(grads))
        found += grads
    return from_io(before.inputs, found)


@pytest.mark.parametrize("steps", [0, 1, 5])
@pytest.mark.parametrize("pipeline", [RUN, LOOPS], ids=["scan", "traced loop"])
@pytest.mark.parametrize("case", CASES)
def test_case(case: str, pipeline: str, steps: int) -> None:
    graph = graph_of(CASES[case]())
    rtol = 1e-5 if "float32" in case else 1e-9
    assert_needs_no_loop(graph, pipeline, values(steps), rtol=rtol)


@pytest.mark.parametrize("mode", [VM, *deep(NUMBA)], ids=["vm", "numba"])
@pytest.mark.parametrize("case", CASES)
def test_compiled(case: str, mode: Any) -> None:
    graph = graph_of(CASES[case]())
    work, _ = optimized(graph, RUN)
    function = compiled(work.inputs, work.outputs, mode)
    for steps in (1, 4):
        data = arguments(graph, **values(steps))
        for old, new in zip(
            evaluate(graph.inputs, graph.outputs, data), function(*data), strict=True
        ):
            if "float32" in case:
                np.testing.assert_allclose(new, old, rtol=1e-5)
            else:
                assert_close(old, new)


@pytest.mark.tiered(every=4)
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(
    "case", [name for name, build in CASES.items() if float_inputs(graph_of(build()))]
)
def test_derivatives(case: str, order: int) -> None:
    """Some of the factors of a product are zero, and derivatives are those of a loop there too."""
    if case == "1: products of rows" and order == 2:
        pytest.skip("PyTensor has no second derivative of Prod")
    graph = differentiated(CASES[case], order, lambda before: optimized(before, RUN)[0])
    for steps in (1, 4):
        found = evaluate(graph.inputs, graph.outputs, arguments(graph, **values(steps)))
        half = len(found) // 2
        pairs = zip(found[:half], found[half:], strict=True)
        # PyTensor cannot run a second derivative of a row that is not read.
        pairs = [pair for pair in pairs if not isinstance(pair[0], AttributeError)]
        assert_same_outcomes([old for old, _ in pairs], [new for _, new in pairs], rtol=1e-7)


@pytest.mark.parametrize("order", [1, 2])
def test_gradients_of_loops_need_no_loops(order: int) -> None:
    """The gradient of a map, and of a running sum, is one: both leave in preset `grad`."""
    cost = added(v, start=x, step=pt.exp)[-1] ** 2
    for _ in range(order):
        cost = pt.grad(cost, v).sum()
    graph = graph_of(cost)
    work, _ = optimized(graph, "grad")
    assert not has_loop(work)
    data = arguments(graph, **values(4))
    assert_same_outcomes(
        evaluate(graph.inputs, graph.outputs, data), evaluate(work.inputs, work.outputs, data)
    )


@pytest.mark.parametrize("preset", ["default", "grad"])
@pytest.mark.parametrize("case", CASES)
def test_presets_leave_no_loop(case: str, preset: str) -> None:
    assert not has_loop(optimized(graph_of(CASES[case]()), preset)[0])


def test_a_traced_loop_stays_in_preset_loop() -> None:
    work, _ = optimized(graph_of(added(m, start=h)), "loop")
    assert has_loop(work)


def stopping() -> Any:
    return scan(lambda a, s: (s + a, until(s > 100)), sequences=[v], outputs_info=[x])


def drawn() -> Any:
    generator = pytensor.shared(np.random.default_rng(0))
    return scan(
        lambda a, s: s + a + pt.random.normal(rng=generator), sequences=[v], outputs_info=[x]
    )


# Each is a case but for one thing.
TWINS: dict[str, Built] = {
    "the state is read, not added to": lambda: scan(
        lambda a, s: pt.sin(s) + a, sequences=[v], outputs_info=[x]
    ),
    "the state is multiplied and added to": lambda: scan(
        lambda a, s: s * a + a, sequences=[v], outputs_info=[x]
    ),
    "what is added depends on the state": lambda: scan(
        lambda a, s: s + a * pt.tanh(s), sequences=[v], outputs_info=[x]
    ),
    "the state is subtracted": lambda: scan(lambda a, s: a - s, sequences=[v], outputs_info=[x]),
    "two factors": lambda: scan(
        lambda a, b, p: pt.mul(p, a, b), sequences=[v, u], outputs_info=[x]
    ),
    "an integer product": lambda: scan(
        lambda a, p: p * a, sequences=[j], outputs_info=[pt.constant(np.int64(2))]
    ),
    "a boolean sum": lambda: scan(
        lambda a, s: s + (a > 0), sequences=[v], outputs_info=[pt.constant(np.bool_(False))]
    ),
    "another shape": lambda: scan(lambda a, s: s + a, sequences=[v], outputs_info=[h]),
    "two taps": lambda: scan(
        lambda a, s: s + a,
        sequences=[v],
        outputs_info=[{"initial": pt.stack([x, x]), "taps": [-2]}],
    ),
    "a condition": stopping,
    "random numbers": drawn,
    "a sequence that may be too short": lambda: scan(
        lambda a, s: s + a, sequences=[v], outputs_info=[x], n_steps=n
    ),
    "an integer division, which may raise": lambda: mapped(lambda a: 5 // a, j),
    "logsumexp of what may have no entries": lambda: mapped(lambda r: pt.logsumexp(r), m),
    "linear algebra": lambda: mapped(lambda r: pt.linalg.inv(pt.dot(r, r.T)), t),
    "a sum of outer products": lambda: scan(
        lambda r, s: s + pt.outer(r, r), sequences=[m], outputs_info=[pt.zeros((3, 3))]
    )[-1],
    "a sum of a sum of outer products": lambda: added(
        m, start=x, step=lambda r: pt.exp(r[:, None] * r).sum()
    )[-1],
}


@pytest.mark.parametrize("name", TWINS)
def test_must_not_fire(name: str) -> None:
    graph = graph_of(TWINS[name]())
    work, remarks = optimized(graph, RUN)
    assert has_loop(work)
    assert not any("Ops on whole arrays" in text and "passed" in text for text in remarks)


def test_a_sequence_that_may_be_too_short_is_told() -> None:
    graph = graph_of(TWINS["a sequence that may be too short"]())
    _, remarks = optimized(graph, RUN)
    assert "missed scan_fn: keeps `x` in the loop, not as Ops on whole arrays: a " in (
        " ".join(remarks)
    )


def test_a_trace_that_is_trimmed_stays() -> None:
    graph = graph_of(added(v, start=x)[-2:].sum())
    work, _ = optimized(graph, "normalize-reads,save-mem,loops-to-ops")
    assert has_loop(work)
    work, _ = optimized(graph, "normalize-reads,loops-to-ops")
    assert not has_loop(work)


def test_what_declares_the_length_of_a_trace_can_be_loaded(tmp_path: Path) -> None:
    """PyTensor finds how many rows a Scan's buffer has, and not how many the joined rows have."""
    start = {"initial": pt.dvector("v")[:3], "taps": [-3]}
    _, ys = scan(lambda v3, y: [number(0.5), v3], outputs_info=[start, x], n_steps=3)
    buffer = ys.owner.inputs[0]
    zeros = pt.alloc(number(0.0), buffer.shape[0])
    assert zeros.type.shape == (4,)
    graph = graph_of(zeros + 1, ys)
    work, _ = optimized(graph, "hoist-states,loops-to-ops")
    assert not has_loop(work)
    save(work, tmp_path / "work.scanopt")
    again = load(tmp_path / "work.scanopt")
    data = [np.array([1.0, 2.0, 3.0]), np.array(7.0)]
    given = [data[0] if variable.name == "v" else data[1] for variable in graph.inputs]
    for result in (work, again):
        assert_same_outcomes(
            evaluate(graph.inputs, graph.outputs, given),
            evaluate(result.inputs, result.outputs, given),
        )


def outputs_left(work: Graph) -> list[int]:
    return [len(node.outputs) for node in walk(work.fgraph) if is_loop(node)]


def beside(step: Callable[..., Any]) -> tuple[Graph, Graph]:
    """A loop of a recurrence and a sum, before and after."""
    graph = graph_of(*scan(step, sequences=[v], outputs_info=[x, number(0.0)]))
    return graph, optimized(graph, RUN)[0]


def test_a_sum_beside_a_recurrence_leaves() -> None:
    graph, work = beside(lambda a, y, s: [pt.sin(y) + a, s + pt.exp(a)])
    assert outputs_left(work) == [1]
    data = arguments(graph, **values(4))
    assert_same_outcomes(
        evaluate(graph.inputs, graph.outputs, data), evaluate(work.inputs, work.outputs, data)
    )


@pytest.mark.parametrize(
    "step",
    [
        lambda a, y, s: [pt.sin(y) + s, s + pt.exp(a)],
        lambda a, y, s: (lambda slow: [pt.sin(y) + slow, s + slow])(pt.exp(a)),
        lambda a, y, s: [pt.sin(y) + a, s + y],
    ],
    ids=["its state is read", "its work is shared", "it reads the recurrence"],
)
def test_a_sum_stays_beside_a_recurrence_if(step: Callable[..., Any]) -> None:
    _, work = beside(step)
    assert outputs_left(work) == [2]


def test_not_a_number_and_infinities_stay() -> None:
    graph = graph_of(added(v, start=x))
    work, _ = optimized(graph, RUN)
    data = arguments(graph, v=[1.0, np.inf, 2.0, -np.inf, 3.0], x=0.5)
    assert_same_outcomes(
        evaluate(graph.inputs, graph.outputs, data), evaluate(work.inputs, work.outputs, data)
    )


@pytest.mark.parametrize("options", ["scans=false", "traced=false"])
def test_options(options: str) -> None:
    graph = graph_of(added(v, start=x))
    for pipeline, keeps in ((RUN, "scans=false"), (LOOPS, "traced=false")):
        named = pipeline.replace("loops-to-ops", f"loops-to-ops{{{options}}}")
        assert has_loop(optimized(graph, named)[0]) == (options == keeps)


def test_the_derivative_of_a_running_product_is_right_at_zero() -> None:
    """PyTensor's own divides by the factors."""
    rows = pt.dmatrix("rows")
    loop = scan(lambda r, p: p * r, sequences=[rows], outputs_info=[pt.ones(2)])
    costs = [(one**2).sum() for one in (loop, RunningProduct()(rows))]
    firsts = [pt.grad(cost, rows) for cost in costs]
    seconds = [pt.grad((first**2).sum(), rows) for first in firsts]
    point = np.array([[2.0, 0.0], [0.0, 3.0], [0.0, -1.5]])
    (a, b, c, d) = evaluate([rows], [*firsts, *seconds], [point])
    assert_same_outcomes([a, c], [b, d])
