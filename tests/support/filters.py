"""Kalman filters: their covariances and gains read no data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from scanopt_cli.ir.graph import Graph
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.loop import TracedLoop
from scanopt_cli.remarks import Remark
from scanopt_cli.reports.remark_text import text_of
from support.compiled_ways import compiled, optimized_by
from support.graph_building import scan

A, Q, P = pt.dmatrix("A"), pt.dmatrix("Q"), pt.dmatrix("P")
H, M = pt.dvector("H"), pt.dvector("m")
R = pt.dscalar("R")
Y, Z, YS = pt.dvector("y"), pt.dvector("z"), pt.dmatrix("ys")
MATRICES = [A, Q, R, H, M, P]


def step(y: Any, m: Any, p: Any, total: Any, a: Any, q: Any, r: Any, h: Any) -> list[Any]:
    """Return the next mean, covariance and log-density."""
    m, p = a @ m, a @ p @ a.T + q
    variance, error = h @ p @ h + r, y - h @ m
    gain = p @ h / variance
    new = [m + gain * error, p - pt.outer(gain, p @ h)]
    return [*new, total - 0.5 * (pt.log(variance) + error**2 / variance)]


def filtered(
    series: Variable, fn: Callable[..., Any] = step, matrices: Any = (A, Q, R, H), **given: Any
) -> list[Any]:
    """Return the means, covariances and log-densities of a series."""
    zero = pt.constant(np.float64(0))
    return list(
        scan(fn, sequences=[series], outputs_info=[M, P, zero], non_sequences=matrices, **given)
    )


def values(*series: int | tuple[int, ...], seed: int = 0) -> list[Any]:
    """Return series of such shapes, and what `MATRICES` are."""
    rng = np.random.default_rng(seed)
    a = np.array([[0.7, 0.1, 0.0], [0.0, 0.6, 0.1], [0.1, 0.0, 0.5]])
    data = [rng.normal(size=shape) for shape in series]
    q = 0.1 * np.eye(3) + 0.01
    return [*data, a, q, np.array(0.5), np.array([1.0, 0.3, 0.2]), np.ones(3), np.eye(3)]


def state_ranks(graph: Graph) -> list[list[int]]:
    """Return the numbers of dimensions of the states of each TracedLoop, in order."""
    nodes = [node for node in walk(graph.fgraph) if isinstance(node.op, TracedLoop)]
    return sorted([v.ndim for v in node.op.state_types] for node in nodes)


def told(remarks: list[Remark], name: str) -> list[str]:
    """Return the texts of the remarks of a pass."""
    return [text_of(remark) for remark in remarks if remark.pass_name == name]


def assert_same(
    inputs: list[Any],
    outputs: list[Any],
    arguments: list[list[Any]],
    modes: Any,
    *pipelines: str,
    tolerance: float = 1e-9,
) -> None:
    """Check that the outputs have the same values after the pipelines, by each mode."""
    expected = compiled(inputs, outputs, "FAST_COMPILE")
    graph = optimized_by(inputs, outputs, *pipelines)
    for mode in modes:
        function = compiled(graph.inputs, graph.outputs, mode)
        for data in arguments:
            for new, old in zip(function(*data), expected(*data), strict=True):
                np.testing.assert_allclose(new, old, rtol=tolerance, atol=tolerance)
