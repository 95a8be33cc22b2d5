"""What rules say of loops in bodies is so once compiled, and nothing is said where it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until

import scanopt_cli as so
from scanopt_cli.rules.compiled_loops import rows_kept, scans_in
from scanopt_cli.rules.graph_checking import check
from support.graph_building import scan
from support.tiers import IS_DEEP

type Graph = tuple[list[Any], list[Any]]

X, C = pt.dvector("x"), pt.lvector("c")
V, N = pt.dscalar("v"), pt.lscalar("n")
SMALL = pt.tensor("small", shape=(3,), dtype="float64")
VALUES: dict[str, Any] = {
    "x": np.linspace(0.1, 0.7, 200),
    "c": np.array([2, 3, 4]),
    "v": np.array(0.7),
    "n": np.array(200),
    "small": np.array([0.5, -0.3, 0.2]),
}
VM = Mode("vm", "fast_run")
BACKENDS = (VM, get_mode("NUMBA")) if IS_DEEP else (VM,)


def run(graph: Graph, mode: Any, **values: Any) -> Any:
    inputs, outputs = graph
    function = pytensor.function(inputs, outputs, mode=mode, on_unused_input="ignore")
    return function(*({**VALUES, **values}[v.name] for v in inputs))


def inner(s: Any, reading: Callable[[Any], Any], steps: Any = N) -> Any:
    ys = scan(lambda t: pt.sin(t) * 1.5, outputs_info=[s], n_steps=steps, name="inner")
    return reading(ys)


def in_loop(reading: Callable[[Any], Any], steps: Any = N, outer: Any = 5) -> Graph:
    last = scan(lambda s: inner(s, reading, steps), outputs_info=[V], n_steps=outer, name="outer")
    return [V, N], [last[-1]]


def in_graph(reading: Callable[[Any], Any]) -> Graph:
    s, n = pt.dscalar(), pt.lscalar()
    return [V, N], [OpFromGraph([s, n], [inner(s, reading, n)])(V, N)]


def in_batch(reading: Callable[[Any], Any]) -> Graph:
    (_, n), (last,) = in_loop(reading)
    return [X, n], [vectorize_graph(last, {V: X})]


def in_loops(reading: Callable[[Any], Any], depth: int) -> Graph:
    def nest(s: Any, left: int) -> Any:
        if not left:
            return inner(s, reading)
        return scan(lambda t: nest(t, left - 1), outputs_info=[s], n_steps=2, name=f"at{left}")[-1]

    return [V, N], [nest(V, depth)]


def at_end(ys: Any) -> Any:
    return ys[::-1][:3].sum()


def rows_of_inner(graph: Graph) -> int | None:
    inputs, outputs = graph
    function = pytensor.function(inputs, outputs, mode="NUMBA")
    found = scans_in(function.maker.fgraph)
    return rows_kept(each for each in found if each.view.name.startswith("inner"))


PLACES: dict[str, tuple[str, Callable[[Callable[[Any], Any]], Graph]]] = {
    "a loop": ("outer/inner", in_loop),
    "a graph": ("OpFromGraph/inner", in_graph),
    "a batch": ("outer/inner", in_batch),
    "three loops": ("at3/at2/at1/inner", lambda reading: in_loops(reading, 3)),
}


@pytest.mark.deep
@pytest.mark.parametrize("place", PLACES)
def test_whole_traces_in_bodies(place: str) -> None:
    title, build = PLACES[place]
    graph = build(at_end)
    (finding,) = check(graph, select=["P005"]).findings
    assert finding.loop == title
    assert finding.fix is not None
    assert (rows_of_inner(graph) or 0) > 1000
    mended = so.optimize(graph, finding.fix.passes).graph
    assert not check(mended, select=["P005"]).findings
    assert (rows_of_inner((mended.inputs, mended.outputs)) or 0) <= 4
    for mode in BACKENDS:
        for steps in (3, 4, 60):
            values = [
                run(each, mode, n=np.array(steps))
                for each in (graph, (mended.inputs, mended.outputs))
            ]
            np.testing.assert_allclose(*values, rtol=1e-12)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("reading", [lambda ys: ys[-1], lambda ys: ys.sum()], ids=["end", "all"])
def test_twin_traces_in_bodies(place: str, reading: Callable[[Any], Any]) -> None:
    _, build = PLACES[place]
    assert not check(build(reading), select=["P005"]).findings


def test_why_a_whole_trace_in_a_body_is_kept() -> None:
    (finding,) = check(in_loop(lambda ys: ys[0] + ys[-1]), select=["P005"]).findings
    assert finding.text.endswith("only the ends are read: there may be no step")
    assert finding.fix is None


@pytest.mark.parametrize("steps", [20, pt.constant(20)])
def test_twin_few_rows_in_a_body(steps: Any) -> None:
    assert not check(in_loop(at_end, steps), select=["P005"]).findings


def test_twin_rows_that_each_step_has_another_number_of() -> None:
    """It may be a small one: nothing is known of it."""
    ys = scan(lambda c, s: inner(s, at_end, c), sequences=[C], outputs_info=[V])
    assert not check(([C, V], [ys[-1]]), select=["P005"]).findings


def test_numbers_from_around_a_body_are_known() -> None:
    """The number of rows is computed outside, of a small and a large one."""

    def given(n: int) -> Graph:
        steps = pt.as_tensor(np.int64(n)) + 0 * pt.shape(SMALL)[0]
        ys = scan(
            lambda s, n: inner(s, at_end, n), outputs_info=[V], non_sequences=[steps], n_steps=5
        )
        return [V, SMALL], [ys[-1]]

    assert not check(given(20), select=["P005"]).findings
    assert check(given(200), select=["P005"]).findings


@pytest.mark.parametrize(
    ("outer", "cost"), [(5, "8*n+8 bytes, 5 times a call"), (N, "8*n+8 bytes"), (1, "8*n+8 bytes")]
)
def test_costs_of_loops_in_bodies(outer: Any, cost: str) -> None:
    (finding,) = check(in_loop(at_end, outer=outer), select=["P005"]).findings
    assert finding.cost == cost


def test_costs_in_bodies_are_told_in_what_is_outside() -> None:
    s, n = pt.dvector(), pt.lscalar()
    op = OpFromGraph([s, n], [inner(s, lambda ys: ys[::-1][:3].sum(axis=0), n)])
    ys = scan(lambda t, n: op(t, n), outputs_info=[X], non_sequences=[N], n_steps=7, name="outer")
    (finding,) = check(([X, N], [ys[-1]]), select=["P005"]).findings
    assert finding.loop == "outer/OpFromGraph/inner"
    assert finding.cost == "8*n*x.shape[0]+8*x.shape[0] bytes, 7 times a call"


def filling(reading: Callable[[Any], Any]) -> Graph:
    """Fill arrays of n rows in n steps, in each step of a loop."""

    def row(i: Any, rows: Any) -> Any:
        return pt.set_subtensor(rows[i], pt.sin(rows[i - 1]) + 1)

    def step(x: Any) -> Any:
        return reading(
            scan(row, sequences=[pt.arange(N)], outputs_info=[x], n_steps=N, name="inner")
        )

    return [X, N], [scan(step, outputs_info=[X], n_steps=3, name="outer")[-1]]


@pytest.mark.tiered
def test_copied_states_in_bodies() -> None:
    graph = filling(lambda rows: rows[N - 1])
    (finding,) = check(graph, select=["P008"]).findings
    assert finding.loop == "outer/inner"
    assert finding.fix is not None
    mended = so.optimize(graph, finding.fix.passes).graph
    assert not check(mended, select=["P008"]).findings
    for mode in BACKENDS:
        for steps in (1, 60):  # PyTensor's VM adds them up in int8
            values = [
                run(each, mode, n=np.array(steps))
                for each in (graph, (mended.inputs, mended.outputs))
            ]
            np.testing.assert_array_equal(*values)


def test_copied_states_in_bodies_that_must_be_kept() -> None:
    (finding,) = check(filling(lambda rows: rows[:, 0]), select=["P008"]).findings
    assert (finding.loop, finding.fix) == ("outer/inner", None)
    assert not check(filling(lambda rows: rows[-1]), select=["P008"]).findings


def stopping(s: Any, *, last: bool, steps: Any = 20) -> Any:
    ys = scan(lambda t: (pt.sin(t), until(t < 0.3)), outputs_info=[s], n_steps=steps)
    return ys[-1] if last else ys.sum()


def around(step: Callable[..., Any], *sequences: Any) -> Graph:
    ys = scan(step, sequences=list(sequences), outputs_info=[V], n_steps=3, name="outer")
    return [V, N, X, C], [ys[-1]]


def counting(reading: Callable[[Any], Any]) -> Graph:
    def step(k: Any, s: Any) -> Any:
        return [k + 1, inner(s, reading, k)]

    return [V, N, X, C], [scan(step, outputs_info=[N, V], n_steps=3)[1][-1]]


def unread() -> Graph:
    ys, _ = scan(lambda s: (s * 0.5, inner(s, pt.sum)), outputs_info=[V, None], n_steps=3)
    return [V, N, X, C], [ys[-1]]


def last(ys: Any) -> Any:
    return ys[-1]


# Graphs, and why JAX cannot run them, if it cannot.
IN_JAX: dict[str, tuple[Callable[[], Graph], str | None]] = {
    "a trace": (lambda: around(lambda s: inner(s, pt.sum)), "the value of `n`"),
    "its last row": (lambda: around(lambda s: inner(s, last)), None),
    "a trace of known length": (lambda: around(lambda s: inner(s, pt.sum, 4)), None),
    "as many steps as an array has rows": (
        lambda: around(lambda s: inner(s, pt.sum, X.shape[0])),
        None,
    ),
    "steps of a sequence": (lambda: around(lambda c, s: inner(s, pt.sum, c), C), "in each step"),
    "their last row": (lambda: around(lambda c, s: inner(s, last, c), C), None),
    "steps that a state counts": (lambda: counting(pt.sum), "in each step"),
    "a condition": (lambda: around(lambda s: stopping(s, last=False)), "a condition ends"),
    "the last row at a condition": (
        lambda: around(lambda s: stopping(s, last=True, steps=N)),
        None,
    ),
    "a graph": (lambda: in_graph(pt.sum), "the value of `n`"),
    "the last row in a graph": (lambda: in_graph(last), None),
    "a batch": (lambda: in_batch(pt.sum), "the value of `n`"),
    "the last row in a batch": (lambda: in_batch(last), None),
    "a trace that nobody reads": (unread, None),
    "a gradient": (
        lambda: ([V, N], [pt.grad(in_loop(last)[1][0], V)]),
        "the value of `n`",
    ),
}


@pytest.mark.jax
@pytest.mark.parametrize("name", IN_JAX)
def test_what_jax_cannot_run_in_bodies(name: str) -> None:
    pytest.importorskip("jax")
    build, why = IN_JAX[name]
    graph = build()
    findings = check(graph, select=["J001"]).findings
    assert len(findings) == (why is not None)
    given = {"n": np.array(4), "x": np.linspace(0.1, 0.7, 5)}
    with so.enabled():
        if why is not None:
            assert why in findings[0].text
            with pytest.raises(NotImplementedError, match="JAX cannot trace"):
                run(graph, "JAX", **given)
        else:
            found = run(graph, "JAX", **given)
    if why is None:
        np.testing.assert_allclose(found, run(graph, "FAST_COMPILE", **given), rtol=1e-6)


def on_small(step: Callable[[Any], Any]) -> Graph:
    ys = scan(
        lambda s: scan(step, outputs_info=[s], n_steps=4, name="inner")[-1] + 1,
        outputs_info=[SMALL],
        n_steps=5,
        name="outer",
    )
    return [SMALL], [ys[-1]]


def test_arrays_in_steps_of_loops_in_bodies() -> None:
    (finding,) = check(on_small(lambda s: pt.sort(s) * 0.5), select=["P010"]).findings
    assert finding.loop == "outer/inner"
    assert finding.cost == "6 operations a step, about 2 µs a call"
    twin = on_small(lambda s: pt.stack([s.min(), s[1], s.max()]) * 0.5)
    assert not check(twin, select=["P010"]).findings
