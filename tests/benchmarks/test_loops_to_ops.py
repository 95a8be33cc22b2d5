"""Loops that need no loop: value and gradient by each preset, PyTensor alone, JAX, and by hand.

A row of a group is what one of them takes, in one run of ``make bench``, by Numba and with one
thread of BLAS; JAX is needed (``pip install 'scanopt[jax]'``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
from threadpoolctl import threadpool_limits

import scanopt_cli as so
from support.benchmarks.values_and_gradients import Case
from support.graph_building import scan

_rng = np.random.default_rng(0)
_X = _rng.normal(size=(1_000, 8))
_LONG = _rng.normal(size=10_000)


def _looped(xp: Any, step: Callable[..., Any], rows: Any, start: Any, given: Any) -> Any:
    """The states after each step, of which each adds to or multiplies the one before."""
    if xp is pt:
        return scan(
            lambda x, s, *w: step(pt, x, s, *w),
            sequences=[rows],
            outputs_info=[start],
            non_sequences=given,
        )

    def both(s: Any, x: Any) -> Any:
        s = step(jnp, x, s, *given)
        return s, s

    return lax.scan(both, start, rows)[1]


def _mapped(xp: Any, step: Callable[..., Any], rows: Any, *given: Any) -> Any:
    if xp is pt:
        return scan(lambda x, *w: step(pt, x, *w), sequences=[rows], non_sequences=given)
    return lax.scan(lambda carry, x: (carry, step(jnp, x, *given)), 0, rows)[1]


def _map(xp: Any, x: Any, w: Any) -> Any:
    return (_mapped(xp, lambda xp, r, w: xp.tanh(r @ w), x, w) ** 2).sum()


def _cumulative_sum(xp: Any, x: Any) -> Any:
    return (_looped(xp, lambda xp, r, s: s + xp.exp(-r * r), x, xp.zeros(8), ()) ** 2).sum()


def _sum(xp: Any, x: Any) -> Any:
    return _looped(xp, lambda xp, r, s: s + xp.exp(-r * r), x, xp.zeros(()), ())[-1] ** 2


def _cumulative_product(xp: Any, x: Any) -> Any:
    return (_looped(xp, lambda xp, r, p: p * (1 + 1e-4 * r), x, xp.ones(()), ()) ** 2).sum()


def _product(xp: Any, x: Any, w: Any) -> Any:
    return (_looped(xp, lambda xp, r, s, w: s + r @ w, x, xp.zeros(8), (w,))[-1] ** 2).sum()


@numba.njit
def _sum_by_hand(x: Any) -> Any:
    """The value, and the slopes by ``x``."""
    total = 0.0
    for i in range(len(x)):
        total += np.exp(-x[i] * x[i])
    slopes = np.empty_like(x)
    for i in range(len(x)):
        slopes[i] = -4 * total * x[i] * np.exp(-x[i] * x[i])
    return total**2, slopes


@numba.njit
def _cumulative_product_by_hand(x: Any) -> Any:
    """The value, and the slopes by ``x``; every product is kept for the way back."""
    kept = np.empty(len(x) + 1)
    kept[0] = 1.0
    value = 0.0
    for i in range(len(x)):
        kept[i + 1] = kept[i] * (1 + 1e-4 * x[i])
        value += kept[i + 1] ** 2
    slopes = np.empty_like(x)
    behind = 0.0
    for i in range(len(x) - 1, -1, -1):
        behind += 2 * kept[i + 1]
        slopes[i] = behind * kept[i] * 1e-4
        behind *= 1 + 1e-4 * x[i]
    return value, slopes


@dataclass(frozen=True)
class _Loop:
    cost: Callable[..., Any]
    values: dict[str, Any]
    by_hand: Callable[..., Any] | None = None


_W = _rng.normal(size=(8, 8)) / 8
_LOOPS = {
    "map of products": _Loop(_map, {"x": _X, "w": _W}),
    "cumulative sum of rows": _Loop(_cumulative_sum, {"x": _X}),
    "sum of numbers": _Loop(_sum, {"x": _LONG}, _sum_by_hand),
    "cumulative product of numbers": _Loop(
        _cumulative_product, {"x": _LONG}, _cumulative_product_by_hand
    ),
    "sum of products": _Loop(_product, {"x": _X, "w": _W}),
}
_FORMS = ("pytensor", "default", "grad", "loop", "jax", "by hand")


@cache
def _compiled(name: str, form: str) -> Callable[..., Any]:
    loop = _LOOPS[name]
    case = Case(
        lambda **given: loop.cost(pt, **given),
        lambda **given: loop.cost(jnp, **given),
        loop.values,
        tuple(loop.values),
        by_hand=loop.by_hand,
    )
    if form not in ("default", "grad", "loop"):
        return case.compiled(form)
    graph = case.graph()
    with so.enabled(form):
        function: Callable[..., Any] = pytensor.function(
            list(graph.inputs), list(graph.outputs), mode="NUMBA", trust_input=True
        )
    return function


@pytest.mark.parametrize(
    ("name", "form"),
    [
        (name, form)
        for name, loop in _LOOPS.items()
        for form in _FORMS
        if form != "by hand" or loop.by_hand
    ],
)
def test_value_and_gradient(benchmark, name: str, form: str) -> None:
    benchmark.group = f"needs no loop: {name}"
    arguments = list(_LOOPS[name].values.values())
    with threadpool_limits(1, user_api="blas"), jax.enable_x64(True):
        wanted = _compiled(name, "pytensor")(*arguments)
        function = _compiled(name, form)
        got = benchmark.pedantic(function, args=arguments, rounds=30, warmup_rounds=2)
    for new, old in zip(got, wanted, strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-7, atol=1e-9)
