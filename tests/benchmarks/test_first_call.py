"""First calls: compiling a gradient and calling it once, in processes of their own.

The loops are those of ``test_beside_jax``, a batch, and one beside many other nodes: compiled by
PyTensor alone, inside of ``enabled()`` and by JAX, each in a process without a cache (cold), and in
a second one, which finds what the first has compiled (warm). Processor time and wall time, without
imports. By ``make bench``, or alone by
``pytest -s -o addopts= tests/benchmarks/test_first_call.py``, which prints a table.
"""

from __future__ import annotations

from functools import cache
from math import prod
from tempfile import TemporaryDirectory
from typing import Any

import pytest

pytest.importorskip("jax")

import numpy as np
import pytensor.tensor as pt

from support.benchmarks.fresh_process import run
from support.benchmarks.values_and_gradients import Case
from support.graph_building import scan

_rng = np.random.default_rng(1)


def _subjects(q: Any, rate: Any, chosen: Any, rewards: Any) -> Any:
    """Q-learning of subjects, as rows: what each expects of two arms, how likely it chose so."""

    def step(mask: Any, reward: Any, q: Any, total: Any, rate: Any) -> Any:
        told = (mask * (q - pt.logsumexp(q, axis=1, keepdims=True))).sum(axis=1)
        return q + rate[:, None] * mask * (reward[:, None] - q), total + told

    states = [q, pt.zeros(q.shape[0], dtype="float64")]
    _, totals = scan(step, sequences=[chosen, rewards], outputs_info=states, non_sequences=[rate])
    return totals[-1].sum()


def _many_terms(point: Any, data: Any) -> Any:
    """A log-density of many terms beside its loop, some 300 nodes, and a GARCH of its data."""
    total = pt.as_tensor(0.0)
    for i in range(20):
        scale = pt.exp(point[i]) + 0.1 * i
        total = total - 0.5 * ((point[i] - 0.1 * i) / scale) ** 2 - pt.log(scale) - point[i] ** 4
    omega, alpha, beta = pt.exp(point[0]), pt.sigmoid(point[1]) / 2, pt.sigmoid(point[2]) / 2
    variances = scan(
        lambda r, v, *parameters: parameters[0] + parameters[1] * r**2 + parameters[2] * v,
        sequences=[data],
        outputs_info=[pt.ones(())],
        non_sequences=[omega, alpha, beta],
    )
    return total - 0.5 * (pt.log(variances) + data**2 / variances).sum()


# Without a twin in JAX.
ALONE = {
    "12 subjects, Q-learning": Case(
        _subjects,
        None,
        {
            "q": np.zeros((12, 2)),
            "rate": np.full(12, 0.3),
            "chosen": np.eye(2)[_rng.integers(0, 2, (200, 12))],
            "rewards": _rng.normal(size=(200, 12)),
        },
        ("rate",),
    ),
    "300 nodes beside a GARCH(1,1)": Case(
        _many_terms,
        None,
        {"point": _rng.normal(size=20) / 4, "data": _rng.normal(size=300)},
        ("point",),
    ),
}
FLOOR = "no loop: (x + 1)**2"
"""What PyTensor and Numba take for a graph that has next to nothing to compile."""
ALONE[FLOOR] = Case(lambda x: (x + 1) ** 2, None, {"x": 1.0}, ("x",))
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
    *ALONE,
)
_PROGRAM = """
import json, logging, sys, warnings
from contextlib import nullcontext
from resource import RUSAGE_SELF, getrusage
from time import perf_counter, process_time

import jax, numba, numpy as np, pytensor
import pytensor.link.numba.dispatch
import scanopt_cli as so
from benchmarks.test_beside_jax import CASES
from benchmarks.test_first_call import ALONE
from threadpoolctl import threadpool_limits

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
name, way = sys.argv[1:]
case = (CASES | ALONE)[name]
arguments = case.arguments()
with threadpool_limits(1, user_api="blas"), jax.enable_x64(True):
    if way == "jax":
        begin = process_time(), perf_counter()
        function = case.compiled("jax")
    else:
        graph = case.graph()
        begin = process_time(), perf_counter()
        with so.enabled() if way == "scanopt" else nullcontext():
            function = pytensor.function(
                list(graph.inputs), list(graph.outputs), mode="NUMBA", trust_input=True
            )
    made = function(*arguments)
    seconds = [process_time() - begin[0], perf_counter() - begin[1]]
found = {"seconds": seconds, "memory": getrusage(RUSAGE_SELF).ru_maxrss / 1024}
print(json.dumps({**found, "value": np.ravel(made[0]).tolist()}))
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
    if way == "jax" and name in ALONE:
        pytest.skip("it has no twin in JAX")
    benchmark.group = f"first call: {name}"
    cold, warm = benchmark.pedantic(measured, args=(name, way), rounds=1)
    benchmark.extra_info |= {"cold": cold["seconds"], "warm": warm["seconds"]}
    benchmark.extra_info["memory"] = cold["memory"]
    assert cold["value"] == pytest.approx(warm["value"], rel=1e-12)
    assert cold["value"] == pytest.approx(measured(name, "pytensor")[0]["value"], rel=1e-7)


def test_all(benchmark, show_table) -> None:
    """Print processor seconds of each first call, cold and warm, the ratios, and the memory."""
    if benchmark.disabled:
        pytest.skip("all loops are measured by `make bench`")
    titles = (
        "cold: PyTensor",
        "scanopt",
        "",
        "JAX",
        "warm: PyTensor",
        "scanopt",
        "",
        "MB",
        "scanopt",
    )
    rows: list[list[str]] = []
    ratios: dict[str, list[float]] = {"cold": [], "warm": []}

    def compare() -> None:
        for name in NAMES:
            alone, ours = measured(name, "pytensor"), measured(name, "scanopt")
            figures = []
            for kind, plain, found in zip(ratios, alone, ours, strict=True):
                seconds = plain["seconds"][0], found["seconds"][0]
                ratio = seconds[0] / seconds[1]
                if name != FLOOR:
                    ratios[kind].append(ratio)
                figures += [f"{seconds[0]:.2f}", f"{seconds[1]:.2f}", f"{ratio:.1f}x"]
            jax = "" if name in ALONE else f"{measured(name, 'jax')[0]['seconds'][0]:.2f}"
            memory = [f"{found[0]['memory']:.0f}" for found in (alone, ours)]
            rows.append([name, *figures[:3], jax, *figures[3:], *memory])

    benchmark.pedantic(compare, rounds=1)
    means = {kind: prod(found) ** (1 / len(found)) for kind, found in ratios.items()}
    benchmark.extra_info |= means
    rows.append(["geometric means", *_beside(means["cold"], 4), *_beside(means["warm"], 5)])
    show_table("first_call", ("seconds", *titles), rows)


def _beside(mean: float, cells: int) -> list[str]:
    """Return a mean of ratios as cells, the third of which holds ratios."""
    return ["", "", f"{mean:.1f}x", *[""] * (cells - 3)]
