"""Compiled by PyTensor alone and inside of `enabled()`: time and memory of a call, and growth.

Run with ``make bench``, which compiles by Numba and prints the table at its end. The models of the
zoo take an hour to compile, and run by ``make bench BENCH_ARGS="--benchmark-only -m numba_zoo"``.
Times are the shortest of rounds that call all functions in turn, in processor time. With
``--benchmark-disable`` the virtual machine computes the values, which are compared, once.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytensor
import pytest

from support.benchmarks.beside import ALONE, ROWS, Measured, Row, compiled, exponent, measured
from support.benchmarks.beside_cases import REPORTED, Case
from support.benchmarks.beside_models import SAMPLE_CASES, ZOO
from support.benchmarks.clean_up_cases import CLEAN_UPS
from support.compiled_ways import NUMBA, VM
from support.evaluating import PLAIN

_SLACK = 4.0
"""MiB of memory that say nothing: pages are allocated in advance."""


@pytest.mark.parametrize(
    "case",
    [
        *REPORTED,
        *CLEAN_UPS,
        *SAMPLE_CASES,
        *(pytest.param(case, marks=pytest.mark.numba_zoo) for case in ZOO),
    ],
    ids=str,
)
def test_beside_pytensor(benchmark: Any, request: pytest.FixtureRequest, case: Case) -> None:
    benchmark.group = f"beside PyTensor: {case}"
    functions = compiled(case, VM if benchmark.disabled else NUMBA)
    arguments = case.arguments(1)
    wanted = functions[ALONE](*deepcopy(arguments))
    if case in ZOO:  # of which PyTensor alone compiles some wrongly
        inputs, outputs = case.build()
        plain = pytensor.function(list(inputs), list(outputs), mode=PLAIN, on_unused_input="ignore")
        wanted = plain(*deepcopy(arguments))
    for way, function in functions.items():
        for new, old in zip(function(*deepcopy(arguments)), wanted, strict=True):
            if not (isinstance(old, np.random.Generator) or (case in ZOO and way == ALONE)):
                np.testing.assert_allclose(new, old, rtol=1e-7, atol=1e-12, err_msg=way)
    benchmark.pedantic(functions["loop"], args=arguments, rounds=5)
    if benchmark.disabled:
        return
    found = measured(functions, arguments)
    grown = None
    if case.larger is not None:
        grown = measured(functions, case.arguments(case.larger))
    tables = request.config.stash.setdefault(ROWS, {})
    table = "zoo" if case in ZOO else "beside_pytensor"
    tables.setdefault(table, []).append(_row(case, found, grown))
    for way, one in found.items():
        alone = found[ALONE].memory
        if alone is not None and one.memory is not None:
            assert one.memory <= 1.1 * alone + _SLACK, way


def _row(case: Case, found: dict[str, Measured], grown: dict[str, Measured] | None) -> Row:
    alone = found[ALONE]
    cells = [str(case), f"{alone.seconds * 1e6:.1f}"]
    for way, one in found.items():
        if way != ALONE:
            cells.append(f"{alone.seconds / one.seconds:.2f}x")
    memory = [one.memory for one in found.values()]
    cells.append(" / ".join("?" if m is None else f"{m:.1f}" for m in memory))
    growth = ""
    if grown is not None and case.larger is not None:
        growth = " / ".join(
            f"{exponent(found[way].seconds, grown[way].seconds, case.larger):.2f}" for way in found
        )
    return (*cells, growth)
