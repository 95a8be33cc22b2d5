"""The samples, with their gradients, become loops that trace, and Scans again."""

from __future__ import annotations

from importlib import import_module

import pytest

import scanopt_cli as so
from build import SAMPLES
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.ir.scan_view import scan_op

# A stop condition decides how many rows its trace has; without `grad` the trace is kept, since its
# last row need not exist.
IN_JAX = {"newton": "grad,scan-to-loop,trace-to-last"}


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param("vm", marks=pytest.mark.deep),
        # Eight minutes.
        pytest.param("numba", marks=pytest.mark.numba_zoo),
    ],
)
@pytest.mark.parametrize("module", SAMPLES)
def test_there_and_back(module: str, mode: str) -> None:
    for graph in import_module(module).build().values():
        there = so.optimize(graph, "scan-to-loop").graph
        assert not any(scan_op(node) for node in walk(there.fgraph))
        back = so.optimize(there, "loop-to-scan").graph
        for found in (there, back):
            assert so.verify(graph, found, modes=mode).ok


@pytest.mark.jax
@pytest.mark.parametrize("module", SAMPLES)
def test_in_jax(module: str) -> None:
    pytest.importorskip("jax")
    for graph in import_module(module).build().values():
        found = so.optimize(graph, IN_JAX.get(module, "scan-to-loop")).graph
        assert so.verify(graph, found, modes="jax", runs=3).ok
