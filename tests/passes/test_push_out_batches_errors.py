"""`push-out-batches`: bad matrices raise, or give NaN, as in the loop, and nothing for no steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.linalg import cholesky, det, inv, slogdet, solve

import scanopt_cli as so
from support.compiled_ways import NUMBA, VM
from support.evaluating import assert_same_outcomes
from support.graph_building import arguments, graph_of, optimized, scan
from support.tiers import deep

XS = pt.dtensor3("XS")
X, w = pt.dmatrices("X", "w")
h = pt.dvector("h")
n = pt.lscalar("n")

type Step = Callable[[Any, Any, Any, Any], Any]
"""What a step computes of a matrix and a vector that are rows, and of the state and a matrix."""

SINGULAR, INDEFINITE = np.ones((2, 2)), -np.eye(2)
STEPS: dict[str, tuple[Step, np.ndarray]] = {
    "a factor": (lambda a, x, y, w: pt.tanh(cholesky(a) @ y), INDEFINITE),
    "an inverse": (lambda a, x, y, w: pt.tanh(inv(a)[0] * y), SINGULAR),
    "a determinant": (lambda a, x, y, w: pt.tanh(det(a) * y), SINGULAR),
    "the log of a determinant": (lambda a, x, y, w: pt.tanh(slogdet(a)[1] * y), SINGULAR),
    "a solution by a row": (lambda a, x, y, w: pt.tanh(solve(a, x) + y), SINGULAR),
    "a solution by one matrix": (lambda a, x, y, w: pt.tanh(solve(w, x) + y), SINGULAR),
    "a factor of one matrix": (lambda a, x, y, w: pt.tanh(solve(cholesky(w), x) + y), INDEFINITE),
    "an inverse of one matrix": (lambda a, x, y, w: pt.tanh(inv(w)[0] * x + y), SINGULAR),
}
PASSES = ("push-out-batches,remove-unused", "grad", "loop")


def outcomes(function: Any, given: Any) -> list[Any]:
    """Return what a compiled function returns, or the error that it raises."""
    try:
        with np.errstate(all="ignore"):
            return list(function(*given))
    except Exception as error:
        return [error]


@pytest.mark.tiered(every=4)
@pytest.mark.parametrize("mode", [VM, NUMBA], ids=["vm", "numba"])
@pytest.mark.parametrize(
    "name",
    [
        *list(STEPS)[:2],
        *deep(*list(STEPS)[2:]),
    ],
)
def test_bad_matrices(name: str, mode: Any) -> None:
    step, bad = STEPS[name]
    states = scan(step, sequences=[XS, X], outputs_info=[h], non_sequences=[w], n_steps=n)
    graph = graph_of((states**2).sum())
    plain = pytensor.function(graph.inputs, graph.outputs, mode=mode, on_unused_input="ignore")
    functions = []
    for passes in PASSES:
        with so.enabled(passes, cache=False):
            functions.append(
                pytensor.function(graph.inputs, graph.outputs, mode=mode, on_unused_input="ignore")
            )
    rows = np.stack([np.eye(2) * 2, bad, np.eye(2)])
    for steps, matrices, matrix in ((0, rows, bad), (1, rows, bad), (3, rows, np.eye(2))):
        given = arguments(
            graph, XS=matrices, X=np.arange(6.0).reshape(3, 2), h=np.ones(2), w=matrix, n=steps
        )
        # PyTensor computes of a matrix that no step changes what no step computes, and raises.
        wanted = outcomes(plain, given) if steps else [np.array(0.0)]
        for function in functions:
            assert_same_outcomes(wanted, outcomes(function, given), rtol=1e-7)


@pytest.mark.parametrize("name", STEPS)
def test_a_bad_matrix_that_is_no_row_of_a_step(name: str) -> None:
    """Rows behind the last step are not looked at, in graphs that are saved, too."""
    step, bad = STEPS[name]
    states = scan(step, sequences=[XS, X], outputs_info=[h], non_sequences=[w], n_steps=n)
    graph = graph_of(states)
    for passes in PASSES:
        work, _ = optimized(graph, f"{passes},compile-safe")
        plain, function = (
            pytensor.function(list(g.inputs), list(g.outputs), mode=VM, on_unused_input="ignore")
            for g in (graph, work)
        )
        given = arguments(
            graph,
            XS=np.stack([np.eye(2) * 2, bad]),
            X=np.ones((2, 2)),
            h=np.ones(2),
            w=np.eye(2),
            n=1,
        )
        assert_same_outcomes(outcomes(plain, given), outcomes(function, given), rtol=1e-7)
