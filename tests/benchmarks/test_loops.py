"""Loops side by side: PyTensor's Scan, the same as a TracedLoop, and where it is short, by hand.

Run with ``make bench``; the ratio of two rows of a group is the figure. BLAS has one thread, set
before anything is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Variable
from threadpoolctl import threadpool_limits

from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.pipeline.grammar import parse
from scanopt_cli.pipeline.runner import run_pipeline
from support.graph_building import scan

_STEPS = 100_000
_VECTOR_STEPS = 10_000

x, w = pt.dscalars("x", "w")
v, rows = pt.dvectors("v", "rows")
A = pt.dmatrix("A")


@numba.njit
def _last(x: float, w: float) -> Any:
    for _ in range(_STEPS):
        x = x * w + 0.5
    return x


@numba.njit
def _trace(x: float, w: float) -> Any:
    trace = np.empty(_STEPS)
    for i in range(_STEPS):
        x = x * w + 0.5
        trace[i] = x
    return trace


@numba.njit
def _sequence(rows: Any, x: float, w: float) -> Any:
    trace = np.empty(rows.shape[0])
    for i in range(rows.shape[0]):
        x = x * w + rows[i]
        trace[i] = x
    return trace


def _scalar_map() -> Any:
    return scan(lambda y, w: y * w + 0.5, outputs_info=[x], non_sequences=[w], n_steps=_STEPS)


def _with_sequence() -> Any:
    return scan(
        lambda r, y, w: y * w + r,
        sequences=[rows],
        outputs_info=[x],
        non_sequences=[w],
    )


def _vectors() -> Any:
    return scan(
        lambda y, w: pt.tanh(y * w), outputs_info=[v], non_sequences=[w], n_steps=_VECTOR_STEPS
    )


def _matrix() -> Any:
    return scan(
        lambda y, matrix: pt.tanh(matrix @ y),
        outputs_info=[v],
        non_sequences=[A],
        n_steps=_VECTOR_STEPS,
    )


type Case = tuple[list[Variable], Callable[[], Any], list[Any], Any]

CASES: dict[str, Case] = {
    "scalar, last state": ([x, w], lambda: _scalar_map()[-1], [0.5, 0.9], _last),
    "scalar, trace": ([x, w], _scalar_map, [0.5, 0.9], _trace),
    "scalar, sequence and trace": (
        [rows, x, w],
        _with_sequence,
        [np.linspace(-1, 1, _STEPS), 0.5, 0.9],
        _sequence,
    ),
}
for _size in (1, 4, 64):
    _start = np.full(_size, 0.5)
    CASES |= {
        f"{_size}-vector, last state": ([v, w], lambda: _vectors()[-1], [_start, 1.5], None),
        f"{_size}-vector, trace": ([v, w], _vectors, [_start, 1.5], None),
        f"{_size}-vector by a matrix, trace": (
            [v, A],
            _matrix,
            [_start, np.eye(_size) * 1.5],
            None,
        ),
    }


@cache
def _compiled(name: str, form: str, mode: Any) -> Callable[..., Any]:
    inputs, build, _, by_hand = CASES[name]
    if form == "by hand":
        return by_hand  # type: ignore[no-any-return]
    graph: Graph = from_io(inputs, [build()])
    if form == "loop":
        run_pipeline(graph.fgraph, parse("scan-to-loop,trace-to-last"))
    return pytensor.function(list(graph.inputs), graph.outputs[0], mode=mode, trust_input=True)


def _measure(benchmark: Any, name: str, form: str, mode: Any, *, rounds: int) -> None:
    _, _, values, _ = CASES[name]
    arguments = values if form == "by hand" else [np.asarray(value) for value in values]
    with threadpool_limits(1, user_api="blas"):
        wanted = _compiled(name, "scan", mode)(*map(np.asarray, values))
        function = _compiled(name, form, mode)
        got = benchmark.pedantic(function, args=arguments, rounds=rounds, warmup_rounds=2)
    np.testing.assert_allclose(got, wanted, rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        (name, form)
        for name, case in CASES.items()
        for form in ("scan", "loop", *(["by hand"] if case[3] else []))
    ],
)
def test_in_numba(benchmark, name: str, form: str) -> None:
    benchmark.group = f"NUMBA: {name}"
    _measure(benchmark, name, form, "NUMBA", rounds=30)


# Without a C compiler, CVM runs in Python, for minutes; flags are read when PyTensor is imported.
@pytest.mark.skipif(not pytensor.config.cxx, reason="run with PYTENSOR_FLAGS=cxx=g++ make bench")
@pytest.mark.parametrize("form", ["scan", "loop"])
def test_in_c(benchmark, form: str) -> None:
    benchmark.group = "CVM: scalar, last state"
    _measure(benchmark, "scalar, last state", form, "CVM", rounds=5)
