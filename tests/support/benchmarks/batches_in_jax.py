"""The batches of `support.benchmarks.batch_cases`, written for JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import logsumexp

from support.benchmarks.batch_cases import Batch


def _q_learning(choice: Any, reward: Any, alpha: Any, beta: Any, start: Any) -> Any:
    subjects = jnp.arange(choice.shape[1])

    def step(values: Any, given: Any) -> Any:
        c, r = given
        logits = beta[:, None] * values
        chosen = logits[subjects, c] - logsumexp(logits, axis=1)
        return values.at[subjects, c].add(alpha * (r - values[subjects, c])), chosen

    return lax.scan(step, start, (choice, reward))[1].sum()


def _softmax_learning(taken: Any, reward: Any, alpha: Any, beta: Any, start: Any) -> Any:
    def step(values: Any, given: Any) -> Any:
        t, r = given
        shares = jax.nn.softmax(beta[:, None] * values, axis=1)
        new = values + alpha[:, None] * t * (r[:, None] - values)
        return new, jnp.log((shares * t).sum(axis=1))

    return lax.scan(step, start, (taken, reward))[1].sum()


def _masked_hmm(emitted: Any, seen: Any, moves: Any) -> Any:
    def step(logs: Any, given: Any) -> Any:
        e, s = given
        new = logsumexp(logs[:, :, None] + moves[None], axis=1) + e
        return jnp.where(s[:, None], new, logs), None

    logs, _ = lax.scan(step, emitted[0], (emitted[1:], seen[1:]))
    return logsumexp(logs, axis=-1).sum()


def _volatility(series: Any, seen: Any, decay: Any, level: Any, start: Any) -> Any:
    def step(h: Any, given: Any) -> Any:
        y, s = given
        sigma = jnp.exp(h / 2)
        logp = -0.5 * (y / sigma) ** 2 - jnp.log(sigma)
        new = level + decay * (h - level) + 0.1 * jnp.log1p((y / sigma) ** 2)
        return jnp.where(s, new, h), jnp.where(s, logp, 0.0)

    return lax.scan(step, start, (series, seen))[1].sum()


def _network(x: Any, start: Any, weight: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(x + h * weight)
        return h, h

    return (lax.scan(step, start, x)[1] ** 2).sum()


_COSTS: dict[str, Callable[..., Any]] = {
    "Q-learning": _q_learning,
    "softmax": _softmax_learning,
    "masked HMM": _masked_hmm,
    "volatility": _volatility,
    "tanh": _network,
}


def in_jax(kind: str, batch: Batch, *, gradient: bool) -> Callable[..., list[Any]]:
    """Return a function of the values of a case, which JAX compiles: its cost, or the gradients."""
    names, cost = list(batch.values), _COSTS[kind]

    def positional(*arguments: Any) -> Any:
        return cost(**dict(zip(names, arguments, strict=True)))

    wrt = tuple(map(names.index, batch.wrt))
    compiled = jax.jit(jax.grad(positional, wrt) if gradient else positional)

    def run(*arguments: Any) -> list[Any]:
        found = jax.block_until_ready(compiled(*arguments))
        return list(found) if gradient else [found]

    return run
