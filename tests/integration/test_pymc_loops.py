"""PyMC models as TracedLoops, and as Scans again: the same values and derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Variable

import scanopt_cli as so
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.ir.scan_view import scan_op
from scanopt_cli.loop import TracedLoop
from scanopt_cli.pipeline.grammar import parse
from scanopt_cli.pipeline.runner import run_pipeline
from support.graph_building import scan
from support.pymc_models import MODELS, REAL_MODELS

pytestmark = [pytest.mark.pymc, pytest.mark.filterwarnings("ignore")]
VM = Mode("vm", "fast_run")


def logp(model: Any) -> Graph:
    return from_io(list(model.value_vars), [model.logp()])


def gradient(graph: Graph) -> Graph:
    cost: Any = graph.outputs[0]
    found = pytensor.grad(cost, list(graph.inputs))
    return from_io(list(graph.inputs), [cost, *found])


def after(graph: Graph, pipeline: str) -> Graph:
    work = graph.copy()
    run_pipeline(work.fgraph, parse(pipeline))
    return work


def loops(graph: Graph) -> tuple[int, int]:
    """Return how many Scans a graph has, and how many TracedLoops."""
    nodes = list(walk(graph.fgraph))
    return (
        sum(scan_op(node) is not None for node in nodes),
        sum(isinstance(node.op, TracedLoop) for node in nodes),
    )


def values(graph: Graph, mode: Any, points: list[list[np.ndarray]]) -> list[list[np.ndarray]]:
    function = pytensor.function(list(graph.inputs), list(graph.outputs), mode=mode)
    return [function(*point) for point in points]


def points(inputs: list[Variable], model: Any) -> list[list[np.ndarray]]:
    start = model.initial_point(random_seed=1)
    rng = np.random.default_rng(2)
    return [
        [start[str(v.name)] + shift * rng.normal(size=np.shape(start[str(v.name)])) for v in inputs]
        for shift in (0.0, 0.1, 0.5)
    ]


def assert_close(got: list[list[np.ndarray]], wanted: list[list[np.ndarray]]) -> None:
    for one, other in zip(got, wanted, strict=True):
        for new, old in zip(one, other, strict=True):
            np.testing.assert_allclose(new, old, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("mode", [VM, "NUMBA"], ids=["VM", "NUMBA"])
def test_there_and_back(name: str, mode: Any) -> None:
    model = MODELS[name]()
    graph = gradient(logp(model))
    there = after(graph, "scan-to-loop")
    assert loops(there) == (0, loops(graph)[0])
    back = after(there, "loop-to-scan")
    assert loops(back) == loops(graph)
    at = points(list(graph.inputs), model)
    expected = values(graph, VM, at)
    for made in (there, back):
        assert_close(values(made, mode, at), expected)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("mode", [VM, "NUMBA"], ids=["VM", "NUMBA"])
def test_derivatives_of_loops(name: str, mode: Any) -> None:
    model = MODELS[name]()
    graph = logp(model)
    at = points(list(graph.inputs), model)
    expected = values(gradient(graph), VM, at)
    there = gradient(after(graph, "scan-to-loop"))
    assert loops(there)[0] == 0
    assert_close(values(there, mode, at), expected)
    back = gradient(after(after(graph, "scan-to-loop"), "loop-to-scan"))
    assert_close(values(back, mode, at), expected)


@pytest.mark.parametrize("name", MODELS)
def test_second_derivatives_of_loops(name: str) -> None:
    model = MODELS[name]()
    graph = logp(model)
    at = points(list(graph.inputs), model)

    def second(of: Graph) -> Graph:
        first = gradient(of)
        slopes: list[Any] = list(first.outputs[1:])
        return gradient(from_io(list(first.inputs), [sum(slope.sum() for slope in slopes)]))

    expected = values(second(graph), VM, at)
    assert_close(values(second(after(graph, "scan-to-loop")), VM, at), expected)


@pytest.mark.parametrize("name", MODELS)
def test_loops_of_models_in_jax(name: str) -> None:
    pytest.importorskip("jax")
    model = MODELS[name]()
    graph = logp(model)
    at = points(list(graph.inputs), model)
    there = gradient(after(graph, "scan-to-loop"))
    assert_close(values(there, "JAX", at), values(gradient(graph), VM, at))


@pytest.mark.jax
@pytest.mark.parametrize("preset", ["default", "grad", "loop"])
def test_jax_differentiates_a_model_of_constant_steps(preset: str) -> None:
    jax = pytest.importorskip("jax")
    from pymc.sampling.jax import get_jaxified_logp

    model = map_of_constant_steps()
    plain = model.compile_dlogp(mode=VM)
    with so.enabled(preset) as done:
        logp_in_jax = get_jaxified_logp(model, negative_logp=True)
    assert (done.compilations[-1].after.scans == 0) == (preset == "loop")
    ks = np.array([0.1, 0.4])
    for k in ks:
        np.testing.assert_allclose(jax.jit(jax.grad(logp_in_jax))((k,)), [plain({"k": k})[0]])
    (many,) = jax.vmap(jax.grad(logp_in_jax))((ks,))
    np.testing.assert_allclose(many, [plain({"k": k})[0] for k in ks])


def map_of_constant_steps() -> Any:
    """A map of 30 steps, of which the last is observed."""
    import pymc as pm

    with pm.Model() as model:
        k = pm.Normal("k")
        states = scan(
            lambda y, k: k * pt.sin(y) + y / 2,
            outputs_info=[pt.constant(1.0, dtype="float64")],
            non_sequences=[k],
            n_steps=30,
        )
        pm.Normal("last", states[-1], 1.0, observed=0.3)
    return model


# The statespace model is compiled for minutes; tests/benchmarks compares it.
@pytest.mark.parametrize("name", [name for name in REAL_MODELS if "statespace" not in name])
def test_gradients_in_enabled(name: str) -> None:
    model = REAL_MODELS[name]()
    start = model.initial_point(random_seed=1)
    plain = model.compile_dlogp(mode=VM)
    with so.enabled() as done:
        clean = model.compile_dlogp(mode="NUMBA")
    assert done.compilations[0].after.scans == 0
    rng = np.random.default_rng(2)
    for shift in (0.0, 0.1, 0.5):
        point = {key: value + shift * rng.normal(size=value.shape) for key, value in start.items()}
        np.testing.assert_allclose(clean(point), plain(point), rtol=1e-8, atol=1e-10)
