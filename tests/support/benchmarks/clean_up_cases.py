"""Loops that only clean-up makes faster: each has what nobody uses, or what is known beforehand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph

from support.benchmarks.beside_cases import Built, Case
from support.graph_building import scan

_N = pt.lscalar("n_steps")


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


def _unread_output() -> Case:
    """Clean-ofg: of two outputs of an OpFromGraph, the step reads the cheap one."""

    def build() -> Built:
        row, weight = pt.dvector("row"), pt.dmatrix("weight")
        both = OpFromGraph([row, weight], [pt.tanh(row), pt.exp(weight @ weight)], name="both")
        start, matrix = pt.dvector("start"), pt.dmatrix("matrix")
        rows = scan(
            lambda h, w: both(h + w[0], w)[0],
            outputs_info=[start],
            non_sequences=[matrix],
            n_steps=200,
        )
        return [start, matrix], [rows[-1]]

    def arguments(scale: int) -> list[Any]:
        n = 16 * scale
        return [np.ones(n), _rng().normal(size=(n, n)) / n]

    return Case("an output of an OpFromGraph that nobody reads", build, arguments, 4)


def _small_op_from_graph() -> Case:
    """Inline-ofg: a step of numbers applies an OpFromGraph, and is differentiated through it."""

    def build() -> Built:
        u, v = pt.dscalars("u", "v")
        logistic = OpFromGraph([u, v], [u * v * (1 - u)], name="logistic")
        start, rate = pt.dscalars("start", "rate")
        rows = scan(
            lambda x, r: logistic(x, r), outputs_info=[start], non_sequences=[rate], n_steps=_N
        )
        cost = (rows**2).sum()
        return [start, rate, _N], [cost, *pytensor.grad(cost, [start, rate])]

    def arguments(scale: int) -> list[Any]:
        return [np.asarray(0.4), np.asarray(1.5), np.asarray(500 * scale)]

    return Case("a small OpFromGraph in a step, gradient", build, arguments, 8)


def _constant_loop() -> Case:
    """Fold-loops: the weights of a moving average, which depend on nothing."""

    def build() -> Built:
        x = pt.dvector("x")
        weights = scan(
            lambda w: 0.99 * w, outputs_info=[pt.as_tensor(np.float64(1))], n_steps=1_000
        )
        return [x], [pt.dot(weights, x)]

    return Case("a loop over constants", build, lambda _scale: [_rng().normal(size=1_000)])


def _unread_taps() -> Case:
    """Drop-taps: of the four rows that a step is given, it reads the one before it."""

    def build() -> Built:
        start = pt.dmatrix("start")
        rows = scan(
            lambda a, b, c, d: pt.tanh(0.9 * d),
            outputs_info=[{"initial": start, "taps": [-4, -3, -2, -1]}],
            n_steps=_N,
        )
        return [start, _N], [rows[-1]]

    def arguments(scale: int) -> list[Any]:
        return [_rng().normal(size=(4, 2_000)), np.asarray(50 * scale)]

    return Case("taps that no step reads", build, arguments, 4)


def _shared_factors() -> Case:
    """Share-factors: the second gradient of a loop whose step is a square."""

    def build() -> Built:
        x, c = pt.dvectors("x", "c")
        rows = scan(lambda h, c: h - c * h * h, outputs_info=[x], non_sequences=[c], n_steps=_N)
        slope = pytensor.grad((rows[-1] ** 2).sum(), x)
        return [x, c, _N], [slope, pytensor.grad((slope**2).sum(), x)]

    def arguments(scale: int) -> list[Any]:
        return [np.full(64, 0.3), np.full(64, 0.01), np.asarray(100 * scale)]

    return Case("the second gradient of squares", build, arguments, 4)


def _equal_rows() -> Case:
    """Inline-constants: each step is given the same matrix, repeated and reversed."""

    def build() -> Built:
        matrix, start = pt.dmatrix("matrix"), pt.dvector("start")
        repeated = pt.repeat(matrix[None], _N, axis=0)[::-1]
        rows = scan(lambda w, h: pt.tanh(w @ h), sequences=[repeated], outputs_info=[start])
        return [matrix, start, _N], [rows[-1]]

    def arguments(scale: int) -> list[Any]:
        n = 16 * scale
        return [_rng().normal(size=(n, n)) / n, np.ones(n), np.asarray(200)]

    return Case("a sequence of equal matrices", build, arguments, 4)


def _inverse() -> Case:
    """Push-out: an inverse that no step changes, computed only if there is a step."""

    def build() -> Built:
        matrix, start = pt.dmatrix("matrix"), pt.dvector("start")
        rows = scan(
            lambda h, w: pt.tanh(pt.linalg.inv(w) @ h),
            outputs_info=[start],
            non_sequences=[matrix],
            n_steps=_N,
        )
        return [matrix, start, _N], [rows[-1]]

    def arguments(scale: int) -> list[Any]:
        n = 10
        matrix = _rng().normal(size=(n, n)) + n * np.eye(n)
        return [matrix, np.ones(n), np.asarray(500 * scale)]

    return Case("products by an inverse that no step changes", build, arguments, 4)


CLEAN_UPS = [
    _unread_output(),
    _small_op_from_graph(),
    _constant_loop(),
    _unread_taps(),
    _shared_factors(),
    _equal_rows(),
    _inverse(),
]
