"""Samplers, alone and inside of ``enabled()``, from the start of a process to the last draw.

Each in a process without a cache (cold), and in a second one, which finds what the first has
compiled (warm): processor time and wall time of the whole process, imports included, and the wall
time of sampling as the sampler tells it. Of NumPyro and BlackJAX, that has JAX's compiling in it.
Needs the extra ``samplers``. By ``make bench``, or alone by ``pytest -s -o addopts=
tests/benchmarks/test_samplers.py``, which prints a table.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from math import prod
from tempfile import TemporaryDirectory
from time import time
from typing import Any

import pytest

pytest.importorskip("pymc")
pytest.importorskip("nutpie")
pytest.importorskip("numpyro")
pytest.importorskip("blackjax")

from support.benchmarks.fresh_process import run
from support.pymc_models import ar2, local_level, simulated_garch

MODELS = {
    "GARCH(1,1)": simulated_garch,
    "local level": local_level,
    "AR(2) as CustomDist": ar2,  # of which little is a loop
}
SAMPLERS = ("nutpie", "pymc", "numpyro", "blackjax")
_PROGRAM = """
import json, logging, os, sys, warnings
from contextlib import nullcontext
from time import process_time, time

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
# As for a user: the tests have PyTensor run steps in Python where no mode is named.
os.environ["PYTENSOR_FLAGS"] = os.environ["PYTENSOR_FLAGS"].split(",")[-1]

import pymc as pm
import scanopt_cli as so
from support import pymc_models

model, sampler, way, begin = sys.argv[1:]
with getattr(pymc_models, model)(), so.enabled() if way == "scanopt" else nullcontext():
    trace = pm.sample(
        draws=1000, tune=1000, chains=4, cores=1, random_seed=1, nuts_sampler=sampler,
        progressbar=False, compute_convergence_checks=False,
    )
seconds = process_time(), time() - float(begin)
posterior = trace.posterior
print(json.dumps({
    "seconds": seconds,
    "sampling": posterior.attrs["sampling_time"],
    "means": {key: float(value.mean()) for key, value in posterior.items()},
}))
"""


@cache
def measured(name: str, sampler: str, way: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run the program in a process that has compiled nothing before, and again in another one."""
    arguments = MODELS[name].__name__, sampler, way
    with TemporaryDirectory() as directory:
        cold, warm = (run(_PROGRAM, *arguments, str(time()), cache=directory) for _ in range(2))
    return cold, warm


@pytest.mark.parametrize("way", ["alone", "scanopt"])
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("name", MODELS)
def test_process(benchmark, name: str, sampler: str, way: str) -> None:
    """What is timed is both processes whole; each alone is in ``extra_info``."""
    if benchmark.disabled and (name, sampler) != ("local level", "nutpie"):
        pytest.skip("sampled for seconds each; measured by `make bench`")
    benchmark.group = f"{sampler}: {name}"
    cold, warm = benchmark.pedantic(measured, args=(name, sampler, way), rounds=1)
    benchmark.extra_info |= {"cold": cold, "warm": warm}
    expected = measured(name, sampler, "alone")[0]["means"]
    assert warm["means"] == pytest.approx(expected, rel=0.15, abs=0.03)


def test_all(benchmark, show_table) -> None:
    """Print processor seconds, cold and warm, and seconds of sampling, and the ratios."""
    if benchmark.disabled:
        pytest.skip("all models are measured by `make bench`")
    heads = ("cold, s", "scanopt", "ratio", "warm, s", "scanopt", "ratio", "sampling, s", "scanopt")
    rows: list[list[str]] = []
    ratios = []

    def compare() -> None:
        for sampler, name in product(SAMPLERS, MODELS):
            alone, ours = (measured(name, sampler, way) for way in ("alone", "scanopt"))
            figures = []
            for one, other in zip(alone, ours, strict=True):
                seconds = one["seconds"][0], other["seconds"][0]
                figures += [*seconds, seconds[0] / seconds[1]]
            ratios.append(figures[-1])
            figures += [alone[1]["sampling"], ours[1]["sampling"]]
            rows.append([f"{sampler}: {name}", *(f"{figure:.2f}" for figure in figures)])

    benchmark.pedantic(compare, rounds=1)
    benchmark.extra_info["ratio"] = prod(ratios) ** (1 / len(ratios))
    mean = f"{benchmark.extra_info['ratio']:.3g}"
    rows.append(["geometric mean", "", "", "", "", "", mean, "", ""])
    show_table("samplers", ("", *heads), rows)
