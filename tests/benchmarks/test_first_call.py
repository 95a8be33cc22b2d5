"""First calls: compiling a gradient and calling it once, in processes of their own.

The loops are those of ``test_beside_jax``: compiled by PyTensor alone, inside of ``enabled()`` and
by JAX, each in a process without a cache (cold), and in a second one, which finds what the first
has compiled (warm). Processor time and wall time, without imports. By ``make bench``, or alone by
``pytest -s -o addopts= tests/benchmarks/test_first_call.py``, which prints a table.
"""

from __future__ import annotations

from functools import cache
from math import prod
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

pytest.importorskip("jax")

from support.benchmarks.fresh_process import run

NAMES = (
    "scalar map, trace",
    "AR(2), trace",
    "GARCH(1,1)",
    "SIR",
    "Kalman filter, 3 states",
    "HMM, 3 states",
    "nested 500 x 10",
    "RNN 64",
    "GRU 64, shapes unknown",
)
_PROGRAM = """
import json, logging, sys, warnings
from contextlib import nullcontext
from time import perf_counter, process_time

import jax, numba, numpy as np, pytensor
import pytensor.link.numba.dispatch
import scanopt_cli as so
from benchmarks.test_beside_jax import CASES, _compiled
from threadpoolctl import threadpool_limits

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
name, way = sys.argv[1:]
case = CASES[name]
arguments = [np.asarray(value, dtype="float64") for value in case.values.values()]
with threadpool_limits(1, user_api="blas"), jax.enable_x64(True):
    if way == "jax":
        begin = process_time(), perf_counter()
        function = _compiled(name, "jax")
    else:
        graph = case.graph()
        begin = process_time(), perf_counter()
        with so.enabled() if way == "scanopt" else nullcontext():
            function = pytensor.function(
                list(graph.inputs), list(graph.outputs), mode="NUMBA", trust_input=True
            )
    made = function(*arguments)
    seconds = [process_time() - begin[0], perf_counter() - begin[1]]
print(json.dumps({"seconds": seconds, "value": np.ravel(made[0]).tolist()}))
"""


@cache
def measured(name: str, way: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run the program in a process that has compiled nothing before, and again in another one."""
    with TemporaryDirectory() as cache:
        return run(_PROGRAM, name, way, cache=cache), run(_PROGRAM, name, way, cache=cache)


@pytest.mark.parametrize("way", ["pytensor", "scanopt", "jax"])
@pytest.mark.parametrize("name", NAMES)
def test_process(benchmark, name: str, way: str) -> None:
    """What is timed is both processes whole; the first calls are in ``extra_info``."""
    if benchmark.disabled and name != "GARCH(1,1)":
        pytest.skip("compiled for seconds each; measured by `make bench`")
    benchmark.group = f"first call: {name}"
    cold, warm = benchmark.pedantic(measured, args=(name, way), rounds=1)
    benchmark.extra_info |= {"cold": cold["seconds"], "warm": warm["seconds"]}
    assert cold["value"] == pytest.approx(warm["value"], rel=1e-12)
    assert cold["value"] == pytest.approx(measured(name, "pytensor")[0]["value"], rel=1e-7)


def test_all(benchmark) -> None:
    """Print processor seconds of each first call, cold and warm, and the ratios."""
    if benchmark.disabled:
        pytest.skip("all loops are measured by `make bench`")
    console = Console(width=100)
    table = Table("cold, warm: s", "PyTensor", "scanopt", "ratio", "JAX", "PyTensor", "scanopt")
    ratios = []

    def compare() -> None:
        for name in NAMES:
            (alone, warm_alone), (ours, warm), (jax, _) = (
                [found["seconds"][0] for found in measured(name, way)]
                for way in ("pytensor", "scanopt", "jax")
            )
            ratios.append(alone / ours)
            figures = alone, ours, ratios[-1], jax, warm_alone, warm
            table.add_row(name, *(f"{figure:.2f}" for figure in figures))

    benchmark.pedantic(compare, rounds=1)
    benchmark.extra_info["ratio"] = prod(ratios) ** (1 / len(ratios))
    console.print(table)
    console.print(f"geometric mean of the ratios, cold: {benchmark.extra_info['ratio']:.3g}")
