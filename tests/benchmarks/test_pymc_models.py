"""PyMC models with loops, compiled by PyTensor alone and inside of ``enabled()``, side by side.

Needs the extra ``pymc`` and pymc-extras. Each compilation is one of a fresh process without a
cache, since users wait for that one: ``compile_logp`` or ``compile_dlogp``, and the first call. By
``make bench``, or alone by ``pytest -s -o addopts= tests/benchmarks/test_pymc_models.py``, which
prints a table.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from math import prod
from tempfile import TemporaryDirectory

import pytest

pytest.importorskip("pymc")
pytest.importorskip("pymc_extras")

from support.benchmarks.fresh_process import run
from support.pymc_models import REAL_MODELS

ORDERS = ("logp", "dlogp")
_ROUNDS = 20
# Prints how many seconds of processor time compiling and the first call take, how many MB the
# process takes at its peak, and then for each round how many seconds a call takes.
_PROGRAM = """
import json, logging, sys, warnings
from contextlib import nullcontext
from resource import RUSAGE_SELF, getrusage
from time import perf_counter, process_time

import numpy as np
import pymc
import scanopt_cli as so
from threadpoolctl import threadpool_limits

from support.pymc_models import REAL_MODELS

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
name, order, way, rounds = sys.argv[1:]
with threadpool_limits(1, user_api="blas"):
    model = REAL_MODELS[name]()
    begin = process_time()
    with so.enabled() if way == "scanopt" else nullcontext() as done:
        function = getattr(model, f"compile_{order}")(mode="NUMBA")
    point = model.initial_point()
    value = function(point)
    compiling = process_time() - begin
    memory = getrusage(RUSAGE_SELF).ru_maxrss / 1024
    calls = max(1, int(0.05 / (1e-6 + min(timed(function, point) for _ in range(3)))))
    times = [sum(timed(function, point) for _ in range(calls)) / calls for _ in range(int(rounds))]
found = {"compiling": compiling, "memory": memory, "calls": times}
print(json.dumps({**found, "value": np.ravel(value).tolist()}))
"""
_TIMED = """
def timed(function, point):
    from time import perf_counter

    begin = perf_counter()
    function(point)
    return perf_counter() - begin

"""


@cache
def measured(name: str, order: str, way: str) -> dict[str, list[float]]:
    """Run the program in a process of its own, which has compiled nothing before."""
    with TemporaryDirectory() as cache_directory:
        arguments = name, order, way, str(_ROUNDS)
        found: dict[str, list[float]] = run(_TIMED + _PROGRAM, *arguments, cache=cache_directory)
    return found


@pytest.mark.parametrize("way", ["pytensor", "scanopt"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", REAL_MODELS)
def test_process(benchmark, name: str, order: str, way: str) -> None:
    """What is timed is the whole process; the model, too, is made in it."""
    if benchmark.disabled and (name, order) != ("SIR", "dlogp"):
        pytest.skip("compiled for minutes; measured by `make bench`")
    benchmark.group = f"{order} of {name}"
    found = benchmark.pedantic(measured, args=(name, order, way), rounds=1)
    benchmark.extra_info |= {name: found[name] for name in ("compiling", "memory")}
    benchmark.extra_info["call"] = min(found["calls"])
    assert found["value"] == pytest.approx(
        measured(name, order, "pytensor")["value"], rel=1e-8, abs=1e-10
    )


def test_all(benchmark, show_table) -> None:
    """Print how long each call takes, and compiling with the first call; the ratios; the memory."""
    if benchmark.disabled:
        pytest.skip("all models are measured by `make bench`")
    titles = "call, µs", "scanopt", "ratio", "compiling, s", "scanopt", "ratio", "MB", "scanopt"
    rows: list[list[str]] = []
    ratios: dict[str, list[float]] = {"calls": [], "compiling": []}

    def compare() -> None:
        for name, order in product(REAL_MODELS, ORDERS):
            plain, ours = (measured(name, order, way) for way in ("pytensor", "scanopt"))
            calls = [min(found["calls"]) * 1e6 for found in (plain, ours)]
            compiling = [found["compiling"] for found in (plain, ours)]
            memory = [found["memory"] for found in (plain, ours)]
            for kind, (before, after) in {"calls": calls, "compiling": compiling}.items():
                ratios[kind].append(before / after)
            figures = [*calls, ratios["calls"][-1], *compiling, ratios["compiling"][-1], *memory]
            rows.append([f"{order} of {name}", *(f"{figure:.3g}" for figure in figures)])

    benchmark.pedantic(compare, rounds=1)
    means = {kind: prod(found) ** (1 / len(found)) for kind, found in ratios.items()}
    benchmark.extra_info |= means
    calls, compiling = (f"{mean:.3g}" for mean in means.values())
    rows.append(["geometric means", "", "", calls, "", "", compiling, "", ""])
    show_table("pymc_models", ("", *titles), rows)
