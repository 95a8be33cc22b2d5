"""`safe-branches`: what a switch does not select is computed of a safe operand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Variable
from pytensor.scalar import basic as ps
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.inner_graphs import walk
from support.compiled_ways import VM, compiled
from support.evaluating import PLAIN
from support.graph_building import optimized, scan

x = pt.dvector("x")
v = pt.dscalar("v")
m = pt.dmatrix("m")
f = pt.fvector("f")
INPUTS: list[Variable] = [x, v, m, f]
VALUES = [
    np.array([0.0, 0.7, -0.4, 2.0, 1.0, -1.0, np.nan]),
    0.5,
    np.array([[0.0, 1.0], [0.0, 0.0], [2.0, -1.0]]),
    np.array([0.0, 0.7, -0.4], "float32"),
]


def passed(output: Any, passes: str = "merge-equal,safe-branches") -> Graph:
    return optimized(from_io(INPUTS, [output]), passes)[0]


def over_x(step: Callable[[Any], Any]) -> Any:
    return scan(lambda q, s: s + step(q), sequences=[x], outputs_info=[v])


def over_m(step: Callable[[Any], Any]) -> Any:
    return scan(lambda row, s: s + step(row).sum(), sequences=[m], outputs_info=[v])


def switches(graph: Graph) -> int:
    return sum(
        isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, ps.Switch)
        for node in walk(graph.fgraph)
    )


CASES: dict[str, Any] = {
    "1, log": over_x(lambda q: pt.switch(q > 0, pt.log(q), 0.0)),
    "1, sqrt": over_x(lambda q: pt.switch(q >= 0.5, pt.sqrt(q), q)),
    "1, the second branch": over_x(lambda q: pt.switch(q <= 0, 0.0, pt.sqrt(q))),
    "1, the constant first": over_x(lambda q: pt.switch(pt.lt(0, q), pt.log2(q), 0.0)),
    "1, log1p": over_x(lambda q: pt.switch(q > -1, pt.log1p(q), 0.0)),
    "1, arcsin": over_x(lambda q: pt.switch(pt.abs(q) < 1, pt.arcsin(q), 0.0)),
    "1, reciprocal": over_x(lambda q: pt.switch(pt.neq(q, 0), pt.reciprocal(q), 1.0)),
    "1, behind other arithmetic": over_x(
        lambda q: pt.switch(q > 0, pt.sin(pt.log(q) * q) + 1, 0.0)
    ),
    "2, division": over_x(lambda q: pt.switch(pt.eq(q, 0), 1.0, pt.sin(q) / q)),
    "3, a root": over_x(lambda q: pt.switch(q > 0, q**0.25, 0.0)),
    "3, a negative power": over_x(lambda q: pt.switch(pt.neq(q, 0), q**-2.0, 0.0)),
    "a difference": over_m(lambda r: pt.switch(r[0] > r[1], pt.sqrt(r[0] - r[1]), 0.0)),
    "a difference, compared the other way": over_m(
        lambda r: pt.switch(r[1] < r[0], pt.sqrt(r[0] - r[1]), 0.0)
    ),
    "and": over_m(lambda r: pt.switch(pt.and_(r > 0, r > v), pt.sqrt(r), 0.0)),
    "a number for an array": over_m(lambda r: pt.switch(r[0] > 0, pt.sqrt(r[0]) * r, 0.0)),
    "a sum": over_m(lambda r: pt.switch((r**2).sum() > 0, r / pt.sqrt((r**2).sum()), r)),
    "float32": scan(
        lambda q, s: s + pt.switch(q > 0, pt.sqrt(q), np.float32(0)),
        sequences=[f],
        outputs_info=[pt.zeros((), dtype="float32")],
    ),
    "a sequence of no steps": scan(
        lambda q, s: s + pt.switch(q > 0, pt.sqrt(q), 0.0), sequences=[x[:0]], outputs_info=[v]
    ),
    "a state": scan(
        lambda s: pt.switch(s > 0, pt.sqrt(s) - 0.5, s + 1), outputs_info=[v], n_steps=6
    ),
}


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("mode", [PLAIN, VM], ids=["plain", "vm"])
def test_values_stay(name: str, mode: Any) -> None:
    graph = passed(CASES[name])
    assert switches(graph) == switches(from_io(INPUTS, [CASES[name]])) + 1
    (before,) = compiled(INPUTS, [CASES[name]], PLAIN)(*VALUES)
    (after,) = compiled(graph.inputs, graph.outputs, mode)(*VALUES)
    if mode is PLAIN:
        np.testing.assert_array_equal(after, before)
    else:
        np.testing.assert_allclose(after, before, rtol=1e-7 if name == "float32" else 1e-14)


@pytest.mark.parametrize("name", [name for name in CASES if "steps" not in name])
def test_plain_gradients_are_finite_where_values_are(name: str) -> None:
    graph = passed(CASES[name])
    finite = [np.where(np.isnan(value), 0.3, value) for value in VALUES]
    finite[0], finite[2] = finite[0][:6], finite[2][[0, 1]]
    for inputs, output in ((graph.inputs, graph.outputs[0]), (INPUTS, CASES[name])):
        costs = [pt.grad(output[-1], inputs, disconnected_inputs="ignore")]
        with np.errstate(all="ignore"):
            found = compiled(inputs, costs[0], PLAIN)(*finite)
        is_finite = all(np.isfinite(each).all() for each in found)
        # A state that is never zero has a finite gradient as it is.
        assert is_finite or inputs is INPUTS
        assert not is_finite or inputs is not INPUTS or name == "a state"


NOT: dict[str, Any] = {
    "a condition on another value": over_m(lambda r: pt.switch(r[1] > 0, pt.sqrt(r[0]), 0.0)),
    "the number is selected": over_x(lambda q: pt.switch(q >= 0, pt.log(q), 0.0)),
    "no number": over_x(lambda q: pt.switch(q > 0, q**2, 0.0)),
    "a whole power": over_x(lambda q: pt.switch(q > 0, q**3.0, 0.0)),
    "another shape": over_m(lambda r: pt.switch(r[:, None] > 0, pt.sqrt(r), 0.0)),
    "entries that are added up": over_m(lambda r: pt.switch(r > 0, pt.sqrt(r).sum(), 0.0)),
    "one value decides for others": over_m(lambda r: pt.switch(r > 0, pt.sqrt(r)[::-1], 0.0)),
    "an integer": over_x(lambda q: pt.switch(q > 0, pt.floor(pt.log(q)), 0.0)),
    "safe already": over_x(lambda q: pt.switch(q > 0, pt.log(pt.switch(q > 0, q, 1.0)), 0.0)),
    "no loop": pt.switch(x > 0, pt.log(x), 0.0),
}


@pytest.mark.parametrize("name", NOT)
def test_twin_branches_that_stay(name: str) -> None:
    assert switches(passed(NOT[name])) == switches(from_io(INPUTS, [NOT[name]]))


def test_several_operands_and_loops_in_loops() -> None:
    def inner(q: Any, s: Any) -> Any:
        return s + pt.switch(q > 0, pt.log(q) * pt.sqrt(q), 0.0)

    def outer(row: Any, s: Any) -> Any:
        return s + scan(inner, sequences=[row], outputs_info=[s])[-1]

    ys = scan(outer, sequences=[m], outputs_info=[v])
    graph = passed(ys)
    assert switches(graph) == 2  # both functions read one safe operand
    np.testing.assert_array_equal(
        compiled(graph.inputs, graph.outputs, PLAIN)(*VALUES)[0],
        compiled(INPUTS, [ys], PLAIN)(*VALUES)[0],
    )


def test_it_takes_traced_loops() -> None:
    ys = CASES["1, log"]
    graph = passed(ys, "merge-equal,scan-to-loop,safe-branches")
    assert switches(graph) == 2
    np.testing.assert_allclose(
        compiled(graph.inputs, graph.outputs, VM)(*VALUES)[0],
        compiled(INPUTS, [ys], PLAIN)(*VALUES)[0],
    )


def test_a_second_run_changes_nothing() -> None:
    graph = passed(CASES["a sum"])
    assert switches(optimized(graph, "merge-equal,safe-branches")[0]) == switches(graph)
