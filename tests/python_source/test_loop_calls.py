"""Loops of scanopt's own are calls of its functions, and written out where no call makes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until

import scanopt_cli as so
from scanopt_cli import loop
from support.graph_building import graph_of, scan
from support.python_scripts import assert_rebuilt
from support.sample_building import samples
from support.tiers import deep

X, Y, W, START = pt.dvector("x"), pt.dvector("y"), pt.dscalar("w"), pt.dscalar("start")
M, N = pt.dmatrix("m"), pt.lscalar("n")
RNG = pt.random.type.random_generator_type("rng")


def _calls(text: str) -> list[str]:
    """Return which functions of `scanopt_cli.loop` a script calls, in its order."""
    return re.findall(r"\bloop\.(\w+)\(", text)


def _two(carry: Any, x: Any, w: Any) -> Any:
    s, t = carry
    return (s * x, t + w), (s - x, t)


FORMS: dict[str, tuple[str, Callable[[], Any]]] = {
    "map": ("map", lambda: loop.map(lambda x: x * 2, X)),
    "map of two, with a constant": (
        "map",
        lambda: loop.map(lambda r, w: r[0] - r[1] * w, (X, Y), W),
    ),
    "map to two": ("map", lambda: loop.map(lambda x: (x, x * 2), X, name="both")),
    "reduce": ("reduce", lambda: loop.reduce(lambda c, x: c + x, X, 0.0)),
    "reduce of two": ("reduce", lambda: loop.reduce(lambda c, x: (c[1], c[0] * x), X, (START, W))),
    "backwards": (
        "reduce",
        lambda: loop.reduce(lambda c, x, w: c * w + x, X, START, W, go_backwards=True),
    ),
    "map backwards": (
        "scan",
        lambda: loop.scan(lambda _, x: (None, x * 2), None, X, go_backwards=True)[1],
    ),
    "scan": ("scan", lambda: loop.scan(_two, (START, 0.0), X, W, name="two")),
    "steps": ("scan", lambda: loop.scan(lambda c, _: (c * 2, c), START, max_steps=N)),
    "steps of constants": (
        "scan",
        lambda: loop.scan(lambda c, _, w: (c * w, c), START, None, W, max_steps=5),
    ),
    "fewer steps than rows": (
        "scan",
        lambda: loop.scan(lambda c, x: (c * x, c), START, X, max_steps=N),
    ),
    "integers": ("scan", lambda: loop.scan(lambda c, x: (c + 1, c), 0, X)),
    "small integers": (
        "scan",
        lambda: loop.scan(lambda c, x: (c, x), pt.constant(3, dtype="int8"), X),
    ),
    "generator": (
        "scan",
        lambda: loop.scan(lambda g, _: pt.random.normal(rng=g).owner.outputs, RNG, max_steps=N)[1],
    ),
    "while": (
        "while_loop",
        lambda: loop.while_loop(lambda s: s < 100.0, lambda s: s * 2.0, START, max_steps=N),
    ),
    "while, of two": (
        "while_loop",
        lambda: loop.while_loop(
            lambda c, w: c[0] < w, lambda c, w: (c[0] * w, c[1] + 1), (START, 0), W
        ),
    ),
    "filter": ("filter", lambda: loop.filter(lambda x, w: x > w, X, W)),
    "filter of rows": ("filter", lambda: loop.filter(lambda row: row.sum() > 0, M, name="rows")),
    "filter of other rows": ("map", lambda: Y[pt.nonzero(loop.map(lambda x: x > 0, X))[0]]),
    "for": (
        "for_loop",
        lambda: loop.for_loop(N, lambda i, c, x: (c + x[i + 1], i), START, X),
    ),
    "for, alone": ("for_loop", lambda: loop.for_loop(4, lambda i, _: (None, i * i), None)[1]),
    "for, that stops": (
        "for_loop",
        lambda: loop.for_loop(N, lambda i, c: (c * 2, (i, c), c < 100.0), START),
    ),
    "shape that the start does not have": (
        "TracedLoop",
        lambda: loop.TracedLoop.over(
            N,
            loop.Body(index=pt.lscalar(), states=[s := pt.dvector()], next_states=[s * 2.0]),
            [pt.tensor("three", shape=(3,), dtype="float64")],
            {},
        )[0],
    ),
}


def _leaves(made: Any) -> list[Variable]:
    return [v for part in made for v in _leaves(part)] if isinstance(made, tuple | list) else [made]


@pytest.mark.parametrize("name", FORMS)
def test_forms(name: str) -> None:
    function, make = FORMS[name]
    outputs = _leaves(make())
    assert _calls(assert_rebuilt(graph_of(*outputs))) == [function]
    for output in outputs:
        assert len(_calls(assert_rebuilt(graph_of(output)))) == 1


@pytest.mark.parametrize(
    "name", [n for n in FORMS if n not in ("generator", "integers", "for, alone")]
)
def test_gradients(name: str) -> None:
    outputs = [v for v in _leaves(FORMS[name][1]()) if v.dtype == "float64"]
    cost = pt.add(*(v.sum() for v in outputs)) if len(outputs) > 1 else outputs[0].sum()
    wrt = [v for v in (X, W, START) if v in graph_of(cost).inputs]
    if not wrt:
        wrt = graph_of(cost).inputs[:1]
    calls = _calls(
        assert_rebuilt(graph_of(cost, *pt.grad(cost, wrt, disconnected_inputs="ignore")))
    )
    assert calls
    assert ("TracedLoop" in calls) == name.startswith("shape")


def test_what_another_loop_reads_row_by_row_and_whole() -> None:
    """A step that reads a sequence in two ways is given its number."""
    text = assert_rebuilt(
        graph_of(loop.for_loop(X.shape[0], lambda i, c, x: (c + x[i] * x.sum(), None), START, X)[0])
    )
    assert _calls(text) == ["for_loop"]


def test_nested_loops() -> None:
    def row(r: Any, w: Any) -> Any:
        return loop.reduce(lambda c, x, w: c + x * w, r, 0.0, w)

    found = loop.map(row, M, W)
    assert sorted(_calls(assert_rebuilt(graph_of(found)))) == ["map", "reduce"]
    slope = pt.grad(found.sum(), W)
    assert "FrozenFunctionGraph" not in assert_rebuilt(graph_of(found, slope))


def test_a_batch_of_loops_is_written_out() -> None:
    last = loop.reduce(lambda c, x: c + x, X, 0.0)
    batched = vectorize_graph(last, {X: M})
    text = assert_rebuilt(graph_of(batched))
    assert "Blockwise(" in text or _calls(text)


def test_equal_steps_are_one_function() -> None:
    loops = [loop.map(lambda x: pt.exp(x) * 2, v) for v in (X, Y)]
    assert assert_rebuilt(graph_of(*loops)).count("def ") == 1


def test_scans_that_were_turned_into_loops() -> None:
    trace = scan(lambda x, s: s + x, sequences=[X], outputs_info=[START])
    stops = scan(lambda s: (s * 2, until(s > 100)), outputs_info=[START], n_steps=N)
    graph = so.optimize(graph_of(trace, stops), passes="scan-to-loop").graph
    assert _calls(assert_rebuilt(graph)) == ["for_loop", "for_loop"]


@pytest.mark.parametrize("name", ["rnn_grad", "seed_hess", *deep("kalman_dlogp", "random_walk")])
def test_samples(name: str) -> None:
    for passes in ("loop", "scan-to-loop"):
        text = assert_rebuilt(so.optimize(samples()[name], passes=passes).graph)
        assert _calls(text)
        assert "FrozenFunctionGraph" not in text


def test_the_text() -> None:
    carry, levels = loop.scan(
        lambda level, value, rate: (level + rate * (value - level),) * 2,
        0.0,
        pt.dvector("series"),
        pt.dscalar("rate"),
    )
    text = so.to_python(graph_of(levels, carry)).text
    assert (
        text.partition("memory>\n")[2]
        == """
import pytensor.tensor as pt
from scanopt_cli import loop


def step(x, series_t, rate):
    v = x + rate * (series_t - x)
    return v, v


rate = pt.scalar("rate", dtype="float64")
series = pt.vector("series", dtype="float64")

loop_last, loop_rows = loop.scan(step, 0.0, series, rate)

inputs = [rate, series]
outputs = [loop_rows, loop_last]
"""
    )
