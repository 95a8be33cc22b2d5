"""What a graph asks of its arguments, read off the graph."""

from __future__ import annotations

from collections.abc import Sequence

import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.shape import Shape
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli import loop
from scanopt_cli.verification.input_constraints import InputConstraints, Role, input_constraints

x, y = pt.vectors("x", "y")
a, b = pt.matrices("a", "b")
n = pt.iscalar("n")
index = pt.lscalar("index")


def asked(inputs: Sequence[Variable], *outputs: Variable) -> InputConstraints:
    return input_constraints([FunctionGraph(list(inputs), list(outputs), clone=True)])


def repeated(value: Variable, steps: Variable) -> Variable:
    return pytensor.scan(lambda h: h * 2, outputs_info=[value], n_steps=steps, return_updates=False)


@pytest.mark.parametrize(
    ("output", "role"),
    [
        (repeated(x, n), Role.STEPS),
        (repeated(x, pt.cast(pt.ceil(n / 2.0), "int64") + 1), Role.STEPS),
        (repeated(pt.zeros((n,)), 3), Role.SIZE),
        (pt.arange(n), Role.SIZE),
        (x[:n], Role.SIZE),
        (x[n], Role.INDEX),
        (x[pt.stack([n, 0])], Role.INDEX),
        (x * n, Role.FREE),
    ],
)
def test_what_an_integer_is_for(output: Variable, role: Role) -> None:
    assert asked([x, n], output).roles == (Role.FREE, role)


def test_a_loop_over_a_range_counts_steps() -> None:
    ys = pytensor.scan(lambda i: i * 2, sequences=[pt.arange(n)], return_updates=False)
    assert asked([n], ys).roles == (Role.STEPS,)


def test_roles_are_seen_through_bodies() -> None:
    inner = pytensor.scan(
        lambda h, m, i: h + repeated(h, m).sum() + x[i],
        outputs_info=[pt.constant(0.0, dtype="float64")],
        non_sequences=[n, index],
        n_steps=2,
        return_updates=False,
    )
    wrapped = OpFromGraph([x, n, index], [inner])(x, n, index)
    assert asked([x, n, index], wrapped).roles == (Role.FREE, Role.STEPS, Role.INDEX)


def test_lengths_that_count_steps() -> None:
    ys = pytensor.scan(lambda v: v * y.sum(), sequences=[x[1:]], return_updates=False)
    found = asked([x, y], ys)
    assert [labels[0] in found.stepped for labels in found.labels] == [True, False]
    assert found.counts_steps

    by_shape = asked([x, y, a], repeated(y, a.shape[1]))
    steps = [[label in by_shape.stepped for label in labels] for labels in by_shape.labels]
    assert steps == [[False], [False], [False, True]]
    assert not asked([x], x * 2).counts_steps


@pytest.mark.parametrize(
    ("output", "pairs"),
    [
        (x + y, {("x0", "y0")}),
        (a + x, {("a1", "x0")}),
        (a.T + b, {("a1", "b0"), ("a0", "b1")}),
        (a @ b, {("a1", "b0")}),
        (pt.dot(a, x), {("a1", "x0")}),
        (pt.linalg.solve(a, x), {("a0", "a1"), ("a0", "x0"), ("a1", "x0")}),
        (pt.concatenate([a, b], axis=1), {("a0", "b0")}),
        (a.sum(axis=0) + x, {("a1", "x0")}),
        (a[::-1, 0] + x, {("a0", "x0")}),
        (pt.inc_subtensor(a[0], x), {("a1", "x0")}),
        (x[1:] + y, set()),
    ],
)
def test_axes_that_go_together(output: Variable, pairs: set[tuple[str, str]]) -> None:
    found = asked([x, y, a, b], output)
    names = {
        f"{name}{axis}": label
        for name, labels in zip("xyab", found.labels, strict=True)
        for axis, label in enumerate(labels)
    }
    together = {
        (one, other)
        for one in names
        for other in names
        if one < other and names[one] == names[other]
    }
    assert together == pairs


def test_axes_go_together_through_a_loop() -> None:
    ys = pytensor.scan(
        lambda row, h, w: h @ w + row,
        sequences=[a],
        outputs_info=[x],
        non_sequences=[b],
        return_updates=False,
    )
    found = asked([x, a, b], ys)
    (x0,), (a0, a1), (b0, b1) = found.labels
    assert len({x0, a1, b0, b1}) == 1
    assert a0 != a1


def test_what_a_traced_loop_asks() -> None:
    _, ys = loop.scan(lambda h, row, w: (h @ w + row, h), x, a, b, max_steps=n)
    found = asked([x, a, b, n], ys)
    (x0,), (a0, a1), (b0, b1), _ = found.labels
    assert len({x0, a1, b0, b1}) == 1
    assert a0 != a1
    assert found.roles[-1] is Role.STEPS
    assert {label in found.stepped for label in (a0, x0)} == {True, False}


def test_what_the_results_of_a_traced_loop_ask() -> None:
    last, (trace, rows) = loop.scan(
        lambda h, _, w: (h * 2, (h, h[:1] + w[index_of(w)])), x, None, y, max_steps=n
    )
    found = asked([x, y, a, b, n], last + a[0], trace + b, rows)
    (x0,), (y0,), (_, a1), (b0, b1), _ = found.labels
    assert x0 == a1 == b1
    assert len({x0, y0, b0}) == 3
    assert asked([y, n], pt.zeros(trace_of_ones(n).shape[0]) + y).roles == (Role.FREE, Role.STEPS)


def index_of(vector: Variable) -> Variable:
    return pt.argmax(vector)


def trace_of_ones(steps: Variable) -> Variable:
    return loop.scan(lambda h, _: (h, h), pt.ones(3), max_steps=steps)[1]


def test_states_that_change_their_shapes() -> None:
    last = loop.while_loop(lambda h: h.sum() < 9, lambda h: pt.concatenate([h, h]), x, max_steps=9)
    found = asked([x, y], last + y)
    assert found.labels[0] != found.labels[1]


def test_static_lengths_are_shared() -> None:
    fixed = pt.vector("fixed", shape=(4,))
    found = asked([fixed, x], fixed + x)
    assert found.labels[0] == found.labels[1]
    assert found.static == {found.labels[0][0]: 4}


def test_two_graphs_are_read_together() -> None:
    graphs = [FunctionGraph([x, y], [output], clone=True) for output in (x.sum(), x + y)]
    found = input_constraints(graphs)
    assert found.labels[0] == found.labels[1]


def test_an_axis_that_is_not_there_is_left_to_the_evaluation() -> None:
    shape = Apply(Shape(), [x], [pt.lvector()]).outputs[0]
    three = ps.constant(3, dtype="int64")
    stop = Apply(Subtensor((0,)), [shape, three], [pt.lscalar()]).outputs[0]
    assert asked([x, n], x[: stop + n]).roles[1] is Role.SIZE
