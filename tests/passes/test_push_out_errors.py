"""`push-out`: what may raise an error is computed before the loop only if the loop runs a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.conditional.op import IfElse, ifelse
from pytensor.raise_op import Assert
from pytensor.scalar.basic import Composite, int64
from pytensor.scan.utils import until
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.subtensor import Subtensor

from support.graph_building import assert_same_values, graph_of, only_scan, optimized, scan

x = pt.dscalar("x")
n = pt.lscalar("n")
s = pt.dvector("s")


RAISING: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "an index": (lambda v: v[7], np.zeros(3)),
    "an assertion": (lambda v: Assert("no")(v, pt.all(v > 0)).sum(), np.zeros(3)),
    "an axis that is dropped": (lambda v: pt.squeeze(v, 0), np.zeros(3)),
    "an index, and arithmetic behind it": (lambda v: pt.exp(v[7] * 2), np.zeros(3)),
}


@pytest.mark.parametrize("name", RAISING)
def test_what_may_raise_is_computed_if_there_is_a_step(name: str) -> None:
    compute, bad = RAISING[name]
    graph = graph_of(
        scan(lambda y, v: y + compute(v), outputs_info=[x], non_sequences=[s], n_steps=n)
    )
    work, _ = optimized(graph, "push-out")
    assert any(isinstance(node.op, IfElse) for node in work.fgraph.apply_nodes)
    assert_same_values(graph, work, x=1.0, s=bad, n=0)
    assert_same_values(graph, work, x=1.0, s=bad, n=2)
    assert_same_values(graph, work, x=1.0, s=np.arange(1.0, 12.0), n=2)


# Of an integer that may be negative, or 0, of which not all backends raise an error.
RAISING_AT: dict[str, tuple[Callable[[Any], Any], int]] = {
    "an array of a negative length": (lambda i: pt.exp(pt.alloc(x, i)).sum(), -1),
    "an identity matrix of a negative length": (lambda i: pt.eye(i).sum(), -1),
    "a division by 0": (lambda i: pt.constant(7) // i, 0),
    "a remainder by 0": (lambda i: pt.constant(7) % i, 0),
}


@pytest.mark.parametrize("passes", ["push-out", "scan-to-loop,push-out"])
@pytest.mark.parametrize("name", RAISING_AT)
def test_integers_at_which_it_may_raise(name: str, passes: str) -> None:
    compute, bad = RAISING_AT[name]
    i = pt.lscalar("i")
    states = scan(lambda y, i: y + compute(i), outputs_info=[x], non_sequences=[i], n_steps=n)
    graph = graph_of(states[-1:])
    work, _ = optimized(graph, passes)
    assert any(isinstance(node.op, IfElse) for node in work.fgraph.apply_nodes)
    for steps, number in ((0, bad), (0, 2), (2, bad), (2, 2)):
        assert_same_values(graph, work, x=1.0, i=number, n=steps)


def test_an_array_of_a_negative_length_that_a_loop_of_no_steps_reads() -> None:
    """The zeros that stand for it have no negative length, either."""
    i = pt.lscalar("i")
    rows = scan(
        lambda y, i: (y + 1, (y * pt.exp(pt.alloc(x, i))).sum()),
        outputs_info=[x, None],
        non_sequences=[i],
        n_steps=n,
    )[1]
    graph = graph_of(rows)
    work, _ = optimized(graph, "scan-to-loop,push-out")
    for steps, number in ((0, -1), (2, -1), (0, 3), (2, 3)):
        assert_same_values(graph, work, x=1.0, i=number, n=steps)


@pytest.mark.parametrize("passes", ["hoist-states", "scan-to-loop,hoist-states"])
def test_a_hoisted_quotient_by_0(passes: str) -> None:
    i = pt.lscalar("i")
    states = scan(lambda y, i: 7 // i, outputs_info=[i], non_sequences=[i], n_steps=n)
    graph = graph_of(states[-1:])
    work, remarks = optimized(graph, passes)
    assert any(isinstance(node.op, IfElse) for node in work.fgraph.apply_nodes), remarks
    for steps, number in ((0, 0), (2, 0), (2, 2)):
        assert_same_values(graph, work, i=number, n=steps)


def test_no_condition_where_a_step_is_made_or_nothing_can_raise() -> None:
    always = scan(lambda y, v: y + v[1], outputs_info=[x], non_sequences=[s], n_steps=3)
    total = scan(lambda y, v: y + v.sum(), outputs_info=[x], non_sequences=[s], n_steps=n)
    for graph in (graph_of(always), graph_of(total)):
        work, remarks = optimized(graph, "push-out")
        assert "moved" in remarks[0]
        assert not any(isinstance(node.op, IfElse) for node in work.fgraph.apply_nodes)


def test_what_may_raise_is_guarded_unless_told_otherwise() -> None:
    m, v, n = pt.dmatrix("m"), pt.dvector("v"), pt.lscalar("n")
    states = scan(
        lambda v, m: pt.linalg.cholesky(m) @ v, outputs_info=[v], non_sequences=[m], n_steps=n
    )
    for passes, guards in (("push-out", 1), ("push-out{guarded=false}", 0)):
        work, _ = optimized(graph_of(states), passes)
        assert sum(isinstance(node.op, IfElse) for node in work.fgraph.apply_nodes) == guards


@pytest.mark.parametrize(
    ("value", "steps", "reads", "conditions", "in_step"),
    [
        pytest.param(lambda v: v[1], n, True, 1, False, id="an entry, before the loop"),
        pytest.param(lambda v: v[1], n, False, 0, True, id="an entry, in each step"),
        pytest.param(lambda v: v[1], 3, False, 0, False, id="a loop that has steps"),
        pytest.param(lambda v: pt.exp(v[1]), n, False, 1, False, id="what is computed of it"),
        pytest.param(lambda v: v[1] + pt.exp(v[1]), n, False, 1, False, id="both"),
    ],
)
def test_reads_that_need_a_condition_may_stay_in_the_step(
    value: Callable[[Any], Any], steps: Any, reads: bool, conditions: int, in_step: bool
) -> None:
    graph = graph_of(
        scan(lambda y, v: y * value(v), outputs_info=[x], non_sequences=[s], n_steps=steps)
    )
    work, _ = optimized(graph, f"push-out{{reads={str(reads).lower()}}}")
    body = only_scan(work.fgraph).op.fgraph
    assert any(isinstance(node.op, Subtensor) for node in body.toposort()) is in_step
    found = sum(isinstance(node.op, IfElse) for node in work.fgraph.apply_nodes)
    assert found == conditions
    for count in (0, 1, 3) if steps is n else (3,):
        symbolic = {"n": count} if steps is n else {}
        assert_same_values(graph, work, x=1.5, s=np.array([0.5, 2.0]), **symbolic)


i, k = pt.lvectors("i", "k")
nothing = pt.constant(0.0, dtype="float64")

# Integers at which arithmetic raises an error: compiled to C the one, in Python the other.
a_number, another = int64("a_number"), int64("another")
DIVIDED: dict[str, tuple[Callable[..., Any], int]] = {
    "quotient": (lambda a, b: a // b, 0),
    "power": (lambda a, b: a**b, -1),
    "fused quotient": (
        Elemwise(Composite([a_number, another], [a_number // another + another])),
        0,
    ),
    "fused power": (Elemwise(Composite([a_number, another], [a_number**another + another])), -1),
}
# Arithmetic of rows that raises an error at rows at which no step computes it.
NOT_COMPUTED: dict[str, Callable[..., Any]] = {
    "in a branch, in a map": lambda f: scan(
        lambda a, b: ifelse(pt.gt(b, 0), f(a, b), pt.constant(0, dtype="int64")), sequences=[i, k]
    ),
    "in a branch, of a function": lambda f: scan(
        lambda a, b, y: y + ifelse(pt.gt(b, 0), pt.exp(f(a, b)), nothing),
        sequences=[i, k],
        outputs_info=[x],
    ),
    "behind the last step": lambda f: scan(
        lambda a, b, y: (y + pt.exp(f(a, b)), until(y > 2)), sequences=[i, k], outputs_info=[x]
    ),
}


@pytest.mark.parametrize("passes", ["push-out", "scan-to-loop,push-out"])
@pytest.mark.parametrize("of", DIVIDED)
@pytest.mark.parametrize("name", NOT_COMPUTED)
def test_must_not_compute_of_rows_what_no_step_computes(name: str, of: str, passes: str) -> None:
    compute, bad = DIVIDED[of]
    graph = graph_of(NOT_COMPUTED[name](compute))
    work, _ = optimized(graph, passes)
    for number in (bad, 1):
        assert_same_values(graph, work, x=3.0, i=[5, 6, 7], k=[2, number, 3])


@pytest.mark.parametrize("passes", ["push-out", "scan-to-loop,push-out"])
@pytest.mark.parametrize("of", DIVIDED)
def test_what_may_raise_is_computed_of_rows_if_each_step_does(of: str, passes: str) -> None:
    """The twin: each step computes it."""
    compute, bad = DIVIDED[of]
    graph = graph_of(
        scan(lambda a, b, y: y + pt.exp(compute(a, b)), sequences=[i, k], outputs_info=[x])
    )
    work, remarks = optimized(graph, passes)
    assert any("arithmetic of sequences before the loop" in text for text in remarks), remarks
    for number in (bad, 1):
        assert_same_values(graph, work, x=3.0, i=[5, 6, 7], k=[2, number, 3])


@pytest.mark.parametrize("passes", ["push-out", "scan-to-loop,push-out"])
@pytest.mark.parametrize("of", DIVIDED)
def test_must_not_compute_of_invariants_what_may_raise_for_no_step(of: str, passes: str) -> None:
    """Arithmetic of rows is not guarded, unlike an invariant that may raise."""
    compute, bad = DIVIDED[of]
    one, other = pt.lscalars("one", "other")
    states = scan(
        lambda a, y, one, other: y * pt.sin(y) + pt.exp(a * compute(one, other)),
        sequences=[i],
        outputs_info=[x],
        non_sequences=[one, other],
    )
    graph = graph_of(states[-1:])
    work, _ = optimized(graph, passes)
    for rows in ([], [5, 6]):
        for number in (bad, 2):
            assert_same_values(graph, work, x=1.0, i=rows, one=7, other=number)
