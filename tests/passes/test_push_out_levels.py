"""`push-out`: invariants leave several loops at once, gradients, batches and branches too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.conditional.op import IfElse, ifelse
from pytensor.graph.basic import Apply
from pytensor.graph.replace import vectorize_graph
from pytensor.raise_op import Assert
from pytensor.tensor.linalg import cholesky, inv, solve
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.decomposition.lu import LUFactor
from pytensor.tensor.linalg.inverse import MatrixInverse
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.math import Dot

import scanopt_cli as so
from scanopt_cli.analysis.dependence import dependent_nodes, varying_inputs
from scanopt_cli.ir.graph import Graph
from scanopt_cli.ir.inner_graphs import core_op, walk
from scanopt_cli.ir.scan_view import is_loop, view_of
from support.compiled_ways import NUMBA, VM
from support.graph_building import arguments, assert_same_values, graph_of, optimized, scan
from support.tiers import deep

x = pt.dscalar("x")
xs, v = pt.dvectors("xs", "v")
w = pt.dmatrix("w")
n = pt.lscalar("n")
_RNG = np.random.default_rng(3)
POINT = {
    "x": 0.3,
    "xs": np.array([0.3, -0.2, 0.9]),
    "v": _RNG.normal(size=3),
    "w": _RNG.normal(size=(3, 3)) / 4 + np.eye(3),
    "n": 2,
}
DEAR = (Dot, Cholesky, LUFactor, Solve, MatrixInverse)

# What a step multiplies its state by, given the state.
VALUES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a product": lambda z, w, v: pt.exp(w @ w).sum() / 100,
    "a factor": lambda z, w, v: cholesky(w @ w.T).sum(),
    "an inverse": lambda z, w, v: inv(w @ w.T).sum(),
    "a solution": lambda z, w, v: solve(w @ w, v).sum(),
    "a matrix by which a step solves": lambda z, w, v: solve(w @ w, v * z).sum(),
    "a branch": lambda z, w, v: ifelse(z > 0, pt.exp(w @ w).sum() / 100, pt.sum(w @ v)),
    "a switch": lambda z, w, v: pt.switch(z > 0, pt.exp(w @ w).sum() / 100, pt.sum(w @ v)),
    "a conditional": lambda z, w, v: ifelse(v[0] > 0, inv(w).sum(), pt.sum(w @ v)),
}


def loops(value: Callable[[Any, Any, Any], Any], levels: int, steps: Any) -> Any:
    """The last state of loops in loops, whose innermost steps compute a value."""

    def step(y: Any, *given: Any, left: int = levels) -> Any:
        if left == 1:
            return pt.tanh(y * value(y, *given))
        return scan(
            lambda y, *given: step(y, *given, left=left - 1),
            outputs_info=[y],
            non_sequences=list(given),
            n_steps=steps,
        )[-1]

    return scan(step, outputs_info=[x], non_sequences=[w, v], n_steps=steps)[-1]


BRANCHES = ("a branch", "a conditional")

FORMS: dict[str, Callable[[Any], Any]] = {
    "forward": lambda last: last,
    "backward": lambda last: pytensor.grad(last, x),
    "second gradient": lambda last: pytensor.grad(pytensor.grad(last, x), x),
    "batch": lambda last: vectorize_graph(last, {x: xs}),
    "batch of backward loops": lambda last: vectorize_graph(pytensor.grad(last, x), {x: xs}),
    "by the matrix": lambda last: pytensor.grad(last, w),
}


def in_loops(graph: Graph) -> Iterator[Apply]:
    """Yield the nodes in loops, and in loops inside."""
    for node in graph.fgraph.toposort():
        if is_loop(node):
            yield from walk(core_op(node.op).fgraph)


def dear_invariants(graph: Graph) -> list[Apply]:
    """The dear nodes of loops, in loops too, that depend on nothing that changes."""
    found = []
    for node in walk(graph.fgraph):
        if is_loop(node):
            view = view_of(node)
            nodes = view.op.fgraph.toposort()
            changing = set(dependent_nodes(varying_inputs(view), view.op.fgraph.outputs))
            found += [v for v in nodes if v not in changing and isinstance(core_op(v.op), DEAR)]
    return found


@pytest.mark.tiered(every=12)
@pytest.mark.parametrize("steps", [3, n], ids=["3", "n"])
@pytest.mark.parametrize(
    ("form", "levels"),
    [*((form, levels) for form in FORMS for levels in (1, 2)), ("forward", 3)],
)
@pytest.mark.parametrize("name", VALUES)
def test_invariants_leave_all_loops(name: str, form: str, levels: int, steps: Any) -> None:
    if name in BRANCHES and "batch" in form:
        pytest.xfail("PyTensor cannot run a Blockwise of an IfElse")
    graph = graph_of(FORMS[form](loops(VALUES[name], levels, steps)))
    work, _ = optimized(graph, "loop")
    assert dear_invariants(graph)
    assert not dear_invariants(work)
    for count in (1, 2) if steps is n else (3,):
        assert_same_values(graph, work, **{**POINT, "n": count})


@pytest.mark.parametrize("mode", ["vm", *deep("numba")])
@pytest.mark.parametrize("form", ["forward", *deep("backward", "second gradient", "by the matrix")])
@pytest.mark.parametrize("name", ["a product", *deep(*list(VALUES)[1:])])
def test_compiled(name: str, form: str, mode: str) -> None:
    output = FORMS[form](loops(VALUES[name], 2, n))
    graph = graph_of(output)
    wanted = pytensor.function(graph.inputs, graph.outputs, mode="FAST_COMPILE")
    with so.enabled("loop", cache=False):
        function = pytensor.function(
            graph.inputs, graph.outputs, mode=VM if mode == "vm" else NUMBA
        )
    for count in (1, 2):
        given = arguments(graph, **{**POINT, "n": count})
        np.testing.assert_allclose(function(*given)[0], wanted(*given)[0], rtol=1e-7, atol=1e-12)


# What an untaken branch of a step holds, which raises an error before the loop.
RAISING: dict[str, Callable[[Any], Any]] = {
    "an inverse": lambda v: inv(pt.outer(v, v)).sum(),
    "an index": lambda v: v[7],
    "an assertion": lambda v: Assert("no")(v.sum(), v.sum() > 0),
    "arithmetic of it": lambda v: pt.exp(v[7] * 2) + 1,
}


@pytest.mark.parametrize("passes", ["push-out", "scan-to-loop,push-out", "loop"])
@pytest.mark.parametrize("steps", [3, n], ids=["3", "n"])
@pytest.mark.parametrize("name", RAISING)
def test_must_not_move_what_may_raise_in_a_branch(name: str, steps: Any, passes: str) -> None:
    graph = graph_of(
        scan(
            lambda y, v: ifelse(y > 0, RAISING[name](v) * y, y / 2),
            outputs_info=[x],
            non_sequences=[v],
            n_steps=steps,
        )
    )
    work, _ = optimized(graph, passes)
    for count in (0, 3) if steps is n else (3,):
        for start in (-1.0, 1.0):
            assert_same_values(graph, work, x=start, v=-np.ones(3), n=count)


@pytest.mark.parametrize("name", RAISING)
def test_a_conditional_that_no_step_decides_takes_its_branches_along(name: str) -> None:
    """The twin: there the branch that is not taken is not computed either."""
    graph = graph_of(
        scan(
            lambda y, v: y * ifelse(v[0] > 0, RAISING[name](v), v[1]),
            outputs_info=[x],
            non_sequences=[v],
            n_steps=3,
        )
    )
    work, _ = optimized(graph, "push-out,remove-unused")
    assert not any(isinstance(node.op, IfElse) for node in in_loops(work))
    for value in (-np.ones(3), np.arange(1.0, 12.0), np.ones(3)):
        assert_same_values(graph, work, x=1.0, v=value)


def test_what_may_raise_moves_if_each_step_computes_it() -> None:
    """The other twin: the value is read in the branch, and beside it."""

    def step(y: Any, v: Any) -> Any:
        entry = pt.exp(v[1])
        return ifelse(y > 0, entry * y, y / 2) + entry

    graph = graph_of(scan(step, outputs_info=[x], non_sequences=[v], n_steps=3))
    work, _ = optimized(graph, "push-out")
    assert not any(node.op == pt.exp for node in in_loops(work))
    assert_same_values(graph, work, x=1.0, v=np.ones(3))


@pytest.mark.parametrize(
    ("shape", "steps", "conditions"),
    [
        pytest.param((None, None), n, 1, id="large"),
        pytest.param((3, 3), n, 0, id="small"),
        pytest.param((None, None), 3, 0, id="a loop that has steps"),
        pytest.param((None, 1), n, 0, id="a column"),
    ],
)
def test_products_of_matrices_are_not_computed_in_vain(
    shape: tuple[int | None, ...], steps: Any, conditions: int
) -> None:
    matrix = pt.tensor("m", shape=shape, dtype="float64")
    graph = graph_of(
        scan(
            lambda y, m: y * (m @ m.T).sum(),
            outputs_info=[x],
            non_sequences=[matrix],
            n_steps=steps,
        )
    )
    work, _ = optimized(graph, "push-out")
    assert not any(isinstance(core_op(node.op), Dot) for node in in_loops(work))
    found = sum(isinstance(node.op, IfElse) for node in work.fgraph.apply_nodes)
    assert found == conditions
    for count in (0, 1, 3) if steps is n else (3,):
        rows = np.ones([3 if length is None else length for length in shape]) / 3
        assert_same_values(graph, work, x=1.5, m=rows, n=count)
