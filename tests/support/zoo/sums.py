"""Sums and products that a loop keeps, and a state that keeps nothing."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytensor.tensor as pt

from support.graph_building import scan
from support.zoo.model import Built, Model, drawn, numbers


def _products() -> Built:
    """Products so far, one factor being zero."""
    x, weights = pt.dvectors("x", "weights")
    products = scan(
        lambda x, so_far: so_far * x,
        sequences=[x],
        outputs_info=[pt.ones(())],
        name="products",
    )
    return [x, weights], (weights * products).sum()


def _products_reference(x: Any, weights: Any) -> Any:
    so_far, total = 1.0, 0.0
    for factor, weight in zip(x, weights, strict=True):
        so_far *= factor
        total += weight * so_far
    return total


def _covariance() -> Built:
    """The mean and the sum of outer products, row by row (Welford)."""
    rows, weights = pt.dmatrices("rows", "weights")

    def step(row: Any, count: Any, mean: Any, moments: Any) -> Any:
        count = count + 1
        away = row - mean
        mean = mean + away / count
        return count, mean, moments + pt.outer(away, row - mean)

    width = rows.shape[1]
    count, _, moments = scan(
        step,
        sequences=[rows],
        outputs_info=[pt.zeros((), dtype="int64"), pt.zeros(width), pt.zeros((width, width))],
        name="covariance",
    )
    covariance = moments[-1] / (count[-1] - 1)
    return [rows, weights], (weights * covariance).sum() + covariance[0, 0] * covariance[0, 1]


def _covariance_reference(rows: Any, weights: Any) -> Any:
    centred = rows - rows.mean(axis=0)
    covariance = np.zeros_like(weights)
    for row in centred:
        covariance += np.outer(row, row) / (len(rows) - 1)
    return (weights * covariance).sum() + covariance[0, 0] * covariance[0, 1]


def _log_sum() -> Built:
    """Sums kept as logarithms, the plain way."""
    x, drift = pt.dvector("x"), pt.dscalar("drift")
    sums = scan(
        lambda x, a, drift: pt.log(pt.exp(a) + pt.exp(x)) - drift,
        sequences=[x],
        outputs_info=[pt.zeros(())],
        non_sequences=[drift],
        name="log_sum",
    )
    return [x, drift], sums.sum()


def _log_sum_reference(x: Any, drift: Any) -> Any:
    total, cost = 1.0, 0.0
    for value in x:
        total = (total + np.exp(value)) * np.exp(-drift)
        cost += np.log(total)
    return cost


def _invariant(*, whole: bool) -> Built:
    """A state that is set to the same each time, whatever it was."""
    start, w = pt.dscalars("start", "w")
    ys = scan(
        lambda _, w: w + 1,
        outputs_info=[start],
        non_sequences=[w],
        n_steps=6,
        name="invariant",
    )
    cost = (ys[3:] ** 3).sum() * (1 + start**2)
    return [start, w], cost + (ys**2).sum() + ys.shape[0] if whole else cost


def _invariant_reference(start: Any, w: Any, whole: bool) -> Any:
    ys = []
    for _ in range(6):
        ys.append(w + 1)
    cost = sum(y**3 for y in ys[3:]) * (1 + start**2)
    return cost + sum(y**2 for y in ys) + len(ys) if whole else cost


def _invariant_model(name: str, *, whole: bool) -> Model:
    return Model(
        name,
        partial(_invariant, whole=whole),
        numbers(0.4, 0.7),
        partial(_invariant_reference, whole=whole),
        ("start", "w"),
        kept_by_pytensor=False,
        note="compiled by PyTensor alone, the loop gives one row less",
    )


SUMS = (
    Model(
        "products so far",
        _products,
        numbers([1.3, -0.7, 0.9, 0.0, 1.1, 2.0], drawn(37, 6)),
        _products_reference,
        ("x", "weights"),
    ),
    Model(
        "covariance, online",
        _covariance,
        numbers(drawn(38, 6, 3), drawn(39, 3, 3)),
        _covariance_reference,
        ("rows", "weights"),
    ),
    Model(
        "sum of exponentials",
        _log_sum,
        numbers(drawn(40, 9), 0.3),
        _log_sum_reference,
        ("x", "drift"),
    ),
    _invariant_model("invariant state, read whole", whole=True),
    _invariant_model("invariant state, read from 3", whole=False),
)
