"""Kalman filters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt

from support.graph_building import scan
from support.zoo.model import Built, Model, drawn, numbers

_A = np.array([[0.9, 0.2, 0.0], [-0.1, 0.8, 0.1], [0.0, 0.3, 0.7]])
_Q = np.array([[0.3, 0.05, 0.0], [0.05, 0.2, 0.02], [0.0, 0.02, 0.4]])
_H = np.array([[1.0, 0.5, -0.3]])
_H2 = np.array([[1.0, 0.5, -0.3], [0.2, -0.4, 1.0]])


def _kalman() -> Built:
    """Everything is a matrix of unknown shape, as in the textbook."""
    y, m0 = pt.dvectors("y", "m0")
    p0, a, q, h = pt.dmatrices("P0", "A", "Q", "H")
    r = pt.dscalar("r")

    def step(y: Any, m: Any, p: Any, ll: Any, a: Any, q: Any, h: Any, r: Any) -> Any:
        m = pt.dot(a, m)
        p = pt.dot(pt.dot(a, p), a.T) + q
        v = y - pt.dot(h, m)[0]
        s = pt.dot(pt.dot(h, p), h.T)[0, 0] + r
        gain = pt.dot(p, h.T)[:, 0] / s
        m = m + gain * v
        p = p - pt.outer(gain, pt.dot(h, p)[0])
        ll = ll - (pt.log(s) + v**2 / s) / 2
        return m, p, ll

    *_, ll = scan(
        step,
        sequences=[y],
        outputs_info=[m0, p0, pt.zeros(())],
        non_sequences=[a, q, h, r],
        name="kalman",
    )
    return [y, m0, p0, a, q, h, r], ll[-1]


def _kalman_reference(
    y: Any, m: Any, p: Any, a: Any, q: Any, h: Any, r: Any, joseph: bool = False
) -> Any:
    ll = 0.0
    for value in y:
        m, p = a @ m, a @ p @ a.T + q
        s = (h @ p @ h.T + r).item()
        gain = p @ h[0] / s
        v = value - h[0] @ m
        m = m + gain * v
        if joseph:
            left = np.eye(len(m)) - np.outer(gain, h[0])
            p = left @ p @ left.T + r * np.outer(gain, gain)
        else:
            p = p - np.outer(gain, h[0] @ p)
        ll -= 0.5 * (np.log(s) + v * v / s)
    return ll


def _joseph() -> Built:
    """Known shapes; the covariance stays positive by the longer update."""
    y = pt.tensor("y", shape=(7,), dtype="float64")
    m0 = pt.tensor("m0", shape=(3,), dtype="float64")
    p0, a, q = (pt.tensor(name, shape=(3, 3), dtype="float64") for name in ("P0", "A", "Q"))
    h = pt.tensor("H", shape=(1, 3), dtype="float64")
    r = pt.dscalar("r")

    def step(y: Any, m: Any, p: Any, a: Any, q: Any, h: Any, r: Any) -> Any:
        m = a @ m
        p = a @ p @ a.T + q
        s = h @ p @ h.T + r
        gain = p @ h.T / s
        v = y - h @ m
        left = pt.eye(3) - gain @ h
        updated = left @ p @ left.T + r * gain @ gain.T
        return m + gain @ v, updated, -0.5 * (pt.log(s[0, 0]) + v[0] ** 2 / s[0, 0])

    *_, ll = scan(
        step,
        sequences=[y],
        outputs_info=[m0, p0, None],
        non_sequences=[a, q, h, r],
        strict=True,
        name="joseph",
    )
    return [y, m0, p0, a, q, h, r], ll.sum()


def _local_level() -> Built:
    """Level and variance are numbers; the start is known vaguely."""
    y = pt.dvector("y")
    log_q, log_r = pt.dscalars("log_q", "log_r")
    q, r = pt.exp(log_q), pt.exp(log_r)

    def step(y: Any, level: Any, p: Any, q: Any, r: Any) -> Any:
        p = p + q
        s = p + r
        v = y - level
        gain = p / s
        return level + gain * v, p * (1 - gain), v, s

    _, _, v, s = scan(
        step,
        sequences=[y],
        outputs_info=[pt.zeros(()), 100 * pt.ones(()), None, None],
        non_sequences=[q, r],
        name="level",
    )
    return [y, log_q, log_r], -0.5 * (pt.log(2 * np.pi * s) + v**2 / s).sum()


def _local_level_reference(y: Any, log_q: Any, log_r: Any) -> Any:
    level, p, cost = 0.0, 100.0, 0.0
    for value in y:
        p += np.exp(log_q)
        s = p + np.exp(log_r)
        v = value - level
        level, p = level + p / s * v, p - p * p / s
        cost -= (np.log(2 * np.pi * s) + v * v / s) / 2
    return cost


def _missing() -> Built:
    """A local linear trend; where the observation is NaN, only the prediction is made."""
    y = pt.dvector("y")
    m0 = pt.tensor("m0", shape=(2,), dtype="float64")
    q = pt.tensor("Q", shape=(2, 2), dtype="float64")
    r = pt.dscalar("r")
    a = pt.as_tensor(np.array([[1.0, 1.0], [0.0, 1.0]]))

    def step(y: Any, m: Any, p: Any, ll: Any, q: Any, r: Any) -> Any:
        m = pt.dot(a, m)
        p = pt.dot(a, pt.dot(p, a.T)) + q
        missing = pt.isnan(y)
        s = p[0, 0] + r
        v = pt.switch(missing, 0.0, y - m[0])
        gain = pt.switch(missing, pt.zeros(2), p[:, 0] / s)
        ll = ll + pt.switch(missing, 0.0, -0.5 * (pt.log(s) + v**2 / s))
        return m + gain * v, p - pt.outer(gain, p[0]), ll

    *_, ll = scan(
        step,
        sequences=[y],
        outputs_info=[m0, pt.eye(2), pt.zeros(())],
        non_sequences=[q, r],
        name="missing",
    )
    return [y, m0, q, r], ll[-1]


def _missing_reference(y: Any, m: Any, q: Any, r: Any) -> Any:
    a, p, ll = np.array([[1.0, 1.0], [0.0, 1.0]]), np.eye(2), 0.0
    for value in y:
        m, p = a @ m, a @ p @ a.T + q
        if np.isnan(value):
            continue
        s, v = p[0, 0] + r, value - m[0]
        m, p = m + p[:, 0] / s * v, p - np.outer(p[:, 0], p[0]) / s
        ll -= 0.5 * (np.log(s) + v**2 / s)
    return ll


def _multivariate() -> Built:
    """Two observations at a time: a Cholesky factor for the density, a solve for the gain."""
    y = pt.tensor("y", shape=(None, 2), dtype="float64")
    m0 = pt.dvector("m0")
    a, root = pt.dmatrices("A", "root")
    h = pt.dmatrix("H")
    log_r = pt.dvector("log_r")
    q, r = pt.dot(root, root.T), pt.diag(pt.exp(log_r))

    def step(y: Any, m: Any, p: Any, a: Any, q: Any, h: Any, r: Any) -> Any:
        m = a @ m
        p = a @ p @ a.T + q
        v = y - h @ m
        s = h @ p @ h.T + r
        factor = pt.linalg.cholesky(s)
        z = pt.linalg.solve_triangular(factor, v, lower=True)
        ll = -0.5 * (z**2).sum() - pt.log(pt.diag(factor)).sum()
        gain = pt.linalg.solve(s, h @ p).T
        return m + gain @ v, p - gain @ s @ gain.T, ll

    *_, ll = scan(
        step,
        sequences=[y],
        outputs_info=[m0, pt.eye(m0.shape[0]), None],
        non_sequences=[a, q, h, r],
        name="multivariate",
    )
    return [y, m0, a, root, h, log_r], ll.sum()


def _multivariate_reference(y: Any, m: Any, a: Any, root: Any, h: Any, log_r: Any) -> Any:
    p, q, r, ll = np.eye(len(m)), root @ root.T, np.diag(np.exp(log_r)), 0.0
    for row in y:
        m, p = a @ m, a @ p @ a.T + q
        v, s = row - h @ m, h @ p @ h.T + r
        inverse = np.linalg.inv(s)
        gain = p @ h.T @ inverse
        ll -= (v @ inverse @ v + np.log(np.linalg.det(s))) / 2
        m, p = m + gain @ v, p - gain @ h @ p
    return ll


_Y = drawn(11, 7, scale=1.3)
_GAPS = np.array([0.3, np.nan, 0.9, 1.4, np.nan, np.nan, 2.2, 2.1])
_MATRICES = numbers(_Y, [0.2, -0.1, 0.4], np.eye(3) + 0.1, _A, _Q, _H, 0.5)

FILTERS = (
    Model(
        "Kalman",
        _kalman,
        _MATRICES,
        _kalman_reference,
        ("m0", "P0", "A", "Q", "H", "r"),
    ),
    Model(
        "Kalman, Joseph form",
        _joseph,
        _MATRICES,
        lambda *values: _kalman_reference(*values, joseph=True),
        ("m0", "P0", "A", "Q", "r"),
    ),
    Model(
        "Kalman, local level",
        _local_level,
        numbers(drawn(12, 9).cumsum(), -0.7, 0.2),
        _local_level_reference,
        ("y", "log_q", "log_r"),
    ),
    Model(
        "Kalman, missing data",
        _missing,
        numbers(_GAPS, [0.1, 0.2], [[0.2, 0.03], [0.03, 0.1]], 0.4),
        _missing_reference,
        ("m0", "Q", "r"),
    ),
    Model(
        "Kalman, two observations",
        _multivariate,
        numbers(drawn(13, 5, 2), [0.2, -0.1, 0.4], _A, np.tril(_Q + 0.2), _H2, [-0.5, 0.1]),
        _multivariate_reference,
        ("m0", "A", "root", "H", "log_r"),
        rtol=1e-8,
    ),
)
