"""Gradients in NUMBA, side by side: by PyTensor alone, after the presets ``grad`` and ``loop``.

Run with ``make bench``; the ratio of the two rows of a group is the figure.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytensor
import pytest

import scanopt_cli as so
from support.benchmarks.gradient_cases import CASES, kept_bytes

# Of these the preset halves what the loops keep, but for the rows that states start with.
_HALVED = ("scalar", "AR(2)", "nested 500 x 10")


@cache
def _compiled(name: str, pipeline: str) -> Any:
    graph = CASES[name].build()
    if pipeline != "none":
        graph = so.optimize(graph, pipeline).graph
    return pytensor.function(
        list(graph.inputs), list(graph.outputs), mode="NUMBA", trust_input=True
    )


def _values(name: str, pipeline: str) -> tuple[Any, list[np.ndarray]]:
    function = _compiled(name, pipeline)
    case = CASES[name]
    names = [str(variable.variable.name) for variable in function.maker.inputs]
    dtypes = [variable.variable.type.dtype for variable in function.maker.inputs]
    return function, [
        np.asarray(case.values[name], dtype=dtype)
        for name, dtype in zip(names, dtypes, strict=True)
    ]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    "pipeline", ["none", "grad", "loop"], ids=["pytensor", "scanopt", "scanopt, loops"]
)
def test_gradient(benchmark, name: str, pipeline: str) -> None:
    benchmark.group = f"gradient: {name}"
    expected, arguments = _values(name, "none")
    function, _ = _values(name, pipeline)
    wanted = expected(*arguments)
    got = benchmark.pedantic(function, args=arguments, rounds=30, warmup_rounds=2)
    for new, old in zip(got, wanted, strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("name", _HALVED)
def test_half_of_the_buffers(name: str) -> None:
    alone, after = (kept_bytes(_compiled(name, run).maker.fgraph) for run in ("none", "grad"))
    assert after <= 0.505 * alone
