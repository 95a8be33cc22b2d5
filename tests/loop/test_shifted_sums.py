"""A maximum is subtracted once from the terms of a sum of exponentials."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any
from unittest import mock

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.scalar.basic import Maximum, float64

import scanopt_cli as so
import scanopt_cli.loop.codegen.scalars as codegen_scalars
from scanopt_cli.ir.graph import from_io
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.loop.shifted_sums import ShiftedLog, protect_log_sums, shifted_log
from support.graph_building import scan
from support.tiers import deep

X, Y, Z = pt.dscalars("x", "y", "z")


def shift(*xs: Any) -> Any:
    largest = reduce(pt.maximum, xs)
    return pt.switch(pt.isinf(largest), 0.0, largest)


def total(by: Any, *xs: Any) -> Any:
    return pt.log(pt.add(*(pt.exp(x - by) for x in xs)))


def has_shifted(output: Any) -> bool:
    graph = FunctionGraph([X, Y, Z], [output], clone=True)
    protect_log_sums(graph)
    ops = [getattr(node.op, "scalar_op", None) for node in graph.apply_nodes]
    return any(isinstance(op, ShiftedLog) for op in ops)


@pytest.mark.parametrize("xs", [(X, Y), (X, Y, Z), (X + 1, Y * Z)])
def test_shifted_sums(xs: tuple[Any, ...]) -> None:
    assert has_shifted(total(shift(*xs), *xs) + shift(*xs))


LEFT: dict[str, Callable[[], Any]] = {
    "no shift": lambda: pt.log(pt.exp(X) + pt.exp(Y)),
    "another shift": lambda: total(Z, X, Y),
    "the largest of fewer": lambda: total(shift(X, Y), X, Y, Z),
    "the largest of more": lambda: total(shift(X, Y, Z), X, Y),
    "the smallest": lambda: total(
        pt.switch(pt.isinf(pt.minimum(X, Y)), 0.0, pt.minimum(X, Y)), X, Y
    ),
    "a shift that may be infinite": lambda: total(pt.maximum(X, Y), X, Y),
    "infinite by another number": lambda: total(
        pt.switch(pt.isinf(X), 0.0, pt.maximum(X, Y)), X, Y
    ),
    "two shifts": lambda: pt.log(pt.exp(X - shift(X, Y)) + pt.exp(Y - shift(Y, Z))),
    "a term that is no exponential": lambda: pt.log(pt.exp(X - shift(X, Y)) + Y),
    "a sum of arguments": lambda: pt.log(pt.exp(X + shift(X, Y)) + pt.exp(Y + shift(X, Y))),
}


@pytest.mark.parametrize("name", LEFT)
def test_other_sums_stay(name: str) -> None:
    assert not has_shifted(LEFT[name]())


@pytest.mark.parametrize("mode", ["vm", *deep("NUMBA", "CVM")])
def test_no_overflow(mode: Any) -> None:
    """What nobody shifted yet is still shifted, and infinite numbers are computed as before."""
    start, w = pt.dvector("start", shape=(2,)), pt.dscalar("w")

    def step(h: Any, w: Any) -> Any:
        plain = pt.log(pt.exp(h[0] * w) + pt.exp(h[1] - w))
        return pt.stack([pt.logsumexp(h + w), plain])

    hs = scan(step, outputs_info=start, non_sequences=[w], n_steps=4)
    graph = from_io([start, w], [hs])
    if mode == "vm":
        mode = pytensor.compile.mode.Mode("vm", "fast_run")
    result = so.optimize(graph, "loop").graph
    function = pytensor.function(list(result.inputs), list(result.outputs), mode=mode)
    for values in ([1.0, 2.0], [1000.0, -1000.0], [-np.inf, -np.inf], [np.inf, 0.0]):
        for w_value in (0.5, -800.0, 900.0):
            rows, row = [], np.array(values)
            with np.errstate(all="ignore"):
                for _ in range(4):
                    plain = np.logaddexp(row[0] * w_value, row[1] - w_value)
                    row = np.array([np.logaddexp(*(row + w_value)), plain])
                    rows.append(row)
            np.testing.assert_allclose(function(np.array(values), w_value)[0], rows, rtol=1e-10)


def test_a_step_of_numbers_has_one_maximum_for_each_sum() -> None:
    logs, moves = pt.dvector("logs", shape=(3,)), pt.dmatrix("moves", shape=(3, 3))
    ys = scan(
        lambda logs, moves: pt.logsumexp(logs[:, None] + moves, axis=0),
        outputs_info=logs,
        non_sequences=[moves],
        n_steps=4,
    )
    graph = so.optimize(([logs, moves], [ys[-1]]), "loop").graph
    function = pytensor.function(list(graph.inputs), list(graph.outputs), mode="NUMBA")
    scalars = [node.op for node in walk(function.maker.fgraph)]
    fused = [op.fgraph for op in scalars if hasattr(op, "fgraph") and hasattr(op, "nin")]
    maxima = [n for g in fused for n in g.apply_nodes if isinstance(n.op, Maximum)]
    assert len(maxima) == 3 * 2


def test_numba_compiles_no_function_for_its_logarithm() -> None:
    op = shifted_log.scalar_op
    with mock.patch.object(codegen_scalars, "_compiled", side_effect=AssertionError):
        assert codegen_scalars.rule_of(op, op.make_node(float64())) is not None
