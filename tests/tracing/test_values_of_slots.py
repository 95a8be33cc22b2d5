"""What is traced of a slot is what PyTensor computes when that slot is an output."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until
from pytensor.tensor.random.type import random_generator_type

import scanopt_cli as so
from build import SAMPLES
from scanopt_cli.ir.graph import Graph, as_graph
from support.graph_building import gradient_with_mit_mots, graph_of, optimized, power, scan
from support.tiers import deep
from support.traced_loops import assert_traced_as_computed, drawn

pytestmark = pytest.mark.usefixtures("evaluated_here")

RNG = np.random.default_rng(7)
V = RNG.normal(size=6)
M = RNG.normal(size=(3, 3))


def _sequences_and_outputs() -> tuple[Graph, dict[str, Any]]:
    v, w = pt.dvector("v"), pt.dscalar("w")
    sequence = {"input": v, "taps": [-1, 0]}
    ys, zs = scan(
        lambda a, b, y, w: (pt.tanh(y * w + a), b * y),
        sequences=[sequence],
        outputs_info=[w, None],
        non_sequences=[w],
    )
    return graph_of(ys, zs), {"v": V, "w": 0.3}


def _several_taps() -> tuple[Graph, dict[str, Any]]:
    v = pt.dvector("v")
    start = {"initial": v[:3], "taps": [-3, -1]}
    return graph_of(scan(lambda a, b: pt.sin(a) + b, outputs_info=[start], n_steps=7)), {"v": V}


def _matrices() -> tuple[Graph, dict[str, Any]]:
    m = pt.dmatrix("m")
    return graph_of(scan(lambda a, m: m @ a, outputs_info=[m], non_sequences=[m], n_steps=4)), {
        "m": M
    }


def _generator() -> tuple[Graph, dict[str, Any]]:
    rng, x = random_generator_type("rng"), pt.dscalar("x")

    def step(rng: Any, y: Any) -> Any:
        rng, noise = pt.random.normal(0.0, 1.0, rng=rng, return_next_rng=True)
        return [rng, y + noise]

    last, walked = scan(step, outputs_info=[rng, x], n_steps=5)
    return graph_of(last, walked), {"rng": np.random.default_rng(3), "x": 0.5}


def _while() -> tuple[Graph, dict[str, Any]]:
    x = pt.dscalar("x")
    ys = scan(lambda y: (y * 1.7, until(y > 9.0)), outputs_info=[x], n_steps=50)
    return graph_of(ys), {"x": 1.0}


def _no_step() -> tuple[Graph, dict[str, Any]]:
    x, n = pt.dscalar("x"), pt.lscalar("n")
    ys, zs = scan(lambda y: (y * 2, y + 1), outputs_info=[x, None], n_steps=n)
    return graph_of(ys, zs), {"x": 1.0, "n": 0}


def _gradient(taps: list[int], order: int = 1) -> tuple[Graph, dict[str, Any]]:
    x = pt.dscalar("x")
    return graph_of(gradient_with_mit_mots(x, taps, order)), {"x": 0.4}


def _batched() -> tuple[Graph, dict[str, Any]]:
    v, m = pt.dvector("v"), pt.dmatrix("m")
    one = scan(lambda y: pt.tanh(y) * 1.1, outputs_info=[v], n_steps=3)
    return graph_of(vectorize_graph(one, {v: m})), {"m": M}


def _trimmed() -> tuple[Graph, dict[str, Any]]:
    _, xs = power(6)
    graph, _ = optimized(graph_of(xs[-2:].sum(), xs[0]), "mit-mot-to-sit-sot")
    return graph, {"x": 0.7}


CASES = {
    "sequences, a state and an output": _sequences_and_outputs,
    "several taps": _several_taps,
    "matrices": _matrices,
    "a generator": _generator,
    "a while loop": _while,
    "no step": _no_step,
    "a gradient": lambda: _gradient([-1]),
    "a gradient of several taps": lambda: _gradient([-3, -1]),
    "a second gradient": lambda: _gradient([-1], 2),
    "a batch": _batched,
    "whole buffers": _trimmed,
}


@pytest.mark.parametrize("case", CASES)
def test_scans(case: str) -> None:
    graph, arguments = CASES[case]()
    assert assert_traced_as_computed(graph, arguments)


# Each Scan becomes a loop of its own; a batched one has states with the batch.
@pytest.mark.parametrize("case", [name for name in CASES if name != "a batch"])
def test_loops_by_scanopt(case: str) -> None:
    graph, arguments = CASES[case]()
    turned, _ = optimized(graph, "scan-to-loop")
    assert not any(loop.kind == "Scan" for loop in so.trace(turned, arguments).loops)
    assert assert_traced_as_computed(turned, arguments)


# Loops in an OpFromGraph are no outputs of its graph.
@pytest.mark.parametrize(
    "sample", ["ar2", *deep(*(name for name in SAMPLES if name not in ("ar2", "wrapped")))]
)
def test_samples(sample: str) -> None:
    for pair in import_module(sample).build().values():
        graph = as_graph(pair)
        arguments = drawn(graph)
        assert assert_traced_as_computed(graph, arguments)
        assert assert_traced_as_computed(so.optimize(graph, "loop").graph, arguments)


@pytest.mark.parametrize("case", ["a gradient", *deep("a gradient of several taps")])
def test_gradients_that_passes_cleaned(case: str) -> None:
    graph, arguments = CASES[case]()
    work, _ = optimized(graph, "grad")
    assert so.trace(work, arguments).loops


def test_a_trimmed_buffer_hides_no_step() -> None:
    _, xs = power(6)
    graph, _ = optimized(graph_of(xs[-1]), "save-mem")
    (loop,) = so.trace(graph, [0.9]).loops
    assert_allclose(loop["x"].values, 0.9 ** (2.0 ** np.arange(1, 7)))


def test_every_kind_of_series() -> None:
    v, w = pt.dvector("v"), pt.dscalar("w")
    ys, _ = scan(
        lambda a, y, w: (y * w + a, a * 2),
        sequences=[v],
        outputs_info=[w, None],
        non_sequences=[w],
        name="f",
    )
    trace = so.trace(graph_of(ys), {"v": V, "w": 0.5})
    assert (trace.arguments, trace.is_drawn) == ("given", False)
    loop = trace["f"]
    assert [(one.kind, one.dtype, one.shape) for one in loop.slots] == [
        ("seq", "float64", ()),
        ("sit_sot", "float64", ()),
        ("nit_sot", "float64", ()),
        ("non_seq", "float64", ()),
    ]
    assert_allclose(loop["v"].values, V)
    (initial,) = loop.slots[1].initial
    assert initial == 0.5
    assert loop.slots[3].is_constant
    assert (loop.n_steps, loop.most_steps, loop.is_complete) == (6, 6, True)


def test_a_loop_in_a_loop() -> None:
    m, w = pt.dmatrix("m"), pt.dscalar("w")

    def row(r: Any, y: Any, w: Any) -> Any:
        zs = scan(
            lambda a, z, w: z * w + a,
            sequences=[r],
            outputs_info=[y],
            non_sequences=[w],
            name="inside",
        )
        return zs[-1]

    ys = scan(row, sequences=[m], outputs_info=[w], non_sequences=[w], name="outside")
    graph = graph_of(ys)
    for turned in (graph, optimized(graph, "scan-to-loop")[0]):
        state = 0.5
        for step, entries in enumerate(M):
            (loop,) = so.trace(
                turned, {"m": M, "w": 0.5}, loop="outside/inside", outer_step=step
            ).loops
            assert [(one.loop, one.step) for one in loop.outer_steps] == [("outside", step)]
            wanted = []
            for entry in entries:
                state = state * 0.5 + entry
                wanted.append(state)
            (carried,) = (one for one in loop.slots if one.kind in ("sit_sot", "state"))
            assert_allclose(carried.values, wanted)
    for outer_step, message in ((3, "runs 3 steps, so there is no step 3"), ([1, 1], "in 1 loop")):
        with pytest.raises(so.ScanoptError, match=message):
            so.trace(graph, {"m": M, "w": 0.5}, loop="inside", outer_step=outer_step)


def test_a_loop_in_a_loop_in_a_loop() -> None:
    x = pt.dscalar("x")

    def nest(name: str, step: Any) -> Any:
        return lambda y: scan(step, outputs_info=[y], n_steps=2, name=name)[-1]

    y = nest("a", nest("b", nest("c", lambda y: y + 1)))(x)
    starts = [
        so.trace(graph_of(y), [0.0], loop="c", outer_step=step).loops[0].slots[0].initial[0]
        for step in (0, 1, [1, 0], [1, 1])
    ]
    assert starts == [0, 2, 4, 6]


def test_a_loop_in_an_op_from_graph() -> None:
    v = pt.dvector("v")
    ys = scan(lambda a, y: a + y, sequences=[v], outputs_info=[v[0] * 0], name="sums")
    graph = graph_of(OpFromGraph([v], [ys], name="layer")(pt.dvector("u") * 2))
    (loop,) = so.trace(graph, [V]).loops
    assert loop.title == "layer/sums"
    assert_allclose(loop.slots[1].values, np.cumsum(2 * V))


def test_nodes_inside_in_the_order_of_computation() -> None:
    x = pt.dscalar("x")
    ys = scan(lambda y: pt.sqr(pt.sin(y)) + 1, outputs_info=[x], n_steps=3, name="f")
    (loop,) = so.trace(graph_of(ys), [0.3], inner=True).loops
    before = np.array([0.3, *loop["x"].values[:-1]])
    names = [one.name for one in loop.nodes]
    assert names[:2] == ["sin(x[t-1])", "sqr(sin(x[t-1]))"]
    assert_allclose(loop["sin(x[t-1])"].values, np.sin(before))
    assert_allclose(loop.nodes[-1].values, loop["x"].values)


def test_nodes_that_work_in_place_hide_nothing() -> None:
    """What an earlier node computed is noted before a later one overwrites it."""
    v = pt.dvector("v")
    ys = scan(lambda y: pt.exp(pt.sin(y)) * y, outputs_info=[v], n_steps=3, name="f")
    function = pytensor.function([v], ys, mode=pytensor.compile.mode.Mode("vm", "fast_run"))
    graph = so.Graph(fgraph=function.maker.fgraph)
    plain = so.trace(graph_of(ys), [V])["f"]
    (loop,) = so.trace(graph, [V], inner=True).loops
    (state,) = (one for one in loop.slots if one.kind == "sit_sot")
    (wanted,) = (one for one in plain.slots if one.kind == "sit_sot")
    assert_allclose(state.values, wanted.values)


def test_a_step_that_raises() -> None:
    x, v = pt.dscalar("x"), pt.dvector("v")
    ys = scan(lambda y, v: v[y.astype("int64")] + y, outputs_info=[x], non_sequences=[v], n_steps=9)
    (loop,) = so.trace(graph_of(ys), {"x": 0.0, "v": np.array([1.0, 1.0, 9.0])}).loops
    assert loop.error is not None
    assert loop.error.startswith("IndexError")
    assert (loop.n_steps, loop.is_complete) == (3, False)
