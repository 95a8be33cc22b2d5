"""`share-factors`: common first factors are computed once, and values stay to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.graph.basic import Variable
from pytensor.scalar.basic import Mul
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.graph import Graph
from scanopt_cli.pipeline.grammar import PRESETS
from support.compiled_ways import NUMBA, VM, compiled
from support.evaluating import assert_same_outcomes, evaluate
from support.graph_building import arguments, assert_same_values, graph_of, optimized, power, scan
from support.tiers import deep, examples

RUN = "merge-equal,share-factors"
a, b, c, d = (pt.dvector(name) for name in "abcd")
f = pt.fvector("f")
k = pt.lvector("k")
s = pt.dscalar("s")
POINT = {
    **{name: np.random.default_rng(place).normal(size=3) for place, name in enumerate("abcd")},
    "f": np.ones(3, dtype="float32") / 3,
    "k": np.arange(3),
    "s": 0.3,
}

type Step = Callable[..., Sequence[Any]]


def multiplied(step: Step, *given: Variable) -> Graph:
    """A loop whose steps multiply what is given to them."""
    return graph_of(*scan(step, non_sequences=given or (a, b, c, d), n_steps=2))


def products(graph: Graph) -> list[int]:
    """How many factors each product of a body has."""
    nodes = [
        node
        for outer in graph.fgraph.toposort()
        if (body := getattr(outer.op, "fgraph", None)) is not None
        for node in body.toposort()
    ]
    return sorted(
        len(node.inputs)
        for node in nodes
        if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Mul)
    )


CASES: dict[str, tuple[Step, list[int]]] = {
    "1: two products": (lambda a, b, c, d: [pt.mul(a, b, c), pt.mul(a, b, d)], [2, 2, 2]),
    "1: of four factors": (
        lambda a, b, c, d: [pt.mul(a, b, c, d), pt.mul(a, b, c, a)],
        [2, 2, 3],
    ),
    "1: with a number": (lambda a, b, c, d: [pt.mul(2.0, a, c), pt.mul(2.0, a, d)], [2, 2, 2]),
    "1: fewer of more products": (
        lambda a, b, c, d: [pt.mul(a, b, c, d), pt.mul(a, b, c, a), pt.mul(a, b, d)],
        [2, 2, 2, 2, 2],
    ),
    "1: a factor is a product itself": (
        lambda a, b, c, d: [pt.mul(a, b, pt.exp(pt.mul(a, b, c))), pt.mul(a, b, d)],
        [2, 2, 2, 2],
    ),
    "2: one is the common product": (lambda a, b, c, d: [a * b, pt.mul(a, b, d)], [2, 2]),
    "2: one of three factors is": (
        lambda a, b, c, d: [pt.mul(a, b, c), pt.mul(a, b, c, d)],
        [2, 3],
    ),
    "3: swapped": (lambda a, b, c, d: [pt.mul(a, b, c), pt.mul(b, a, d)], [2, 2, 2]),
}

TWINS: dict[str, tuple[Step, Sequence[Variable]]] = {
    "the common factor stands behind": (
        lambda a, b, c, d: [pt.mul(a, c, b), pt.mul(a, d, b)],
        (a, b, c, d),
    ),
    "the first two differ": (lambda a, b, c, d: [pt.mul(a, c, b), pt.mul(d, c, b)], (a, b, c, d)),
    "one product": (lambda a, b, c, d: [pt.mul(a, b, c), pt.mul(c, d, b)], (a, b, c, d)),
    "integers": (lambda a, k: [pt.mul(k, k, k + 1), pt.mul(k, k, k + 2)], (a, k)),
    "a narrower dtype first": (lambda a, f: [pt.mul(f, f, a), pt.mul(f, f, a + 1)], (a, f)),
    "sums": (lambda a, b, c, d: [pt.add(a, b, c), pt.add(a, b, d)], (a, b, c, d)),
}


@pytest.mark.parametrize("case", CASES)
def test_case(case: str) -> None:
    step, wanted = CASES[case]
    graph = multiplied(step)
    work, remarks = optimized(graph, RUN)
    assert products(work) == wanted, remarks
    assert_same_bits(graph, work)
    again, _ = optimized(work, RUN)
    assert digest(again.fgraph) == digest(work.fgraph)


@pytest.mark.parametrize("name", TWINS)
def test_must_not_fire(name: str) -> None:
    step, given = TWINS[name]
    graph = multiplied(step, *given)
    work, remarks = optimized(graph, RUN)
    assert not any("begin alike" in remark for remark in remarks)
    assert digest(work.fgraph) == digest(graph.fgraph)


def test_the_graph_outside_stays() -> None:
    graph = graph_of(pt.mul(a, b, c), pt.mul(a, b, d))
    assert not optimized(graph, "share-factors")[1]


def assert_same_bits(graph: Graph, work: Graph, **changes: Any) -> None:
    data = arguments(graph, **{**POINT, **changes})
    old = evaluate(graph.inputs, graph.outputs, data)
    new = evaluate(work.inputs, work.outputs, data)
    for one, other in zip(old, new, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("case", CASES)
def test_overflow_and_underflow_stay(case: str) -> None:
    graph = multiplied(CASES[case][0])
    work, _ = optimized(graph, RUN)
    for large, small in ((1e200, 1e-200), (np.inf, 0.0), (-np.inf, np.nan)):
        changes = {"a": [large] * 3, "b": [large, small, 1.0], "c": [small] * 3, "d": [large] * 3}
        assert_same_bits(graph, work, **changes)


@pytest.mark.parametrize("mode", [VM, *deep(NUMBA)], ids=["vm", "numba"])
@pytest.mark.parametrize("case", CASES)
def test_compiled(case: str, mode: Any) -> None:
    graph = multiplied(CASES[case][0])
    work, _ = optimized(graph, RUN)
    data = arguments(graph, **POINT)
    got = compiled(work.inputs, work.outputs, mode)(*data)
    assert_same_outcomes(evaluate(graph.inputs, graph.outputs, data), got)


@pytest.mark.tiered(every=4)
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_derivatives(case: str, order: int) -> None:
    graph = multiplied(CASES[case][0])
    work, _ = optimized(graph, RUN)
    found = []
    for one in (graph, work):
        cost = sum(pt.sin(output).sum() for output in one.outputs)
        wrt = [v for v in one.inputs if v.name in "abd"]
        for _ in range(order):
            grads = pt.grad(cost, wrt, disconnected_inputs="ignore")
            cost = sum((g**2).sum() for g in grads)
        found.append(evaluate(one.inputs, grads, arguments(one, **POINT)))
    assert_same_outcomes(*found)


@pytest.mark.parametrize("preset", ["grad", "loop"])
@pytest.mark.parametrize("steps", [4, None])
def test_the_second_gradient_of_the_seed(preset: str, steps: int | None) -> None:
    """``2*c*x`` and ``2*c*y`` compute ``2*c`` once, and stay so."""
    x, ys = power(pt.lscalar("n") if steps is None else steps)
    graph = graph_of(pt.grad(pt.grad(ys[-1], x), x))
    work, _ = optimized(graph, preset)
    shared = [
        node.outputs[0]
        for outer in work.fgraph.toposort()
        if (body := getattr(outer.op, "fgraph", None)) is not None
        for node in body.toposort()
        if isinstance(getattr(node.op, "scalar_op", None), Mul)
        and len(body.clients[node.outputs[0]]) > 1
    ]
    assert shared
    assert_same_values(graph, work, x=0.9, n=4)
    again, remarks = optimized(work, preset)
    assert digest(again.fgraph) == digest(work.fgraph)
    assert not any("begin alike" in remark or "simplified" in remark for remark in remarks)


def test_equal_states_are_found_first() -> None:
    """One of two equal states has a factor to share: had it been shared, they would differ."""
    x = pt.dvector("x")
    graph = graph_of(
        *scan(
            lambda r, p, q: [pt.mul(2.0, p, r), pt.mul(2.0, q, r), pt.mul(2.0, p, pt.sin(r))],
            sequences=[x],
            outputs_info=[s, s, None],
        )
    )
    # Which would compute 2*r before the loop, and leave a running product.
    without = PRESETS["grad"].replace(",push-out{cheap=false}", "")
    work, _ = optimized(graph, without)
    assert without != PRESETS["grad"]
    assert sum(products(work)) == 6
    (states,) = [len(n.op.inner_outputs) for n in work.fgraph.toposort() if hasattr(n.op, "info")]
    assert states == 2


def test_a_factor_that_no_step_changes_leaves_the_loop() -> None:
    x = pt.dvector("x")
    graph = graph_of(
        *scan(
            lambda r, p, w: [pt.sin(pt.mul(w, w + 1, p)), pt.mul(w, w + 1, p, r)],
            sequences=[x],
            outputs_info=[s, None],
            non_sequences=[pt.dscalar("w")],
        )
    )
    work, _ = optimized(graph, f"{RUN},push-out,share-factors")
    assert products(work) == [2, 2]
    assert_same_values(graph, work, x=[0.3, 0.5], s=0.4, w=0.7)


FACTORS = ("a", "b", "c", "d", "2", "half", "exp")


@settings(max_examples=examples(25, 200))
@given(
    drawn=st.lists(
        st.lists(st.sampled_from(FACTORS), min_size=1, max_size=5), min_size=1, max_size=5
    )
)
def test_generated_products_keep_their_bits(drawn: list[list[str]]) -> None:
    def step(a: Any, b: Any, c: Any, d: Any) -> list[Any]:
        known = {"a": a, "b": b, "c": c, "d": d, "2": 2.0, "half": 0.3}
        known = {name: pt.as_tensor(value, dtype="float64") for name, value in known.items()}
        known["exp"] = pt.exp(pt.mul(a, b, c))
        return [pt.mul(*(known[name] for name in names)) + 0 * a for names in drawn]

    rows = scan(step, non_sequences=[a, b, c, d], n_steps=2)
    graph = graph_of(*(rows if isinstance(rows, list) else [rows]))
    work, _ = optimized(graph, RUN)
    assert_same_bits(graph, work)
    assert sum(n - 1 for n in products(work)) <= sum(
        n - 1 for n in products(optimized(graph, "merge-equal")[0])
    )
    assert not any("begin alike" in remark for remark in optimized(work, RUN)[1])
    data = arguments(graph, **POINT)
    got = compiled(work.inputs, work.outputs, VM)(*data)
    assert_same_outcomes(evaluate(graph.inputs, graph.outputs, data), got)
