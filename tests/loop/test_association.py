"""The order of sums and products in steps on numbers: nothing long waits for the step before."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.scalar.basic import Composite, add, float32, float64, int64, mul, sin, sub

import scanopt_cli as so
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.loop import scan as loop
from scanopt_cli.loop.association import has_only_totals, reassociate
from scanopt_cli.loop.codegen.writer import Writer
from support.graph_building import scan


def names(graph: Any, inputs: str) -> list[str]:
    """Return what the outputs of a graph are, as text."""
    known = dict(zip(graph.inputs, inputs.split(), strict=True))
    for node in graph.toposort():
        parts = [known.get(v, str(v)) for v in node.inputs]
        known[node.outputs[0]] = f"{node.op}({', '.join(parts)})"
    return [known[v] for v in graph.outputs]


def ordered(
    function: Callable[..., list[Any]], states: str, constants: str, kind: Any = float64
) -> Any:
    """Return the arithmetic of a step whose first outputs are next states, after the rewrite."""
    inner = [kind(name) for name in f"{states} {constants}".split()]
    outer = [int64("i"), *(v.type(v.name) for v in inner)]
    made = Composite(inner, function(*inner)).make_node(*outer[1:]).outputs
    body = FunctionGraph(outer, made, clone=False)
    reassociate(body, len(states.split()))
    (node,) = body.apply_nodes
    return node.op.fgraph


ORDERS: dict[str, tuple[Callable[..., list[Any]], str, str, list[str]]] = {
    "a state comes last": (lambda c, x, y: [mul(c, x, y)], "c", "x y", ["mul(x, y, c)"]),
    "what takes longer comes later": (
        lambda c, x: [add(sin(sin(c)), sin(c), c, x)],
        *("c", "x", ["add(x, c, sin(c), sin(sin(c)))"]),
    ),
    "what is added to a state is added up before": (
        lambda a, c, x: [add(a, sin(c), sin(sin(c)), x), sin(c)],
        *("a c", "x", ["add(x, sin(c), sin(sin(c)), a)", "sin(c)"]),
    ),
    "a state that its own terms wait for": (
        lambda a, x: [add(a, sin(a), x)],
        *("a", "x", ["add(x, a, sin(a))"]),
    ),
    "the first terms of several": (
        lambda c, x, y, z: [mul(c, x), mul(c, x, y), mul(c, x, y, z)],
        *("c", "x y z", ["mul(x, c)", "mul(mul(x, y), c)", "mul(mul(x, y), z, c)"]),
    ),
    "of which some occur again": (
        lambda c, x, w: [mul(c, x, w), mul(c, w, x, w), mul(w, x, w, w, c)],
        *("c", "x w"),
        ["mul(mul(w, x), c)", "mul(mul(mul(w, x), w), c)", "mul(mul(mul(w, x), w), w, c)"],
    ),
    "in both kinds": (
        lambda c, x, y: [add(mul(c, x, y), x, y), add(mul(x, y), x, y)],
        *("c", "x y"),
        ["add(add(x, y), mul(mul(x, y), c))", "add(mul(mul(x, y)), add(x, y))"],
    ),
}


@pytest.mark.parametrize("name", ORDERS)
def test_orders(name: str) -> None:
    function, states, constants, expected = ORDERS[name]
    found = names(ordered(function, states, constants), f"{states} {constants}")
    if name == "in both kinds":
        assert found[0] == expected[0]
        assert found[1].count("mul(x, y)") == 1
    else:
        assert found == expected


def test_shared_parts_are_one_node() -> None:
    graph = ordered(
        lambda c, *xs: [mul(c, *xs[: i + 1]) for i in range(len(xs))], "c", "p q r s t u v w"
    )
    # Each product needs two multiplications more than the one before, and no more.
    operations = sum(len(node.inputs) - 1 for node in graph.apply_nodes)
    assert operations == 7 + 8


LEFT: dict[str, tuple[Callable[..., list[Any]], Any]] = {
    "integers": (lambda c, x, y: [mul(c, x, y)], int64),
    "differences": (lambda c, x, y: [sub(c, x), sub(x, y)], float64),
    "in order already": (lambda c, x, y: [mul(x, y, c)], float64),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_stays(name: str) -> None:
    function, kind = LEFT[name]
    inner = [kind() for _ in "cxy"]
    before = names(FunctionGraph(inner, function(*inner), clone=False), "c x y")
    assert names(ordered(function, "c", "x y", kind), "c x y") == before


def test_single_precision() -> None:
    graph = ordered(lambda c, x, y: [mul(c, x, y)], "c", "x y", float32)
    assert names(graph, "c x y") == ["mul(x, y, c)"]
    assert graph.outputs[0].type.dtype == "float32"


def test_of_values_that_depend_on_states() -> None:
    """What another node computes of a state is not ready before the step begins."""
    c, x, y = float64("c"), float64("x"), float64("y")
    inner = [float64(v) for v in "pqr"]
    (made,) = Composite(inner, [mul(*inner)]).make_node(sin(c), x, y).outputs
    body = FunctionGraph([int64("i"), c, x, y], [made], clone=False)
    reassociate(body, 1)
    (node,) = (n for n in body.apply_nodes if isinstance(n.op, Composite))
    assert names(node.op.fgraph, "p q r") == ["mul(q, r, p)"]


@st.composite
def arithmetic(draw: Any) -> tuple[int, list[tuple[bool, list[int]]]]:
    """How many inputs there are, and sums and products of earlier variables, by their places."""
    count = draw(st.integers(2, 5))
    lines = []
    for i in range(draw(st.integers(1, 8))):
        places = st.lists(st.integers(0, count + i - 1), min_size=1, max_size=5)
        lines.append((draw(st.booleans()), draw(places)))
    return count, lines


@given(arithmetic(), st.data())
def test_values(program: Any, data: Any) -> None:
    count, lines = program
    n_states = data.draw(st.integers(1, min(count, len(lines))))
    inner = [float64() for _ in range(count)]
    values: list[Variable] = list(inner)
    for adds, places in lines:
        made: Any = (add if adds else mul)(*(values[i] for i in places))
        values.append(made)
    outputs = [*values[-n_states:], *values[count:]]
    node = Composite(inner, outputs).make_node(*(float64() for _ in range(count)))
    body = FunctionGraph([int64(), *node.inputs], node.outputs, clone=False)
    before = node.op
    reassociate(body, n_states)
    (after,) = body.apply_nodes
    numbers = [np.float64(0.5 + 0.37 * i) for i in range(count)]
    np.testing.assert_allclose(after.op.impl(*numbers), before.impl(*numbers), rtol=1e-10)


@pytest.mark.deep
def test_written_out_steps_grow_in_proportion() -> None:
    """PyTensor writes a product of all factors before it for each step."""
    x, w = pytensor.tensor.dscalars("x", "w")

    def operations(steps: int) -> int:
        def outer(y: Any, w: Any) -> Any:
            rows = scan(lambda z, w: z * w * w, outputs_info=y, non_sequences=[w], n_steps=steps)
            return rows.sum()

        ys = scan(outer, outputs_info=x, non_sequences=[w], n_steps=7)
        graph = so.optimize(([x, w], pytensor.grad(ys[-1], [x, w])), "loop").graph
        function = pytensor.function(list(graph.inputs), list(graph.outputs), mode="NUMBA")
        nodes = [n for n in walk(function.maker.fgraph) if isinstance(n.op, Composite)]
        return sum(len(inner.inputs) for n in nodes for inner in n.op.fgraph.apply_nodes)

    assert operations(16) < 3 * operations(8)


TOTALS: dict[str, tuple[Callable[..., list[Any]], str, bool]] = {
    "a sum": (lambda a, x: [add(a, mul(x, x))], "a", True),
    "a product": (lambda a, x: [mul(x, a)], "a", True),
    "what is taken off": (lambda a, x: [sub(a, x)], "a", True),
    "a sign that changes": (lambda a, x: [sub(x, a)], "a", False),
    "a state twice": (lambda a, x: [add(a, mul(a, x))], "a", False),
    "a sum with another state": (lambda a, c, x: [add(a, c), add(c, x)], "a c", False),
    "two sums": (lambda a, c, x: [add(a, x), add(c, sin(x))], "a c", True),
    "a sum that is kept": (lambda a, x: [add(a, x), add(a, x)], "a", False),
    "a state that is read for something else": (lambda a, x: [add(a, x), sin(a)], "a", False),
}


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("name", TOTALS)
def test_states_that_are_totals(name: str, *, fused: bool) -> None:
    function, states, expected = TOTALS[name]
    inner = [float64(each) for each in f"{states} x".split()]
    outputs = function(*inner)
    if fused:
        fresh = [v.type(v.name) for v in inner]
        outputs = Composite(inner, outputs).make_node(*fresh).outputs
        inner = fresh
    body = FunctionGraph([int64("i"), *inner], outputs, clone=False)
    assert has_only_totals(body, len(states.split())) is expected


@pytest.mark.parametrize("kind", ["recurrent", "total"])
def test_llvm_keeps_the_order_where_states_wait(kind: str) -> None:
    """Where a step only adds to a state, LLVM may add several terms at once."""
    x = pt.dvector("x")

    def step(a: Any, x: Any) -> tuple[Any, None]:
        return a * x + (pt.exp(a) if kind == "recurrent" else 0), None

    last, _ = loop(step, pt.constant(np.array(1.0)), x)
    found = []
    original = Writer.called

    def called(self: Writer, function: Any, *numbers: Any) -> Any:
        made = original(self, function, *numbers)
        if function is operator.mul:
            found.append("reassoc" not in made.code.flags and bool(made.code.flags))
        return made

    # What another process has compiled is not written again.
    fresh = pytensor.config.change_flags(numba__cache=False)
    with mock.patch.object(Writer, "called", called), fresh:
        f = pytensor.function([x], last, mode="NUMBA")
        value = f(np.full(3, 0.5))
    assert found == [kind == "recurrent"]
    a = 1.0
    for _ in range(3):
        a = a * 0.5 + (np.exp(a) if kind == "recurrent" else 0)
    assert value == pytest.approx(a, rel=1e-14)
