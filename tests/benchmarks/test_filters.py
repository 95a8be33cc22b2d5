"""Kalman filters, whose covariances read no data, alone and of several series.

By PyTensor alone (NUMBA); after the preset ``loop``, with ``scan-to-loop`` before the gradient is
taken, and with ``stop-at-fixed-point`` after and before it is taken; in JAX; and of the value of
one series by a loop by hand in Numba. Run with ``make bench``, with JAX installed; BLAS has one
thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
import numba
import numpy as np
import pytensor
import pytensor.tensor as pt
from jax import lax
from pytensor.graph.replace import graph_replace, vectorize_graph
from threadpoolctl import threadpool_limits

import scanopt_cli as so
from scanopt_cli.ir.graph import Graph, from_io
from support.graph_building import scan

_CASES = [(k, n, s) for k in (4, 10) for n, s in ((500, 1), (2_000, 1), (500, 8))]
_FORMS = ("pytensor", "scanopt", "loop first", "stopped", "stopped first", "jax", "by hand")
_STOPPED = "scan-to-loop,stop-at-fixed-point"
_AFTER = f"clean-slices,mit-mot-to-sit-sot,{_STOPPED},loop"


def _step(xp: Any, y: Any, m: Any, p: Any, total: Any, a: Any, q: Any) -> Any:
    m, p = a @ m, a @ p @ a.T + q
    variance, error = p[0, 0] + 0.1, y - m[0]
    gain = p[:, 0] / variance
    term = xp.log(variance) + error**2 / variance
    return m + gain * error, p - xp.outer(gain, p[0]), total - term / 2


def _values(k: int, n: int, n_series: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=(n_series, n)), 0.6 * np.eye(k) + 0.2 / k, 0.1 * np.eye(k)]


def _cost(k: int, n_series: int) -> Graph:
    """Return the graph of the sum of the log-densities of all series."""
    series = pt.tensor("series", shape=(n_series, None), dtype="float64")
    a, q = (pt.tensor(name, shape=(k, k), dtype="float64") for name in ("a", "q"))
    y = pt.dvector("y")
    *_, totals = scan(
        lambda *given: list(_step(pt, *given)),
        sequences=[y],
        outputs_info=[pt.zeros(k), pt.eye(k), pt.zeros(())],
        non_sequences=[a, q],
    )
    if n_series == 1:
        (total,) = graph_replace([totals[-1]], {y: series[0]})
    else:
        total = vectorize_graph([totals[-1]], {y: series})[0].sum()
    return from_io([series, a, q], [total])


def _in_jax(gradient: bool) -> Callable[..., Any]:
    def cost(series: Any, a: Any, q: Any) -> Any:
        k = a.shape[0]

        def one(y: Any) -> Any:
            def step(carry: Any, y: Any) -> Any:
                return _step(jnp, y, *carry, a, q), None

            return lax.scan(step, (jnp.zeros(k), jnp.eye(k), 0.0), y)[0][2]

        return jax.vmap(one)(series).sum()

    compiled = jax.jit(jax.value_and_grad(cost, (1, 2)) if gradient else cost)

    def run(*arguments: Any) -> list[Any]:
        found = jax.block_until_ready(compiled(*arguments))
        return [found[0], *found[1]] if gradient else [found]

    return run


@numba.njit
def _by_hand(series: Any, a: Any, q: Any) -> Any:
    k = len(a)
    m, p, total = np.zeros(k), np.eye(k), 0.0
    for y in series[0]:
        m, p = a @ m, a @ p @ a.T + q
        variance, error = p[0, 0] + 0.1, y - m[0]
        gain = p[:, 0] / variance
        total -= (np.log(variance) + error**2 / variance) / 2
        m, p = m + gain * error, p - np.outer(gain, p[0])
    return total


@cache
def _compiled(case: tuple[int, int, int], form: str, gradient: bool) -> Callable[..., Any]:
    if form == "jax":
        return _in_jax(gradient)
    if form == "by hand":
        return lambda *arguments: [_by_hand(*arguments)]
    graph = _cost(case[0], case[2])
    if form.endswith("first"):
        graph = so.optimize(graph, _STOPPED if form == "stopped first" else "scan-to-loop").graph
    inputs, outputs = list(graph.inputs), list(graph.outputs)
    if gradient:
        outputs += pt.grad(outputs[0], inputs[1:])
    graph = from_io(inputs, outputs)
    if form != "pytensor":
        passes = _AFTER if form == "stopped" else "loop"
        graph = so.optimize(graph, passes).graph
    function: Callable[..., Any] = pytensor.function(
        list(graph.inputs), list(graph.outputs), mode="NUMBA", trust_input=True
    )
    return function


@pytest.mark.parametrize(
    "case", _CASES, ids=lambda case: "{} states, {} steps, {} series".format(*case)
)
@pytest.mark.parametrize("gradient", [False, True], ids=["value", "value and gradient"])
@pytest.mark.parametrize("form", _FORMS)
def test_filter(benchmark, case: tuple[int, int, int], gradient: bool, form: str) -> None:
    if form == "by hand" and (gradient or case[2] > 1):
        pytest.skip("that is not short")
    if benchmark.disabled and case != (4, 500, 8):
        pytest.skip("a case that is there to be timed")
    benchmark.group = "{}: {} states, {} steps, {} series".format(
        "value and gradient" if gradient else "value", *case
    )
    arguments = _values(*case)
    with threadpool_limits(1, user_api="blas"), jax.enable_x64(True):
        wanted = _compiled(case, "pytensor", gradient)(*arguments)
        function = _compiled(case, form, gradient)
        got = benchmark.pedantic(function, args=arguments, rounds=10, warmup_rounds=2)
    for new, old in zip(got, wanted, strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-7, atol=1e-7)
