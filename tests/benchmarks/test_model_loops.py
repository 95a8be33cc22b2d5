"""Loops as models have them, value and gradient: PyTensor alone, in `enabled()`, JAX, by hand.

By NUMBA, with all inputs symbolic, on one thread. Run with ``make bench``, or alone by
``pytest -s -o addopts= tests/benchmarks/test_model_loops.py -k test_all``, which prints a table.
Needs JAX (``pip install 'scanopt[jax]'``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from time import perf_counter
from typing import Any

import pytest

pytest.importorskip("jax")

import jax
import numpy as np
from threadpoolctl import threadpool_limits

from support.benchmarks.model_loops import MODEL_LOOPS

_FORMS = ("pytensor", "enabled", "jax", "by hand")


@cache
def _compiled(name: str, form: str) -> Callable[..., Any]:
    return MODEL_LOOPS[name].compiled(form)


def _forms(name: str) -> list[str]:
    """Return the forms that a loop has."""
    return [form for form in _FORMS if form != "by hand" or MODEL_LOOPS[name].by_hand]


@pytest.mark.parametrize(
    ("name", "form"), [(name, f) for name in MODEL_LOOPS for f in _forms(name)]
)
def test_value_and_gradient(benchmark, name: str, form: str) -> None:
    case = MODEL_LOOPS[name]
    if benchmark.disabled and name != "Rescorla-Wagner, 4 arms":
        pytest.skip("compiled for seconds each; measured by `make bench`")
    benchmark.group = f"value and gradient: {name}"
    arguments = case.arguments()
    with threadpool_limits(1, user_api="blas"), jax.enable_x64(True):
        function = _compiled(name, form)
        got = benchmark.pedantic(function, args=arguments, rounds=30, warmup_rounds=2)
        wanted = _compiled(name, "pytensor")(*arguments)
    rtol = 1e-3 if case.dtype == "float32" else 1e-7
    for new, old in zip(got, wanted, strict=True):
        np.testing.assert_allclose(new, old, rtol=rtol, atol=rtol * np.abs(old).max())


def test_all(benchmark, show_table) -> None:
    """Print the best of many calls of each, in turn, and how they compare."""
    if benchmark.disabled:
        pytest.skip("all loops are measured by `make bench`")
    heads = ("microseconds", "PyTensor", "scanopt", "", "JAX", "", "by hand", "")
    rows: list[list[str]] = []

    def compare() -> None:
        with threadpool_limits(1, user_api="blas"), jax.enable_x64(True):
            for name, case in MODEL_LOOPS.items():
                arguments = case.arguments()
                functions = [_compiled(name, form) for form in _forms(name)]
                alone, ours, *others = _best(functions, arguments)
                found = [f"{alone:.0f}", f"{ours:.0f}", f"{alone / ours:.1f}x"]
                for other in others:
                    found += f"{other:.0f}", f"{other / ours:.2f}x"
                rows.append([name, *found, *[""] * (len(heads) - 1 - len(found))])

    benchmark.pedantic(compare, rounds=1)
    show_table("model_loops", heads, rows)


def _best(functions: list[Callable[..., Any]], arguments: list[Any]) -> list[float]:
    """Return the microseconds of the fastest call of each, of calls in turn for two seconds."""
    seconds: list[list[float]] = [[] for _ in functions]
    end = perf_counter() + 2
    while perf_counter() < end or len(seconds[0]) < 10:
        for function, found in zip(functions, seconds, strict=True):
            begin = perf_counter()
            function(*arguments)
            found.append(perf_counter() - begin)
    return [min(found) * 1e6 for found in seconds]
