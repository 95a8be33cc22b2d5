"""A Scan of no steps returns a trace of other lengths, which what moves before a loop must bear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

from support.graph_building import arguments, graph_of, optimized, scan

n = pt.lscalar("n")
v, u = pt.dmatrices("v", "u")
PLAIN = Mode("vm", None)
POINT = {"v": np.ones((3, 3)), "u": np.eye(3) + 0.1}


def trace(steps: Any = n) -> Any:
    """The trace of a loop that stays a loop."""
    step = lambda s, u: (pt.tanh(s @ u), s + u)  # noqa: E731
    return scan(step, outputs_info=[v, None], non_sequences=[u], n_steps=steps)[1]


def loop(step: Callable[..., Any], rows: Any, steps: Any = n) -> Any:
    return scan(
        step,
        sequences=[rows],
        outputs_info=[pt.zeros((3, 3))],
        non_sequences=[u],
        n_steps=steps,
    )


STEPS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "push-out": lambda y, s, u: pt.tanh(s + pt.exp(y * u)),
    "push-out-products": lambda y, s, u: pt.tanh(s + y[0] @ u),
    "push-out-batches": lambda y, s, u: pt.tanh(s + y @ u),
    "loops-to-ops": lambda y, s, u: s + y * u,
}


@pytest.mark.parametrize("passes", [*STEPS, "grad"])
@pytest.mark.parametrize("step", STEPS.values(), ids=[f"for {name}" for name in STEPS])
@pytest.mark.parametrize("steps", [0, 2])
def test_values_stay(step: Callable[..., Any], passes: str, steps: int) -> None:
    graph = graph_of(loop(step, trace()))
    work, _ = optimized(graph, passes)
    data = arguments(graph, n=steps, **POINT)
    wanted, found = (
        pytensor.function(list(g.inputs), list(g.outputs), mode=PLAIN)(*data)[0]
        for g in (graph, work)
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert found.shape == wanted.shape


@pytest.mark.parametrize("passes", ["push-out", "push-out-batches", "loops-to-ops"])
def test_remarks_say_why(passes: str) -> None:
    graph = graph_of(loop(STEPS[passes], trace()))
    _, remarks = optimized(graph, passes)
    assert any("loses the shape of a trace of no steps" in remark for remark in remarks)


@pytest.mark.parametrize("passes", ["push-out", "push-out-batches", "loops-to-ops"])
@pytest.mark.parametrize("rows", ["two steps", "an input", "a trace of states"])
def test_rows_whose_shape_is_kept_move(passes: str, rows: str) -> None:
    """The twins."""
    given = pt.dtensor3("given")
    states = scan(lambda s, u: pt.tanh(s @ u), outputs_info=[v], non_sequences=[u], n_steps=n)
    found = {"two steps": trace(2), "an input": given, "a trace of states": states}[rows]
    steps = {"two steps": 2, "an input": given.shape[0], "a trace of states": n}[rows]
    _, remarks = optimized(graph_of(loop(STEPS[passes], found, steps)), passes)
    assert not any("trace of no steps" in remark for remark in remarks)
    assert any(remark.startswith("passed") for remark in remarks)


def test_the_gradient_of_a_map_that_no_step_changes() -> None:
    """Its trace is replaced by an array that is empty where no step runs."""
    rows = scan(lambda w: w + pt.full_like(w, 0.5), non_sequences=[v], n_steps=n)
    graph = graph_of(pytensor.grad(rows[-2:].sum(), v))
    work, _ = optimized(graph, "grad")
    function = pytensor.function(list(work.inputs), list(work.outputs), mode=PLAIN)
    found = function(*arguments(graph, n=0, v=np.ones((3, 3))))[0]
    np.testing.assert_array_equal(found, np.zeros((3, 3)))
