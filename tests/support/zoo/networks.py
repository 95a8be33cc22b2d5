"""Recurrent networks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt

from support.graph_building import scan
from support.zoo.model import Built, Model, drawn, numbers


def _rnn() -> Built:
    x, w = pt.dmatrices("x", "w")
    h0 = pt.dvector("h0")
    hs = scan(
        lambda x, h, w: pt.tanh(x + pt.dot(w, h)),
        sequences=[x],
        outputs_info=[h0],
        non_sequences=[w],
        name="rnn",
    )
    return [x, h0, w], (hs**2).sum()


def _rnn_reference(x: Any, h: Any, w: Any) -> Any:
    total = 0.0
    for row in x:
        h = np.tanh(row + w @ h)
        total += h @ h
    return total


def _matrix_rnn() -> Built:
    """The state is a matrix, and the cost its trace after the last step."""
    h0, w, u = (pt.tensor(name, shape=(3, 3), dtype="float64") for name in ("h0", "w", "u"))
    hs = scan(
        lambda h, w, u: pt.tanh(w @ h @ u + h.T / 2),
        outputs_info=[h0],
        non_sequences=[w, u],
        n_steps=5,
        name="matrix_rnn",
    )
    return [h0, w, u], pt.trace(hs[-1])


def _matrix_rnn_reference(h: Any, w: Any, u: Any) -> Any:
    for _ in range(5):
        h = np.tanh(np.einsum("ij,jk,kl->il", w, h, u) + h.T / 2)
    return np.trace(h)


def _gru() -> Built:
    x = pt.tensor("x", shape=(None, 2), dtype="float64")
    h0 = pt.tensor("h0", shape=(2,), dtype="float64")
    w, u, v = (pt.tensor(name, shape=(2, 2), dtype="float64") for name in "wuv")

    def step(x: Any, h: Any, w: Any, u: Any, v: Any) -> Any:
        update, reset = pt.sigmoid(x + w @ h), pt.sigmoid(x + u @ h)
        return (1 - update) * h + update * pt.tanh(x + v @ (reset * h))

    hs = scan(step, sequences=[x], outputs_info=[h0], non_sequences=[w, u, v], name="gru")
    return [x, h0, w, u, v], (hs**2).sum() + hs[-1, 0]


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _gru_reference(x: Any, h: Any, w: Any, u: Any, v: Any) -> Any:
    total = 0.0
    for row in x:
        update, reset = _sigmoid(row + w @ h), _sigmoid(row + u @ h)
        h = h + update * (np.tanh(row + v @ (reset * h)) - h)
        total += h @ h
    return total + h[0]


def _lstm() -> Built:
    """A batch of two; the weights of all gates are one matrix."""
    x = pt.tensor3("x", dtype="float64")
    weights, bias = pt.dmatrix("weights"), pt.dvector("bias")
    size = bias.shape[0] // 4

    def step(x: Any, h: Any, c: Any, weights: Any, bias: Any) -> Any:
        gates = pt.dot(pt.concatenate([x, h], axis=1), weights) + bias
        keep, write, read = (pt.sigmoid(gates[:, i * size : (i + 1) * size]) for i in range(3))
        c = keep * c + write * pt.tanh(gates[:, 3 * size :])
        return read * pt.tanh(c), c

    zeros = pt.zeros((x.shape[1], size))
    hs, cs = scan(
        step,
        sequences=[x],
        outputs_info=[zeros, zeros],
        non_sequences=[weights, bias],
        name="lstm",
    )
    return [x, weights, bias], (hs**2).mean() + cs[-1].sum()


def _lstm_reference(x: Any, weights: Any, bias: Any) -> Any:
    size = len(bias) // 4
    total, last = [], 0.0
    for sample in range(x.shape[1]):
        h, c = np.zeros(size), np.zeros(size)
        for row in x[:, sample]:
            forget, write, read, new = np.split(np.r_[row, h] @ weights + bias, 4)
            c = _sigmoid(forget) * c + _sigmoid(write) * np.tanh(new)
            h = _sigmoid(read) * np.tanh(c)
            total.append(h**2)
        last += c.sum()
    return np.mean(total) + last


def _attention() -> Built:
    """A query that looks at the same keys again and again, and names a key at each step."""
    query0 = pt.dvector("query0")
    keys, values = pt.dmatrices("keys", "values")
    targets = pt.lvector("targets")

    def step(target: Any, query: Any, keys: Any, values: Any) -> Any:
        scores = pt.dot(keys, query) / pt.sqrt(query.shape[0])
        seen = pt.dot(pt.special.softmax(scores, axis=-1), values)
        return pt.tanh(query / 2 + seen), pt.special.log_softmax(scores, axis=-1)[target]

    _, logs = scan(
        step,
        sequences=[targets],
        outputs_info=[query0, None],
        non_sequences=[keys, values],
        name="attention",
    )
    return [targets, query0, keys, values], -logs.mean()


def _attention_reference(targets: Any, query: Any, keys: Any, values: Any) -> Any:
    cost = 0.0
    for target in targets:
        weights = np.exp(keys @ query / np.sqrt(len(query)))
        weights = weights / weights.sum()
        cost -= np.log(weights[target])
        query = np.tanh(query / 2 + weights @ values)
    return cost / len(targets)


_WEIGHTS = numbers(*(drawn(seed, 2, 2, scale=0.6) for seed in (51, 52, 53)))

NETWORKS = (
    Model(
        "RNN",
        _rnn,
        numbers(drawn(54, 7, 3), np.zeros(3), drawn(55, 3, 3, scale=0.5)),
        _rnn_reference,
        ("x", "h0", "w"),
    ),
    Model(
        "RNN, matrix state",
        _matrix_rnn,
        numbers(*(drawn(seed, 3, 3, scale=0.5) for seed in (56, 57, 58))),
        _matrix_rnn_reference,
        ("h0", "w", "u"),
    ),
    Model(
        "GRU",
        _gru,
        numbers(drawn(59, 6, 2), [0.1, -0.3], *_WEIGHTS),
        _gru_reference,
        ("x", "h0", "w", "u", "v"),
    ),
    Model(
        "LSTM",
        _lstm,
        numbers(drawn(60, 5, 2, 2), drawn(61, 4, 8, scale=0.5), drawn(62, 8, scale=0.2)),
        _lstm_reference,
        ("weights", "bias"),
    ),
    Model(
        "attention",
        _attention,
        numbers([0, 2, 3, 1, 2], drawn(63, 2), drawn(64, 4, 2), drawn(65, 4, 2)),
        _attention_reference,
        ("query0", "keys", "values"),
    ),
)
