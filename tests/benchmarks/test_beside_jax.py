"""Value and gradient together: by PyTensor alone, after the preset ``loop``, and in JAX.

PyTensor compiles by NUMBA; JAX is ``jit(value_and_grad(...))`` over ``lax.scan``, in 64 bits on
the CPU. A loop in a loop is also written out by hand for Numba. All inputs are symbolic. Run with
``make bench``, with JAX installed (``pip install 'scanopt[jax]'``).
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
import pytensor.tensor as pt
from jax import lax
from threadpoolctl import threadpool_limits

from support.benchmarks.values_and_gradients import Case
from support.graph_building import scan

_rng = np.random.default_rng(0)


def _map(x: Any) -> Any:
    return scan(lambda y: y - 0.001 * y**2, outputs_info=x, n_steps=10_000)


def _map_in_jax(x: Any) -> Any:
    def step(y: Any, _: Any) -> Any:
        y = y - 0.001 * y**2
        return y, y

    return lax.scan(step, x, None, length=10_000)[1]


def _ar2(start: Any, a: Any, b: Any, noise: Any) -> Any:
    ys = scan(
        lambda e, before, last, a, b: a * before + b * last + e,
        sequences=[noise],
        outputs_info=[{"initial": start, "taps": [-2, -1]}],
        non_sequences=[a, b],
    )
    return (ys**2).sum()


def _ar2_in_jax(start: Any, a: Any, b: Any, noise: Any) -> Any:
    def step(carry: Any, e: Any) -> Any:
        before, last = carry
        y = a * before + b * last + e
        return (last, y), y

    return (lax.scan(step, (start[0], start[1]), noise)[1] ** 2).sum()


def _garch(returns: Any, omega: Any, alpha: Any, beta: Any) -> Any:
    variances = scan(
        lambda r, v, omega, alpha, beta: omega + alpha * r**2 + beta * v,
        sequences=[returns],
        outputs_info=[pt.ones(())],
        non_sequences=[omega, alpha, beta],
    )
    return -0.5 * (pt.log(variances) + returns**2 / variances).sum()


def _garch_in_jax(returns: Any, omega: Any, alpha: Any, beta: Any) -> Any:
    def step(v: Any, r: Any) -> Any:
        v = omega + alpha * r**2 + beta * v
        return v, v

    variances = lax.scan(step, 1.0, returns)[1]
    return -0.5 * (jnp.log(variances) + returns**2 / variances).sum()


def _kalman_step(xp: Any, y: Any, m: Any, p: Any, total: Any, a: Any, q: Any) -> Any:
    m, p = a @ m, a @ p @ a.T + q
    variance, error = p[0, 0] + 0.1, y - m[0]
    gain = p[:, 0] / variance
    term = xp.log(variance) + error**2 / variance
    return m + gain * error, p - xp.outer(gain, p[0]), total - term / 2


def _kalman(series: Any, a: Any, q: Any) -> Any:
    *_, totals = scan(
        lambda *given: list(_kalman_step(pt, *given)),
        sequences=[series],
        outputs_info=[pt.zeros(3), pt.eye(3), pt.zeros(())],
        non_sequences=[a, q],
    )
    return totals[-1]


def _kalman_in_jax(series: Any, a: Any, q: Any) -> Any:
    def step(carry: Any, y: Any) -> Any:
        return _kalman_step(jnp, y, *carry, a, q), None

    return lax.scan(step, (jnp.zeros(3), jnp.eye(3), 0.0), series)[0][2]


def _hmm(emitted: Any, moves: Any, start: Any) -> Any:
    logs = scan(
        lambda e, logs, moves: e + pt.logsumexp(logs[:, None] + moves, axis=0),
        sequences=[emitted],
        outputs_info=[start],
        non_sequences=[moves],
    )
    return pt.logsumexp(logs[-1])


def _hmm_in_jax(emitted: Any, moves: Any, start: Any) -> Any:
    logsumexp = jax.scipy.special.logsumexp

    def step(logs: Any, e: Any) -> Any:
        return e + logsumexp(logs[:, None] + moves, axis=0), None

    return logsumexp(lax.scan(step, start, emitted)[0])


def _sir_step(s: Any, i: Any, r: Any, contact: Any, recovery: Any) -> Any:
    caught, healed = contact * s * i, recovery * i
    return s - caught, i + caught - healed, r + healed


def _sir(s: Any, i: Any, contact: Any, recovery: Any) -> Any:
    ss, is_, _ = scan(
        lambda *given: list(_sir_step(*given)),
        outputs_info=[s, i, pt.zeros(())],
        non_sequences=[contact, recovery],
        n_steps=5_000,
    )
    return (is_**2).sum() + (ss**2).sum()


def _sir_in_jax(s: Any, i: Any, contact: Any, recovery: Any) -> Any:
    def step(carry: Any, _: Any) -> Any:
        carry = _sir_step(*carry, contact, recovery)
        return carry, carry[:2]

    ss, is_ = lax.scan(step, (s, i, 0.0), None, length=5_000)[1]
    return (is_**2).sum() + (ss**2).sum()


def _nested(x: Any, w: Any) -> Any:
    def outer(y: Any, w: Any) -> Any:
        inner = scan(lambda z, w: pt.tanh(z * w), outputs_info=y, non_sequences=[w], n_steps=10)
        return inner[-1]

    return scan(outer, outputs_info=x, non_sequences=[w], n_steps=500)[-1]


def _nested_in_jax(x: Any, w: Any) -> Any:
    def outer(y: Any, _: Any) -> Any:
        return lax.scan(lambda z, _: (jnp.tanh(z * w), None), y, None, length=10)[0], None

    return lax.scan(outer, x, None, length=500)[0]


@numba.njit
def _nested_by_hand(x: Any, w: Any) -> Any:
    """The value, and the slopes by ``x`` and ``w``; every number is kept for the way back."""
    start, factor = x.item(), w.item()
    kept = np.empty((500, 11))
    for i in range(500):
        kept[i, 0] = start
        for j in range(10):
            kept[i, j + 1] = np.tanh(kept[i, j] * factor)
        start = kept[i, 10]
    slope, of_factor = 1.0, 0.0
    for i in range(499, -1, -1):
        for j in range(9, -1, -1):
            slope *= 1 - kept[i, j + 1] ** 2
            of_factor += slope * kept[i, j]
            slope *= factor
    return start, slope, of_factor


def _rnn_step(xp: Any, x: Any, h: Any, w: Any) -> Any:
    return xp.tanh(x + w @ h)


def _gru_step(xp: Any, x: Any, h: Any, w: Any, u: Any, v: Any) -> Any:
    def sigmoid(z: Any) -> Any:
        return 1 / (1 + xp.exp(-z))

    update, reset = sigmoid(x + w @ h), sigmoid(x + u @ h)
    return (1 - update) * h + update * xp.tanh(x + v @ (reset * h))


def _network(step: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def in_pytensor(x: Any, h: Any, **weights: Any) -> Any:
        hs = scan(
            lambda *given: step(pt, *given),
            sequences=[x],
            outputs_info=h,
            non_sequences=list(weights.values()),
        )
        return (hs**2).sum()

    def in_jax(x: Any, h: Any, **weights: Any) -> Any:
        def one(h: Any, x: Any) -> Any:
            h = step(jnp, x, h, *weights.values())
            return h, h

        return (lax.scan(one, h, x)[1] ** 2).sum()

    return in_pytensor, in_jax


def _weights(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(64, 64)) / 16


_SERIES = {"x": _rng.normal(size=(1_000, 64)), "h": np.zeros(64)}
_RNN = (*_network(_rnn_step), {**_SERIES, "w": _weights(1)}, ("w", "h"))
_GRU = (
    *_network(_gru_step),
    {**_SERIES, "w": _weights(1), "u": _weights(2), "v": _weights(3)},
    ("w", "u", "v", "h"),
)
_MOVES = np.log(_rng.dirichlet(np.ones(3), size=3))

CASES = {
    "scalar map, last state": Case(
        lambda x: _map(x)[-1], lambda x: _map_in_jax(x)[-1], {"x": 1.0}, ("x",)
    ),
    "scalar map, trace": Case(
        lambda x: (_map(x) ** 2).sum(), lambda x: (_map_in_jax(x) ** 2).sum(), {"x": 1.0}, ("x",)
    ),
    "AR(2), trace": Case(
        _ar2,
        _ar2_in_jax,
        {"start": np.array([0.5, 0.4]), "a": 0.5, "b": 0.3, "noise": _rng.normal(size=10_000)},
        ("start", "a", "b"),
    ),
    "GARCH(1,1)": Case(
        _garch,
        _garch_in_jax,
        {"returns": _rng.normal(size=2_000), "omega": 0.1, "alpha": 0.1, "beta": 0.8},
        ("omega", "alpha", "beta"),
    ),
    "Kalman filter, 3 states": Case(
        _kalman,
        _kalman_in_jax,
        {"series": _rng.normal(size=500), "a": 0.9 * np.eye(3) + 0.02, "q": 0.1 * np.eye(3)},
        ("a", "q"),
    ),
    "HMM, 3 states": Case(
        _hmm,
        _hmm_in_jax,
        {"emitted": _rng.normal(size=(1_000, 3)), "moves": _MOVES, "start": _MOVES[0]},
        ("moves", "start", "emitted"),
    ),
    "SIR": Case(
        _sir,
        _sir_in_jax,
        {"s": 0.9, "i": 0.1, "contact": 0.3, "recovery": 0.1},
        ("s", "i", "contact", "recovery"),
    ),
    "nested 500 x 10": Case(
        _nested, _nested_in_jax, {"x": 0.9, "w": 1.1}, ("x", "w"), by_hand=_nested_by_hand
    ),
    "RNN 64": Case(*_RNN),
    "RNN 64, shapes unknown": Case(*_RNN, shapes_known=False),
    "GRU 64": Case(*_GRU),
    "GRU 64, shapes unknown": Case(*_GRU, shapes_known=False),
}


@cache
def _compiled(name: str, form: str) -> Callable[..., Any]:
    return CASES[name].compiled(form)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        (name, form)
        for name, case in CASES.items()
        for form in ("pytensor", "scanopt", "jax", *(["by hand"] if case.by_hand else []))
    ],
)
def test_value_and_gradient(benchmark, name: str, form: str) -> None:
    benchmark.group = f"value and gradient: {name}"
    arguments = CASES[name].arguments()
    with threadpool_limits(1, user_api="blas"), jax.enable_x64(True):
        wanted = _compiled(name, "pytensor")(*arguments)
        function = _compiled(name, form)
        got = benchmark.pedantic(function, args=arguments, rounds=30, warmup_rounds=2)
    for new, old in zip(got, wanted, strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-7, atol=1e-9)
