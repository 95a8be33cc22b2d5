"""Gradients of loops, with values to evaluate them at and what their loops keep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.fg import FunctionGraph
from pytensor.scan.utils import until

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.loop_lengths import rows
from scanopt_cli.ir.graph import Graph
from scanopt_cli.ir.slots import SlotKind
from support.graph_building import graph_of, scan, scan_views

_WIDTH = 64


@dataclass(frozen=True)
class Case:
    """One gradient: how to build it, and the values of its inputs."""

    build: Callable[[], Graph]
    values: dict[str, Any] = field(default_factory=dict)

    def arguments(self, graph: Graph) -> list[np.ndarray]:
        """Return the inputs of ``graph``, in order."""
        return [np.asarray(self.values[str(v.name)], dtype=v.type.dtype) for v in graph.inputs]


def _power(order: int = 1, steps: int = 10_000) -> Graph:
    x = pt.dscalar("x")
    cost = scan(lambda y: y - 0.001 * y**2, outputs_info=x, n_steps=steps, name="power")[-1]
    for _ in range(order):
        cost = pt.grad(cost, x)
    return graph_of(cost)


def _sum_of_squares() -> Graph:
    x = pt.dscalar("x")
    ys = scan(lambda y: y - 0.001 * y**2, outputs_info=x, n_steps=10_000, name="power")
    return graph_of(pt.grad((ys**2).sum(), x))


def _ar2() -> Graph:
    start, a, b = pt.dvector("start", shape=(2,)), pt.dscalar("a"), pt.dscalar("b")
    ys = scan(
        lambda before, last, a, b: pt.tanh(a * before + b * last),
        outputs_info=[{"initial": start, "taps": [-2, -1]}],
        non_sequences=[a, b],
        n_steps=10_000,
        name="ar2",
    )
    return graph_of(*pt.grad(ys[-1], [start]))


def _nested() -> Graph:
    def outer(y: Any) -> Any:
        return scan(lambda z: z - 0.001 * z**2, outputs_info=y, n_steps=10, name="inner")[-1]

    x = pt.dscalar("x")
    return graph_of(pt.grad(scan(outer, outputs_info=x, n_steps=500, name="outer")[-1], x))


def _rnn(*, static: bool = False) -> Graph:
    x, h, w = _network("xhw", static=static)
    hs = scan(
        lambda x, h, w: pt.tanh(x + w @ h),
        sequences=[x],
        outputs_info=h,
        non_sequences=[w],
        name="rnn",
    )
    return graph_of(*pt.grad((hs**2).sum(), [w, h]))


def _gru() -> Graph:
    def step(x: Any, h: Any, w: Any, u: Any, v: Any) -> Any:
        update, reset = pt.sigmoid(x + w @ h), pt.sigmoid(x + u @ h)
        return (1 - update) * h + update * pt.tanh(x + v @ (reset * h))

    x, h, w, u, v = _network("xhwuv", static=False)
    hs = scan(step, sequences=[x], outputs_info=h, non_sequences=[w, u, v], name="gru")
    return graph_of(*pt.grad((hs**2).sum(), [w, u, v, h]))


def _garch() -> Graph:
    returns = pt.tensor("returns", shape=(2_000,))
    omega, alpha, beta = pt.dscalars("omega", "alpha", "beta")
    variances = scan(
        lambda r, v, omega, alpha, beta: omega + alpha * r**2 + beta * v,
        sequences=[returns],
        outputs_info=[pt.ones(())],
        non_sequences=[omega, alpha, beta],
        name="garch",
    )
    cost = -0.5 * (pt.log(variances) + returns**2 / variances).sum()
    return graph_of(*pt.grad(cost, [omega, alpha, beta]))


def _ignored_state() -> Graph:
    """The cost looks at one of three states, which feeds the others."""
    x, k = pt.dscalars("x", "k")
    used, *_ = scan(
        lambda s, i, r, k: [s - k * s * i, i + k * s * i - 0.1 * i, r + 0.1 * i],
        outputs_info=[x, 1 - x, pt.zeros(())],
        non_sequences=[k],
        n_steps=5_000,
        name="sir",
    )
    return graph_of(*pt.grad((used**2).sum(), [x, k]))


def _stopping() -> Graph:
    """A loop with a stop condition, which runs 3,761 of 10,000 steps."""
    x = pt.dscalar("x")
    ys = scan(
        lambda y: (y - 0.001 * y**2, until(y < 0.21)), outputs_info=x, n_steps=10_000, name="stops"
    )
    return graph_of(pt.grad(ys[-1], x))


def _state_space(*, static: bool) -> Graph:
    """The log-likelihood of a series by a Kalman filter of four states."""
    shape = (4, 4) if static else (None, None)
    series, a, q = pt.dvector("series"), pt.dmatrix("a", shape=shape), pt.dmatrix("q", shape=shape)

    def step(y: Any, m: Any, p: Any, total: Any, a: Any, q: Any) -> Any:
        m, p = a @ m, a @ p @ a.T + q
        variance, error = p[0, 0] + 0.1, y - m[0]
        gain = p[:, 0] / variance
        term = pt.log(variance) + error**2 / variance
        return m + gain * error, p - pt.outer(gain, p[0]), total - term / 2

    *_, totals = scan(
        step,
        sequences=[series],
        outputs_info=[pt.zeros(4), pt.eye(4), pt.zeros(())],
        non_sequences=[a, q],
        name="kalman",
    )
    return graph_of(*pt.grad(totals[-1], [a, q]))


def _network(names: str, *, static: bool) -> list[Any]:
    """The inputs called ``names``, of known shapes or not."""
    return [
        pt.tensor(name, dtype="float64", shape=shape if static else (None,) * len(shape))
        for name in names
        for shape in [np.shape(_NETWORK[name])]
    ]


def _weights(seed: int, width: int = _WIDTH) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(width, width)) / (2 * width**0.5)


_NETWORK = {
    "x": np.random.default_rng(0).normal(size=(1_000, _WIDTH)),
    "h": np.zeros(_WIDTH),
    "w": _weights(1),
    "u": _weights(2),
    "v": _weights(3),
}

_SERIES = {
    "series": np.random.default_rng(5).normal(size=500),
    "a": 0.9 * np.eye(4) + 0.02,
    "q": 0.1 * np.eye(4),
}

CASES: dict[str, Case] = {
    "scalar": Case(_power, {"x": 1.0}),
    "scalar, sum of squares": Case(_sum_of_squares, {"x": 1.0}),
    "scalar, order 2": Case(lambda: _power(2), {"x": 1.0}),
    "AR(2)": Case(_ar2, {"start": [0.5, 0.4], "a": 0.5, "b": 0.3}),
    "nested 500 x 10": Case(_nested, {"x": 1.0}),
    "RNN 64": Case(_rnn, _NETWORK),
    "RNN 64, static shapes": Case(lambda: _rnn(static=True), _NETWORK),
    "GRU 64": Case(_gru, _NETWORK),
    "GARCH": Case(
        _garch,
        {
            "returns": np.random.default_rng(4).normal(size=2_000),
            "omega": 0.1,
            "alpha": 0.1,
            "beta": 0.8,
        },
    ),
    "a state that the cost ignores": Case(_ignored_state, {"x": 0.9, "k": 0.3}),
    "RNN 512": Case(
        _rnn,
        {
            "x": np.random.default_rng(0).normal(size=(200, 512)),
            "h": np.zeros(512),
            "w": _weights(1, 512),
        },
    ),
    "a stop condition": Case(_stopping, {"x": 1.0}),
    "Kalman filter, 4 states": Case(lambda: _state_space(static=True), _SERIES),
    "Kalman filter, 4 states, shapes unknown": Case(lambda: _state_space(static=False), _SERIES),
}
"""Every case that is timed, by name."""


def kept_bytes(fgraph: FunctionGraph) -> int:
    """Return how many bytes the buffers of all loops of ``fgraph`` have, of known lengths only."""
    total = 0
    for view in scan_views(fgraph):
        lengths = Lengths(view.n_steps)
        for slot in view.outputs():
            entry = (slot.inner_outputs[0]).type
            count = 1
            if slot.kind is not SlotKind.UNTRACED:
                known = rows(view, slot, lengths)
                assert known.is_constant, (view.name, slot.label, str(known))
                count = known.constant
            total += count * prod(entry.shape) * np.dtype(entry.dtype).itemsize
    return total
