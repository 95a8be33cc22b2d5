"""Differential equations, iterations to a solution, loops in loops and batches of loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until

from support.graph_building import scan
from support.zoo.model import Built, Model, drawn, numbers


def _sir() -> Built:
    """An epidemic by Euler's method, compared with counts of the infected."""
    counts = pt.dvector("counts")
    beta, gamma, i0 = pt.dscalars("beta", "gamma", "i0")

    def step(s: Any, i: Any, r: Any, beta: Any, gamma: Any) -> Any:
        infected, recovered = beta * s * i, gamma * i
        return s - infected, i + infected - recovered, r + recovered

    _, i, r = scan(
        step,
        outputs_info=[1 - i0, i0, pt.zeros(())],
        non_sequences=[beta, gamma],
        n_steps=counts.shape[0],
        name="sir",
    )
    return [counts, beta, gamma, i0], ((counts - i) ** 2).sum() + r[-1]


def _sir_reference(counts: Any, beta: Any, gamma: Any, i0: Any) -> Any:
    s, i, cost = 1 - i0, i0, 0.0
    for count in counts:
        s, i = s * (1 - beta * i), i * (1 + beta * s - gamma)
        cost += (count - i) ** 2
    return cost + 1 - s - i


def _lotka_volterra() -> Built:
    """Hunters and hunted, by a Runge-Kutta method of fourth order."""
    start = pt.tensor("start", shape=(2,), dtype="float64")
    theta = pt.tensor("theta", shape=(4,), dtype="float64")
    dt = pt.dscalar("dt")

    def slope(y: Any, theta: Any) -> Any:
        return pt.stack([y[0] * (theta[0] - theta[1] * y[1]), y[1] * (theta[2] * y[0] - theta[3])])

    def step(y: Any, theta: Any, dt: Any) -> Any:
        k1 = slope(y, theta)
        k2 = slope(y + dt / 2 * k1, theta)
        k3 = slope(y + dt / 2 * k2, theta)
        k4 = slope(y + dt * k3, theta)
        return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    ys = scan(
        step,
        outputs_info=[start],
        non_sequences=[theta, dt],
        n_steps=6,
        name="lotka_volterra",
    )
    return [start, theta, dt], (pt.log(ys) ** 2).sum()


def _lotka_volterra_reference(start: Any, theta: Any, dt: Any) -> Any:
    a, b, c, d = theta

    def slope(x: Any, y: Any) -> tuple[Any, Any]:
        return x * (a - b * y), y * (c * x - d)

    (x, y), cost = start, 0.0
    for _ in range(6):
        slopes = [(0.0, 0.0)]
        for part in (0.0, 0.5, 0.5, 1.0):
            u, v = slopes[-1]
            slopes.append(slope(x + part * dt * u, y + part * dt * v))
        for weight, (u, v) in zip((1, 2, 2, 1), slopes[1:], strict=True):
            x, y = x + weight * dt * u / 6, y + weight * dt * v / 6
        cost += np.log(x) ** 2 + np.log(y) ** 2
    return cost


def _newton() -> Built:
    """A root, as soon as a step is short enough; at most 20 steps."""
    a, b, x0 = pt.dscalars("a", "b", "x0")

    def step(x: Any, a: Any, b: Any) -> Any:
        new = x - (x**3 + b * x - a) / (3 * x**2 + b)
        return new, until(pt.abs(new - x) < 1e-3)

    xs = scan(step, outputs_info=[x0], non_sequences=[a, b], n_steps=20, name="newton")
    return [a, b, x0], xs[-1] + (xs**2).sum()


def _newton_reference(a: Any, b: Any, x: Any) -> Any:
    xs = []
    for _ in range(20):
        before, x = x, x - (x**3 + b * x - a) / (3 * x**2 + b)
        xs.append(x)
        if abs(x - before) < 1e-3:
            break
    return x + np.sum(np.square(xs))


def _rows() -> Built:
    """A loop over rows, and in it a loop over the row's elements."""
    x = pt.dmatrix("x")
    h0, w = pt.dscalars("h0", "w")

    def element(x: Any, h: Any, w: Any) -> Any:
        return pt.tanh(w * h + x)

    def row(row: Any, h: Any, w: Any) -> Any:
        hs = scan(element, sequences=[row], outputs_info=[h], non_sequences=[w], name="elements")
        return hs[-1], (hs**2).sum()

    _, sums = scan(
        row,
        sequences=[x],
        outputs_info=[h0, None],
        non_sequences=[w],
        name="rows",
    )
    return [x, h0, w], sums.sum()


def _rows_reference(x: Any, h: Any, w: Any) -> Any:
    total = 0.0
    for value in x.ravel():
        h = np.tanh(w * h + value)
        total += h * h
    return total


def _implicit() -> Built:
    """Implicit Euler: three steps of Newton's method in each step of time."""
    start = pt.tensor("start", shape=(2,), dtype="float64")
    k, dt = pt.dscalars("k", "dt")

    def improve(y: Any, before: Any, k: Any, dt: Any) -> Any:
        return y - (y - before + dt * k * y**3) / (1 + 3 * dt * k * y**2)

    def step(y: Any, k: Any, dt: Any) -> Any:
        guesses = scan(
            improve, outputs_info=[y], non_sequences=[y, k, dt], n_steps=3, name="improve"
        )
        return guesses[-1]

    ys = scan(step, outputs_info=[start], non_sequences=[k, dt], n_steps=5, name="time")
    return [start, k, dt], (ys**2).sum()


def _implicit_reference(start: Any, k: Any, dt: Any) -> Any:
    cost = 0.0
    for y in start:
        for _ in range(5):
            before = y
            for _ in range(3):
                y = y - (y - before + dt * k * y**3) / (1 + 3 * dt * k * y * y)
            cost += y * y
    return cost


def _batch() -> Built:
    """One loop written for a start and a rate, then made a batch of them."""
    x, rate = pt.dscalars("x", "rate")
    ys = scan(
        lambda y, rate: rate * y * (1 - y),
        outputs_info=[x],
        non_sequences=[rate],
        n_steps=6,
        name="logistic",
    )
    starts, rates = pt.dvectors("starts", "rates")
    costs = vectorize_graph((ys**2).sum() + ys[-1], {x: starts, rate: rates})
    return [starts, rates], costs.sum()


def _batch_reference(starts: Any, rates: Any) -> Any:
    total = 0.0
    for y, rate in zip(starts, rates, strict=True):
        for _ in range(6):
            y = rate * (y - y * y)
            total += y * y
        total += y
    return total


DYNAMICS = (
    Model(
        "SIR, Euler",
        _sir,
        numbers([0.02, 0.03, 0.05, 0.08, 0.13, 0.2, 0.26, 0.3], 0.9, 0.2, 0.02),
        _sir_reference,
        ("beta", "gamma", "i0"),
    ),
    Model(
        "Lotka-Volterra, RK4",
        _lotka_volterra,
        numbers([1.0, 0.6], [1.1, 0.6, 0.5, 0.9], 0.3),
        _lotka_volterra_reference,
        ("start", "theta", "dt"),
    ),
    Model(
        "Newton, until it stands",
        _newton,
        numbers(5.0, 1.5, 3.0),
        _newton_reference,
        ("a", "b", "x0"),
    ),
    Model(
        "rows of elements",
        _rows,
        numbers(drawn(71, 4, 3), 0.3, 0.8),
        _rows_reference,
        ("x", "h0", "w"),
    ),
    Model(
        "implicit Euler",
        _implicit,
        numbers([1.2, -0.7], 0.8, 0.3),
        _implicit_reference,
        ("start", "k", "dt"),
    ),
    Model(
        "batch of loops",
        _batch,
        numbers([0.2, 0.5, 0.7], [2.9, 3.3, 1.7]),
        _batch_reference,
        ("starts", "rates"),
    ),
)
