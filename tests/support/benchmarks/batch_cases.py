"""Loops over batches of subjects or sequences: arrays of some dozen entries, with short axes.

Each case has ``n`` subjects, of which a step computes ``k`` numbers each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt

from scanopt_cli.ir.graph import Graph, from_io
from support.graph_building import scan

_STEPS = 100


@dataclass(frozen=True, slots=True)
class Batch:
    """The cost of a loop, the values of its inputs, and by how many of them it is differentiated.

    With ``is_symbolic``, no shape is known before the loop runs.
    """

    cost: Callable[..., Any]
    values: dict[str, np.ndarray]
    wrt: tuple[str, ...]
    is_symbolic: bool = False

    def graph(self, *, gradient: bool) -> Graph:
        """Return the graph of the cost, or of its gradients."""
        inputs = {
            name: pt.tensor(
                name,
                dtype=value.dtype,
                shape=(None,) * value.ndim if self.is_symbolic else value.shape,
            )
            for name, value in self.values.items()
        }
        cost = self.cost(**inputs)
        slopes = pt.grad(cost, [inputs[name] for name in self.wrt]) if gradient else [cost]
        return from_io(list(inputs.values()), slopes)


def _q_learning(choice: Any, reward: Any, alpha: Any, beta: Any, start: Any) -> Any:
    n = choice.type.shape[1]
    subjects = pt.arange(choice.shape[1]) if n is None else pt.constant(np.arange(n))

    def step(c: Any, r: Any, values: Any, alpha: Any, beta: Any) -> Any:
        logits = beta[:, None] * values
        chosen = logits[subjects, c] - pt.logsumexp(logits, axis=1)
        return values[subjects, c].inc(alpha * (r - values[subjects, c])), chosen

    _, logp = scan(
        step,
        sequences=[choice, reward],
        outputs_info=[start, None],
        non_sequences=[alpha, beta],
    )
    return logp.sum()


def _softmax_learning(taken: Any, reward: Any, alpha: Any, beta: Any, start: Any) -> Any:
    def step(t: Any, r: Any, values: Any, alpha: Any, beta: Any) -> Any:
        shares = pt.special.softmax(beta[:, None] * values, axis=1)
        new = values + alpha[:, None] * t * (r[:, None] - values)
        return new, pt.log((shares * t).sum(axis=1))

    _, logp = scan(
        step,
        sequences=[taken, reward],
        outputs_info=[start, None],
        non_sequences=[alpha, beta],
    )
    return logp.sum()


def _masked_hmm(emitted: Any, seen: Any, moves: Any) -> Any:
    def step(e: Any, s: Any, logs: Any, moves: Any) -> Any:
        new = pt.logsumexp(logs[:, :, None] + moves[None], axis=1) + e
        return pt.switch(s[:, None], new, logs)

    logs = scan(
        step, sequences=[emitted[1:], seen[1:]], outputs_info=[emitted[0]], non_sequences=[moves]
    )
    return pt.logsumexp(logs[-1], axis=-1).sum()


def _volatility(series: Any, seen: Any, decay: Any, level: Any, start: Any) -> Any:
    def step(y: Any, s: Any, h: Any, decay: Any, level: Any) -> Any:
        sigma = pt.exp(h / 2)
        logp = -0.5 * (y / sigma) ** 2 - pt.log(sigma)
        new = level + decay * (h - level) + 0.1 * pt.log1p((y / sigma) ** 2)
        return pt.switch(s, new, h), pt.switch(s, logp, 0.0)

    _, logp = scan(
        step, sequences=[series, seen], outputs_info=[start, None], non_sequences=[decay, level]
    )
    return logp.sum()


def _network(x: Any, start: Any, weight: Any) -> Any:
    hs = scan(
        lambda x, h, w: pt.tanh(x + h * w),
        sequences=[x],
        outputs_info=[start],
        non_sequences=[weight],
    )
    return (hs**2).sum()


_KINDS = {
    "Q-learning": (_q_learning, ("alpha", "beta")),
    "softmax": (_softmax_learning, ("alpha", "beta")),
    "masked HMM": (_masked_hmm, ("emitted", "moves")),
    "volatility": (_volatility, ("decay", "level")),
    "tanh": (_network, ("weight", "start")),
}


def batch(kind: str, n: int, k: int, *, is_symbolic: bool = False) -> Batch:
    """Return a case of ``n`` subjects, with ``k`` numbers each."""
    rng = np.random.default_rng(9)
    cost, wrt = _KINDS[kind]
    choice = rng.integers(0, k, size=(_STEPS, n))
    lengths = rng.integers(_STEPS // 3, _STEPS + 1, size=n)
    values = {
        "choice": choice,
        "taken": np.eye(k)[choice],
        "reward": (rng.random((_STEPS, n)) < 0.5).astype(float),
        "alpha": rng.random(n) * 0.5,
        "beta": rng.random(n) * 2,
        "start": rng.random((n, k)) if kind != "volatility" else rng.random(n),
        "emitted": rng.normal(size=(_STEPS, n, k)),
        "moves": np.log(rng.dirichlet(np.ones(k), size=k)),
        "series": rng.normal(size=(_STEPS, n)),
        "decay": rng.random(n) * 0.5 + 0.4,
        "level": rng.normal(size=n),
        "x": rng.normal(size=(_STEPS, n, k)),
        "weight": rng.normal(size=(n, k)),
        "seen": np.arange(_STEPS)[:, None] < lengths,
    }
    code = cost.__code__
    names = code.co_varnames[: code.co_argcount]
    return Batch(cost, {name: values[name] for name in names}, wrt, is_symbolic)
