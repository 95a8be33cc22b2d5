"""Derivatives have the right values, outputs and notes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import example as given_example
from hypothesis import given, settings
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until

from scanopt_cli.autodiff.derivative import Derivative
from scanopt_cli.autodiff.differentiating import grad
from scanopt_cli.autodiff.pedigree.pedigree import pedigree
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.errors import GradientError
from scanopt_cli.ir.graph import Graph, as_graph
from scanopt_cli.pipeline.grammar import parse
from scanopt_cli.pipeline.runner import run_pipeline
from support.evaluating import evaluate, evaluator
from support.generated.arguments import arguments
from support.generated.building import build
from support.generated.plans import (
    Expression,
    Input,
    Kind,
    Loop,
    Map,
    NonSequence,
    Program,
    Read,
    Role,
)
from support.generated.strategies import GeneratedScan, scan_graphs
from support.gradient_loops import W, a, n, nested, s, x, y
from support.graph_building import graph_of, power, scan
from support.tiers import examples

POINT = {
    "x": np.array(0.8),
    "a": np.array(0.3),
    "y": np.array([0.9, 1.1]),
    "s": np.array([0.4, -0.2, 0.7, 0.1]),
    "W": np.array([[0.3, -0.2], [0.1, 0.4]]),
    "n": np.array(3),
    "xs": np.array([0.7, 0.9, 1.05]),
}


def kalman() -> Any:
    def step(value: Any, mean: Any, spread: Any, noise: Any, jitter: Any) -> Any:
        spread = spread + noise
        total = spread + jitter
        gain = spread / total
        error = value - mean
        logp = -0.5 * (pt.log(total) + error**2 / total)
        return mean + gain * error, (1 - gain) * spread, logp

    start = [pt.zeros(()), pt.ones(()), None]
    found = scan(step, sequences=[s], outputs_info=start, non_sequences=[x, a], name="kalman")
    return found[2].sum()


def garch() -> Any:
    spread = scan(
        lambda before, last, w, b: w + 0.2 * before**2 + b * last,
        sequences=[s[:-1]],
        outputs_info=[x],
        non_sequences=[x, a],
        name="garch",
    )
    return (-0.5 * pt.log(spread) - s[1:] ** 2 / (2 * spread)).sum()


LOOPS = {
    "symbolic step count": lambda: power(n)[1][-1],
    "two taps": lambda: scan(
        lambda b, c: 0.5 * b * c + 0.1 * c,
        outputs_info=[{"initial": y, "taps": [-2, -1]}],
        n_steps=n,
        name="ar2",
    ).sum(),
    "two taps and a sequence": lambda: scan(
        lambda q, b, c: 0.5 * b * c + q,
        sequences=[s],
        outputs_info=[{"initial": y, "taps": [-2, -1]}],
        name="ar2",
    )[-1],
    "matrix and sequence": lambda: scan(
        lambda q, h, w: pt.tanh(h @ w + q),
        sequences=[s],
        outputs_info=[y],
        non_sequences=[W],
        name="rnn",
    )[-1].sum(),
    "backwards": lambda: scan(
        lambda q, h: 0.5 * h**2 + q, sequences=[s], outputs_info=[x], go_backwards=True
    )[-1],
    "map": lambda: scan(lambda q, b: b * q**3, sequences=[s], non_sequences=[a]).sum(),
    "while": lambda: scan(
        lambda q, h: (1.5 * h**2 + q**2, until(h > 1)), sequences=[s], outputs_info=[x]
    ).sum(),
    "while with two taps": lambda: scan(
        lambda b, c: (b * c + c, until(c > 5)),
        outputs_info=[{"initial": y, "taps": [-2, -1]}],
        n_steps=20,
    )[-1],
    "nested": nested,
    "Kalman filter": kalman,
    "GARCH": garch,
}


def values(variables: Sequence[Variable]) -> list[np.ndarray]:
    return [np.asarray(POINT[str(variable.name)]) for variable in variables]


def results(derivative: Derivative, order: int = -1) -> list[Any]:
    graph = derivative.orders[order].graph
    return evaluate(graph.inputs, graph.outputs, values(graph.inputs))


def slopes(graph: Graph, wrt: Sequence[str]) -> list[np.ndarray]:
    """Central differences of the sum of all entries of all outputs, by each input of ``wrt``."""
    run = evaluator(graph.inputs, graph.outputs)
    point = values(graph.inputs)

    def total(position: int, offset: np.ndarray) -> float:
        moved = [np.asarray(v + offset if i == position else v) for i, v in enumerate(point)]
        return float(sum(np.sum(value) for value in run(moved)))

    names = [variable.name for variable in graph.inputs]
    found = []
    for position in map(names.index, wrt):
        slope = np.empty(point[position].shape)
        for index in np.ndindex(slope.shape):
            step = np.zeros(slope.shape)
            step[index] = 1e-6
            slope[index] = (total(position, step) - total(position, -step)) / 2e-6
        found.append(slope)
    return found


def assert_is_slope(derivative: Derivative) -> None:
    """Check each order against differences of the order before."""
    for before, report in zip(derivative.orders, derivative.orders[1:], strict=False):
        wanted = slopes(before.graph, derivative.wrt)
        for got, slope in zip(results(derivative, report.order), wanted, strict=True):
            np.testing.assert_allclose(got, slope, rtol=1e-5, atol=1e-7)


def test_a_power_has_its_derivatives_in_closed_form() -> None:
    square, xs = power(4)
    derivative = grad(([square], [xs[-1]]), 3, strategy="reverse")
    for order, factor in enumerate([1, 16, 16 * 15, 16 * 15 * 14]):
        (value,) = results(derivative, order)
        assert value == pytest.approx(factor * 0.8 ** (16 - order))
    assert [report.statistics.scans for report in derivative.orders] == [1, 2, 4, 8]
    assert derivative.notes == ()


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("loop", LOOPS)
def test_two_orders_agree_with_finite_differences(loop: str) -> None:
    derivative = grad(graph_of(LOOPS[loop]()), 2)
    assert set(derivative.wrt) <= {"x", "a", "y", "s", "W"}
    assert_is_slope(derivative)


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("loop", LOOPS)
def test_a_derivative_can_be_differentiated_again(loop: str) -> None:
    at_once = grad(graph_of(LOOPS[loop]()), 2)
    first = at_once.orders[1].graph
    total = sum(output.sum() for output in first.outputs)
    again = grad((first.inputs, [total]), wrt=at_once.wrt)
    for wanted, got in zip(results(at_once), results(again), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_a_batched_loop() -> None:
    xs = pt.dvector("xs")
    square, steps = power(3)
    derivative = grad(([xs], [vectorize_graph(steps[-1], {square: xs})]), 2)
    (first,), (second,) = results(derivative, 1), results(derivative, 2)
    np.testing.assert_allclose(first, 8 * POINT["xs"] ** 7)
    np.testing.assert_allclose(second, 56 * POINT["xs"] ** 6)
    assert any("sum of its entries" in note for note in derivative.notes)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_batched_gradient_can_be_differentiated_again(compiled: bool) -> None:
    xs = pt.dvector("xs")
    steps = scan(lambda h, v: pt.tanh(h * v).sum(), outputs_info=[x], non_sequences=[y], n_steps=n)
    batch = vectorize_graph(pytensor.grad(steps.sum(), y), {x: xs})
    graph = graph_of(batch)
    if compiled:
        mode = Mode(linker="py", optimizer="fast_compile").excluding("inplace", "fusion")
        function = pytensor.function(graph.inputs, graph.outputs, mode=mode)
        graph = as_graph(function.maker.fgraph)
    assert_is_slope(grad(graph))


def test_several_inputs_are_moved_together() -> None:
    derivative = grad(([x, a], [x**2 * a**3]), 2)
    at, by = 0.8, 0.3
    wanted = [2 * by**3 + 6 * at * by**2, 6 * at * by**2 + 6 * at**2 * by]
    np.testing.assert_allclose(results(derivative), wanted)
    assert any("Hessian times a vector of ones" in note for note in derivative.notes)


def test_the_derivative_has_the_inputs_of_the_graph_and_names_what_it_is() -> None:
    out = scan(lambda h, f: pt.tanh(h * f), outputs_info=[x], non_sequences=[a], n_steps=n)[-1]
    out.name = "last"
    given = FunctionGraph([n, a, x], [out], clone=True)
    derivative = grad(given, 2, wrt=["x", "a"])
    assert [variable.name for variable in derivative.graph.inputs] == ["n", "a", "x"]
    assert derivative.graph.output_names == ("d2 last/d x", "d2 last/d a")
    assert derivative.orders[1].graph.output_names == ("d last/d x", "d last/d a")
    assert [variable.type for variable in derivative.graph.outputs] == [x.type, a.type]
    assert given.outputs[0].owner is not None
    assert len(given.apply_nodes) == derivative.orders[0].statistics.outer_nodes


def test_differentiating_one_order_changes_no_other() -> None:
    square, xs = power(4)
    derivative = grad(([square], [xs[-1]]), 2)
    before = digest(derivative.orders[2].graph)
    run_pipeline(derivative.orders[1].graph.fgraph, parse("default"))
    assert digest(derivative.orders[2].graph) == before


@pytest.mark.parametrize("selector", ["x", 1, "#1", x])
def test_inputs_are_chosen_by_name_position_or_variable(selector: Any) -> None:
    derivative = grad(([a, x], [a * x**2]), wrt=[selector])
    assert derivative.wrt == ("x",)
    np.testing.assert_allclose(results(derivative), [2 * 0.3 * 0.8])


def test_one_name_needs_no_list() -> None:
    rate = pt.dscalar("rate")
    assert grad(([rate, x], [rate * x]), wrt="rate").wrt == ("rate",)


def test_an_output_that_is_an_input() -> None:
    np.testing.assert_allclose(results(grad(([x], [x]), 2), 1), [1.0])


def test_an_input_asked_for_twice_counts_once() -> None:
    assert grad(([a, x], [a * x**2]), wrt=["x", "#1", 0]).wrt == ("x", "a")


@pytest.mark.parametrize("selector", [1, "#1", "product"])
def test_outputs_are_chosen_by_position_or_name(selector: int | str) -> None:
    product = a * x
    product.name = "product"
    derivative = grad(([a, x], [a + x, product]), wrt=["x"], output=selector)
    assert (derivative.output, derivative.wrt) == ("product", ("x",))
    np.testing.assert_allclose(results(derivative), [0.3])


def test_shared_variables_count_as_inputs() -> None:
    rate = pytensor.shared(0.25, name="rate")
    out = scan(lambda h, r: h * r, outputs_info=[x], non_sequences=[rate], n_steps=3)[-1]
    derivative = grad(([x], [out]))
    assert derivative.wrt == ("x", "rate")
    assert derivative.graph.values == {1: 0.25}
    assert grad(([x], [out]), wrt=[rate]).wrt == ("rate",)


def test_an_order_that_depends_on_nothing_is_zero_and_says_so() -> None:
    line = scan(lambda h, f: h * f, outputs_info=[x], non_sequences=[a], n_steps=3)[-1]
    derivative = grad(([x, a], [line]), 2, wrt=["x"])
    np.testing.assert_allclose(results(derivative), [0.0])
    assert derivative.notes == ("order 2 is zero for x: order 1 does not depend on it smoothly",)


def test_a_truncated_gradient_says_so() -> None:
    def loop(steps: int) -> Any:
        return scan(lambda h: h**2, outputs_info=[x], n_steps=steps, truncate_gradient=3, name="t")

    assert grad(([x], [loop(5)[-1]])).notes == (
        "the gradient of Scan t is truncated after 3 steps",
    )
    assert grad(([x], [loop(3)[-1]]), 2).notes == ()


def test_a_truncated_map_can_be_differentiated_again() -> None:
    out = scan(
        lambda q, b: q**2 * b**2, sequences=[s], non_sequences=[a], truncate_gradient=2
    ).sum()
    derivative = grad(graph_of(out), 3)
    for order in (2, 3):
        wanted = slopes(derivative.orders[order - 1].graph, derivative.wrt)
        for got, slope in zip(results(derivative, order), wanted, strict=True):
            np.testing.assert_allclose(got, slope, rtol=1e-5, atol=1e-7)
    first = derivative.orders[1].graph
    assert grad((first.inputs, [first.outputs[0].sum()])).wrt == derivative.wrt


def test_many_scans_are_explained() -> None:
    square, xs = power(4)
    derivative = grad(([square], [xs[-1]]), 5, strategy="reverse")
    assert derivative.notes == ("32 Scans: each order of repeated reverse mode doubles them",)


@pytest.mark.deep
def test_a_graph_deeper_than_the_recursion_limit() -> None:
    depth = sys.getrecursionlimit() * 3 // 5
    deep = x
    for _ in range(depth):
        deep = deep * a
    for strategy in ("reverse", "forward", "taylor"):
        derivative = grad(([x, a], [deep]), wrt=["x"], strategy=strategy)
        assert strategy == "taylor" or derivative.orders[1].statistics.outer_nodes >= depth


def _only_adds_up() -> GeneratedScan:
    """A pullback that adds up from zeros of a known shape: ``specify_shape(alloc(0, n, 3))``."""
    zero = Expression("constant", (0.0,))
    spread = Expression("spread", (zero,))
    moved = Expression("add", (Expression("read", ("w0",)), spread))
    maps = (
        Map("y0", Kind.REAL, Expression("tanh", (Expression("tanh", (zero,)),))),
        Map("y1", Kind.VECTOR, Expression("tanh", (moved,))),
    )
    loop = Loop("n0", (), (NonSequence("w0", "v0", Kind.VECTOR),), (), (), maps)
    sources = (
        Input("n0", Role.STEPS, Kind.INTEGER),
        Input("v0", Role.VALUE, Kind.VECTOR),
    )
    program = Program(
        inputs=sources,
        constants=(),
        loop=loop,
        reads=(Read("whole", ("y1",)),),
        static_shapes=False,
    )
    return GeneratedScan(*build(program), arguments(program, 0), program)


@given(example=scan_graphs())
@given_example(example=_only_adds_up())
@settings(max_examples=examples(5, 50))
def test_every_generated_graph_has_the_derivative_that_pytensor_gives(
    example: GeneratedScan,
) -> None:
    given = (example.inputs, example.outputs)
    for position, output in enumerate(example.outputs):
        plain = as_graph(given)
        cost = plain.outputs[position].sum() if output.type.ndim else plain.outputs[position]
        try:
            derivative = grad(given, output=position, strategy="reverse")
        except GradientError as error:
            if "loses what its start does" in error.what:
                continue  # what PyTensor gives may be wrong then
            if "floating-point" not in error.what:
                # An integer state in an OpFromGraph is one that PyTensor has no derivative for.
                floats = [v for v in plain.inputs if v.type.dtype.startswith("float")]
                with pytest.raises(Exception, match=r"."):
                    pytensor.grad(cost, floats, disconnected_inputs="ignore")
            continue
        inputs = [plain.inputs[list(map(str, example.inputs)).index(w)] for w in derivative.wrt]
        # A start that is read by no step is connected to the rows of its buffer before the steps.
        wanted = pytensor.grad(
            cost, inputs, disconnected_inputs="ignore", return_disconnected="zero"
        )
        assert digest(derivative.graph) == digest((plain.inputs, wanted))
        # What is recorded while differentiating is what names and structure tell afterwards.
        assert derivative.pedigree.scans == pedigree(derivative.graph).scans
