"""PyMC models with loops, compiled by PyTensor alone and with scanopt, side by side.

Needs the extra ``pymc``: ``pytest -o addopts= tests/benchmarks/test_pymc_models.py``. What is
printed with ``-s`` is what is left in the compiled graphs; times are in the benchmark's table.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import pytest

import scanopt_cli as so
from pymc_models import MODELS
from scanopt_cli.analysis.statistics import statistics

pytest.importorskip("pymc")

CASES = [(model, order) for model in MODELS for order in (1, 2)]
_ROUNDS = 15


@pytest.fixture(autouse=True)
def _warnings_of_pymc() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of its Hessian's sign
        yield


@cache
def _derivative(model: str, order: int) -> tuple[Any, Any]:
    """Return a model and its derivative, which takes as long with scanopt as without."""
    made = MODELS[model]()
    return made, made.dlogp() if order == 1 else made.d2logp()


def _compiled(model: str, order: int, *, clean: bool) -> Any:
    made, derivative = _derivative(model, order)
    with so.enabled() if clean else nullcontext():
        return made.compile_fn(derivative, mode="NUMBA")


@pytest.mark.parametrize("clean", [False, True], ids=["pytensor", "scanopt"])
@pytest.mark.parametrize(("model", "order"), CASES)
def test_compiling(benchmark, model: str, order: int, clean: bool) -> None:
    _derivative(model, order)
    benchmark.group = f"compile {model}, order {order}"
    compiled = benchmark.pedantic(
        _compiled, args=(model, order), kwargs={"clean": clean}, rounds=1, warmup_rounds=1
    )
    counts = statistics(compiled.f.maker.fgraph)
    left = {name: getattr(counts, name) for name in ("scans", "mit_mot", "inner_nodes")}
    benchmark.extra_info.update(left)
    print(f"\n{benchmark.group}, {'scanopt' if clean else 'pytensor'}: {left}")
    assert not clean or counts.mit_mot == 0


@pytest.mark.parametrize(("model", "order"), CASES)
def test_evaluating(benchmark, model: str, order: int) -> None:
    """Interleaved medians in one process, so that a busy machine slows both alike."""
    plain, clean = (_compiled(model, order, clean=clean) for clean in (False, True))
    point = _derivative(model, order)[0].initial_point()
    np.testing.assert_allclose(clean(point), plain(point), rtol=1e-8, atol=1e-10)
    times: dict[Any, list[float]] = {plain: [], clean: []}
    for _ in range(_ROUNDS):
        for function, taken in times.items():
            begin = perf_counter()
            for _ in range(5):
                function(point)
            taken.append((perf_counter() - begin) / 5)
    alone, ours = (median(taken) for taken in times.values())
    benchmark.group = f"evaluate {model}, order {order}"
    benchmark.extra_info["ratio"] = alone / ours
    benchmark.pedantic(clean, args=(point,), rounds=_ROUNDS)
    print(f"\n{benchmark.group}: {alone * 1e6:,.0f} -> {ours * 1e6:,.0f} µs, {alone / ours:.1f}x")
