"""Loops as models have them, for PyTensor and JAX: indices, batches, filters, networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
from jax import lax

from support.benchmarks import loops_by_hand
from support.benchmarks.values_and_gradients import Case
from support.graph_building import scan

_rng = np.random.default_rng(5)
type Step = Callable[..., tuple[Any, Any]]
"""Takes ``numpy``, a row of each sequence, states, constants; returns states, and what to sum."""


class _InPyTensor:
    """What steps call by other names in PyTensor than in JAX."""

    def __getattr__(self, name: str) -> Any:
        return getattr(pt, name)

    logsumexp = staticmethod(pt.logsumexp)
    sigmoid = staticmethod(pt.sigmoid)
    where = staticmethod(pt.switch)

    @staticmethod
    def add_at(x: Any, index: Any, value: Any) -> Any:
        return x[index].inc(value)


class _InJax:
    def __getattr__(self, name: str) -> Any:
        return getattr(jnp, name)

    logsumexp = staticmethod(jax.scipy.special.logsumexp)
    sigmoid = staticmethod(jax.nn.sigmoid)

    @staticmethod
    def add_at(x: Any, index: Any, value: Any) -> Any:
        return x.at[index].add(value)


def _sum_of_terms(step: Step, *, states: int, sequences: int) -> tuple[Callable[..., Any], ...]:
    """Return the sum of what a step computes, in PyTensor and in JAX.

    Of the arguments, the first are ``sequences``, and the next ``states``.
    """

    def in_pytensor(**given: Any) -> Any:
        values = list(given.values())
        rows, rest = values[:sequences], values[sequences:]

        def one(*arguments: Any) -> list[Any]:
            carry, term = step(_InPyTensor(), *arguments)
            return [*carry, term]

        *_, terms = scan(
            one,
            sequences=rows,
            outputs_info=[*rest[:states], None],
            non_sequences=rest[states:],
        )
        return terms.sum()

    def in_jax(**given: Any) -> Any:
        values = list(given.values())
        rows, rest = values[:sequences], values[sequences:]

        def one(carry: Any, row: Any) -> Any:
            carry, term = step(_InJax(), *row, *carry, *rest[states:])
            return tuple(carry), term

        return lax.scan(one, tuple(rest[:states]), tuple(rows))[1].sum()

    return in_pytensor, in_jax


def _rescorla_wagner(xp: Any, c: Any, r: Any, q: Any, alpha: Any, beta: Any) -> Any:
    term = beta * q[c] - xp.logsumexp(beta * q)
    return (xp.add_at(q, c, alpha * (r - q[c])),), term


def _elo(xp: Any, i: Any, j: Any, won: Any, ratings: Any, k: Any) -> Any:
    p = xp.sigmoid(ratings[i] - ratings[j])
    change = k * (won - p)
    new = xp.add_at(xp.add_at(ratings, i, change), j, -change)
    return (new,), won * xp.log(p) + (1 - won) * xp.log(1 - p)


def _garch(xp: Any, r: Any, v: Any, omega: Any, alpha: Any, beta: Any) -> Any:
    v = omega + alpha * r**2 + beta * v
    return (v,), -0.5 * (xp.log(v) + r**2 / v)


def _smoothing(xp: Any, y: Any, level: Any, alpha: Any) -> Any:
    return (level + alpha * (y - level),), -0.5 * (y - level) ** 2


def _adstock(xp: Any, spent: Any, sold: Any, stock: Any, kept: Any, effect: Any) -> Any:
    stock = spent + kept * stock
    return (stock,), -0.5 * (sold - effect * xp.log1p(stock)) ** 2


def _hawkes(xp: Any, waited: Any, excited: Any, mu: Any, alpha: Any, beta: Any) -> Any:
    excited = xp.exp(-beta * waited) * (1 + excited)
    return (excited,), xp.log(mu + alpha * excited) - mu * waited


def _solved(xp: Any, x: Any, h: Any, a: Any) -> Any:
    h = xp.tanh(xp.linalg.solve(a, x) + 0.5 * h)
    return (h,), (h**2).sum()


def _q_learning(xp: Any, c: Any, r: Any, q: Any, alpha: Any, beta: Any) -> Any:
    subjects = np.arange(12)
    logits = beta[:, None] * q
    term = logits[subjects, c] - xp.logsumexp(logits, axis=1)
    return (xp.add_at(q, (subjects, c), alpha * (r - q[subjects, c])),), term


def _ragged_hmm(xp: Any, e: Any, seen: Any, logs: Any, moves: Any) -> Any:
    new = xp.logsumexp(logs[:, :, None] + moves[None], axis=1) + e
    new = xp.where(seen[:, None], new, logs)
    # The last row is what counts; a sum of all is as good a cost.
    return (new,), xp.logsumexp(new, axis=-1)


def _kalman(xp: Any, y: Any, m: Any, p: Any, a: Any, q: Any) -> Any:
    m, p = a @ m, a @ p @ a.T + q
    variance, error = p[0, 0] + 0.1, y - m[0]
    gain = p[:, 0] / variance
    term = -0.5 * (xp.log(variance) + error**2 / variance)
    return (m + gain * error, p - xp.outer(gain, p[0])), term


def _hmm(xp: Any, e: Any, logs: Any, moves: Any) -> Any:
    new = e + xp.logsumexp(logs[:, None] + moves, axis=0)
    return (new,), xp.logsumexp(new)


def _lstm(xp: Any, x: Any, h: Any, c: Any, w: Any, u: Any) -> Any:
    gates = x @ w + h @ u
    i, f, o, g = (gates[:, 16 * n : 16 * (n + 1)] for n in range(4))
    c = xp.sigmoid(f) * c + xp.sigmoid(i) * xp.tanh(g)
    h = xp.sigmoid(o) * xp.tanh(c)
    return (h, c), (h**2).sum()


def _rk4(xp: Any, _: Any, y: Any, a: Any, b: Any) -> Any:
    def slope(y: Any) -> Any:
        return xp.stack([a * y[0] - b * y[0] * y[1], b * y[0] * y[1] - y[1]])

    h = 0.01
    k1 = slope(y)
    k2 = slope(y + h / 2 * k1)
    k3 = slope(y + h / 2 * k2)
    k4 = slope(y + h * k3)
    y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return (y,), y[0] ** 2


def _rnn(xp: Any, x: Any, h: Any, w: Any) -> Any:
    h = xp.tanh(x + w @ h)
    return (h,), (h**2).sum()


def _moves(n: int) -> np.ndarray:
    return np.log(_rng.dirichlet(np.ones(n), size=n))


def _case(
    step: Step,
    values: dict[str, Any],
    wrt: tuple[str, ...],
    *,
    states: int = 1,
    sequences: int = 1,
    **options: Any,
) -> Case:
    in_pytensor, in_jax = _sum_of_terms(step, states=states, sequences=sequences)
    return Case(in_pytensor, in_jax, values, wrt, **options)


def _filter(n: int, *, shapes_known: bool) -> Case:
    start = {"m": np.zeros(n), "p": np.eye(n)}
    matrices = {"a": 0.8 * np.eye(n) + 0.1 / n, "q": 0.1 * np.eye(n)}
    return _case(
        _kalman,
        {"y": _rng.normal(size=500), **start, **matrices},
        ("a", "q"),
        states=2,
        shapes_known=shapes_known,
    )


def _chains(shape: tuple[int, ...], *, shapes_known: bool = True) -> Case:
    starts = {"v": 1.0, "omega": 0.1, "alpha": 0.1, "beta": 0.8}
    return _case(
        _garch,
        {"r": _rng.normal(size=(1_000, *shape))}
        | {name: np.full(shape, value) for name, value in starts.items()},
        ("omega", "alpha", "beta"),
        shapes_known=shapes_known,
        by_hand=loops_by_hand.garch_chains if shape else loops_by_hand.garch,
    )


def _games(n: int) -> Case:
    values = {
        "i": _rng.integers(0, n // 2, 1_000),
        "j": _rng.integers(n // 2, n, 1_000),
        "won": _rng.integers(0, 2, 1_000).astype(float),
        "ratings": _rng.normal(size=n) / 10,
        "k": 0.1,
    }
    return _case(_elo, values, ("ratings", "k"), sequences=3, shapes_known=False)


_LENGTHS = _rng.integers(70, 200, size=15)

MODEL_LOOPS = {
    "Rescorla-Wagner, 4 arms": _case(
        _rescorla_wagner,
        {
            "c": _rng.integers(0, 4, 500),
            "r": _rng.integers(0, 2, 500).astype(float),
            "q": np.full(4, 0.5),
            "alpha": 0.3,
            "beta": 2.0,
        },
        ("alpha", "beta"),
        sequences=2,
        by_hand=loops_by_hand.rescorla_wagner,
    ),
    "Elo, 100 players": _games(100),
    "Elo, 10,000 players": _games(10_000),
    "GARCH, 1 chain": _chains(()),
    "GARCH, a vector of 1": _chains((1,)),
    "GARCH, 16 chains": _chains((16,)),
    "GARCH, 16 chains, shapes unknown": _chains((16,), shapes_known=False),
    "exponential smoothing": _case(
        _smoothing,
        {"y": _rng.normal(size=2_000), "level": 0.1, "alpha": 0.3},
        ("level", "alpha"),
        by_hand=loops_by_hand.smoothing,
    ),
    "adstock": _case(
        _adstock,
        {
            "spent": _rng.random(2_000),
            "sold": _rng.normal(size=2_000),
            "stock": 0.1,
            "kept": 0.7,
            "effect": 0.5,
        },
        ("kept", "effect"),
        sequences=2,
        by_hand=loops_by_hand.adstock,
    ),
    "Hawkes process": _case(
        _hawkes,
        {
            "waited": _rng.exponential(size=2_000),
            "excited": 0.0,
            "mu": 0.4,
            "alpha": 0.5,
            "beta": 1.2,
        },
        ("mu", "alpha", "beta"),
        by_hand=loops_by_hand.hawkes,
    ),
    "rows solved by a matrix of 3": _case(
        _solved,
        {"x": _rng.normal(size=(500, 3)), "h": np.zeros(3), "a": np.eye(3) + 0.1},
        ("a", "x"),
    ),
    "Q-learning, 12 subjects": _case(
        _q_learning,
        {
            "c": _rng.integers(0, 3, (200, 12)),
            "r": _rng.integers(0, 2, (200, 12)).astype(float),
            "q": np.full((12, 3), 0.5),
            "alpha": _rng.random(12) / 2,
            "beta": _rng.random(12) * 2,
        },
        ("alpha", "beta"),
        sequences=2,
    ),
    "ragged HMM, 15 series": _case(
        _ragged_hmm,
        {
            "e": _rng.normal(size=(200, 15, 3)),
            "seen": np.arange(200)[:, None] < _LENGTHS,
            "logs": np.log(np.full((15, 3), 1 / 3)),
            "moves": _moves(3),
        },
        ("e", "moves"),
        sequences=2,
    ),
    **{
        f"Kalman filter, {n} states{'' if known else ', shapes unknown'}": _filter(
            n, shapes_known=known
        )
        for n in (4, 10, 20)
        for known in (True, False)
    },
    "HMM, 20 states": _case(
        _hmm,
        {"e": _rng.normal(size=(500, 20)), "logs": _moves(20)[0], "moves": _moves(20)},
        ("e", "moves"),
    ),
    "LSTM, batch of 8": _case(
        _lstm,
        {
            "x": _rng.normal(size=(200, 8, 16)),
            "h": np.zeros((8, 16)),
            "c": np.zeros((8, 16)),
            "w": _rng.normal(size=(16, 64)) / 4,
            "u": _rng.normal(size=(16, 64)) / 4,
        },
        ("w", "u"),
        states=2,
    ),
    "predator and prey, RK4": _case(
        _rk4,
        {"t": np.zeros(2_000), "y": np.array([1.0, 0.5]), "a": 1.1, "b": 0.4},
        ("y", "a", "b"),
    ),
    "RNN 64, float32": _case(
        _rnn,
        {"x": _rng.normal(size=(500, 64)), "h": np.zeros(64), "w": _rng.normal(size=(64, 64)) / 16},
        ("w", "h"),
        dtype="float32",
    ),
}
