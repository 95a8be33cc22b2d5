"""Batches of subjects and sequences, side by side: by PyTensor alone, in `enabled()`, and in JAX.

PyTensor compiles by NUMBA; JAX, where it is installed (``pip install 'scanopt[jax]'``), in 64
bits on the CPU. Run with ``make bench``; the ratio of two rows of a group is the figure. BLAS has
one thread.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import numpy as np
import pytensor
import pytest
from threadpoolctl import threadpool_limits

import scanopt_cli as so
from support.benchmarks.batch_cases import Batch, batch

_CASES = (
    *(("Q-learning", n, 3, False) for n in (1, 4, 12, 50, 200)),
    *(("Q-learning", 12, k, False) for k in (2, 10)),
    *(("masked HMM", n, 3, False) for n in (4, 15, 50)),
    *(("masked HMM", 15, k, False) for k in (2, 10)),
    *((kind, n, 3, False) for kind in ("softmax", "volatility", "tanh") for n in (4, 12, 50)),
    *(
        (kind, 12, 3, True)
        for kind in ("Q-learning", "masked HMM", "softmax", "volatility", "tanh")
    ),
)


@cache
def _compiled(case: tuple[str, int, int, bool], pipeline: str, gradient: bool) -> Any:
    kind, n, k, is_symbolic = case
    if pipeline == "jax":
        return _by_jax(kind, batch(kind, n, k), gradient)
    graph = batch(kind, n, k, is_symbolic=is_symbolic).graph(gradient=gradient)
    given: Any = {"mode": "NUMBA", "trust_input": True, "on_unused_input": "ignore"}
    if pipeline == "none":
        return pytensor.function(list(graph.inputs), list(graph.outputs), **given)
    with so.enabled(pipeline):
        return pytensor.function(list(graph.inputs), list(graph.outputs), **given)


def _by_jax(kind: str, case: Batch, gradient: bool) -> Any:
    from support.benchmarks.batches_in_jax import in_jax

    return in_jax(kind, case, gradient=gradient)


def _in_64_bits(pipeline: str) -> AbstractContextManager[Any]:
    """A context that has JAX compute in 64 bits; without JAX, the test is skipped."""
    if pipeline != "jax":
        return nullcontext()
    enabled: AbstractContextManager[Any] = pytest.importorskip("jax").enable_x64(True)
    return enabled


@pytest.mark.parametrize("case", _CASES, ids=lambda case: " ".join(map(str, case)))
@pytest.mark.parametrize("gradient", [False, True], ids=["value", "gradient"])
@pytest.mark.parametrize("pipeline", ["none", "default", "grad", "loop", "jax"])
def test_batch(benchmark, case: tuple[str, int, int, bool], pipeline: str, gradient: bool) -> None:
    kind, n, k, is_symbolic = case
    if benchmark.disabled and not (pipeline in ("loop", "jax") and (n, k) == (4, 3)):
        pytest.skip("a case that is there to be timed")
    benchmark.group = (
        f"{'gradient' if gradient else 'value'}: {kind}, {n} by {k}"
        f"{', shapes unknown' if is_symbolic else ''}"
    )
    arguments = list(batch(kind, n, k).values.values())
    with threadpool_limits(1, user_api="blas"), _in_64_bits(pipeline):
        wanted = _compiled(case, "none", gradient)(*arguments)
        function = _compiled(case, pipeline, gradient)
        got = benchmark.pedantic(function, args=arguments, rounds=30, warmup_rounds=2)
    for new, old in zip(got, wanted, strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-8, atol=1e-10)
