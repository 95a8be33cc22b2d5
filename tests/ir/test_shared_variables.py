"""Shared variables stay shared variables, whatever is done to a graph."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.tensor.random.utils import RandomStream

import scanopt_cli as so
from scanopt_cli.diff.comparing import diff
from scanopt_cli.ir.graph import as_graph, listed_names
from scanopt_cli.pipeline.grammar import PRESETS
from scanopt_cli.serialization.payload import shared_from
from support import tiers
from support.evaluating import assert_same_outcomes, evaluate, has_unknown_shape
from support.generated.strategies import GeneratedScan, scan_graphs
from support.graph_building import scan

SERIES = np.array([1.0, 2.0, 3.0])


def decaying(rate: Any) -> tuple[list[Variable], list[Variable]]:
    x, bias = pt.dvector("x"), pt.dscalar("bias")
    out = scan(lambda v, s: s * rate + v + bias, sequences=[x], outputs_info=[np.float64(0)])
    return [x, bias], [out[-1]]


def wanted(rate: float, bias: float = 0.5) -> float:
    total = 0.0
    for value in SERIES:
        total = total * rate + value + bias
    return total


def compiled(graph: Any, mode: str = "FAST_RUN") -> Any:
    return pytensor.function(graph.inputs, graph.outputs, mode=mode, on_unused_input="ignore")


@pytest.fixture
def rate() -> SharedVariable:
    return pytensor.shared(np.array(0.8), name="rate")


@pytest.mark.parametrize("passes", [*PRESETS, "scan-to-loop", ""])
def test_results_of_optimize_read_the_present_value(passes: str, rate: SharedVariable) -> None:
    inputs, outputs = decaying(rate)
    given = "scan-to-loop" if passes == "" else passes
    graph = so.optimize((inputs, outputs), passes=given).graph
    assert graph.inputs == inputs
    assert graph.shared == [rate]
    function = compiled(graph)
    assert function(SERIES, 0.5)[0] == pytest.approx(wanted(0.8))
    rate.set_value(0.3)
    assert function(SERIES, 0.5)[0] == pytest.approx(wanted(0.3))
    assert compiled(graph)(SERIES, 0.5)[0] == pytest.approx(wanted(0.3))


@pytest.mark.parametrize("mode", ["NUMBA", pytest.param("JAX", marks=pytest.mark.jax)])
def test_compiled_otherwise(mode: str, rate: SharedVariable) -> None:
    function = compiled(so.optimize(decaying(rate), passes="loop").graph, mode)
    for value in (0.8, 0.3):
        rate.set_value(value)
        assert function(SERIES, 0.5)[0] == pytest.approx(wanted(value))


@pytest.mark.deep
def test_results_of_passes_taken_up_again(rate: SharedVariable) -> None:
    """A result is a graph like any: of its inputs and outputs, or as it is."""
    first = so.optimize(decaying(rate)).graph
    for form in (first, (first.inputs, first.outputs), first.fgraph):
        second = so.optimize(form, passes="loop").graph
        assert second.shared == [rate]
        assert so.verify(first, second).ok
        rate.set_value(0.3)
        assert compiled(second)(SERIES, 0.5)[0] == pytest.approx(wanted(0.3))


def test_it_is_updated_as_before(rate: SharedVariable) -> None:
    graph = so.optimize(decaying(rate)).graph
    function = pytensor.function(graph.inputs, graph.outputs, updates={rate: rate / 2})
    for value in (0.8, 0.4, 0.2):
        assert function(SERIES, 0.5)[0] == pytest.approx(wanted(value))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_list_of_inputs_may_have_it(place: int, rate: SharedVariable) -> None:
    """PyTensor takes it for no input of a function, but for one of a FunctionGraph."""
    inputs, outputs = decaying(rate)
    listed = [*inputs[:place], rate, *inputs[place:]]
    for form in ((listed, outputs), FunctionGraph(listed, outputs, clone=False)):
        graph = so.optimize(form).graph
        assert graph.inputs == inputs
        assert graph.fgraph.inputs == listed
        assert compiled(graph)(SERIES, 0.5)[0] == pytest.approx(wanted(0.8))


def test_one_that_nothing_reads_any_more(rate: SharedVariable) -> None:
    x = pt.dvector("x")
    out = scan(
        lambda v, r: [v * 2, v * r], sequences=[x], non_sequences=[rate], outputs_info=[None] * 2
    )
    graph = so.optimize(([x], [out[0]])).graph
    assert graph.inputs == [x]
    np.testing.assert_array_equal(compiled(graph)(SERIES)[0], 2 * SERIES)


@pytest.mark.deep
@pytest.mark.parametrize("strategy", ["reverse", "forward"])
def test_derivatives_read_it_and_are_taken_by_it(strategy: str, rate: SharedVariable) -> None:
    inputs, outputs = decaying(rate)
    result = so.grad((inputs, outputs), wrt=["bias", rate], strategy=strategy, check=True)
    assert result.check is not None
    assert result.check.outcome == "agrees"
    assert result.graph.inputs == inputs
    assert result.graph.shared == [rate]
    function = compiled(result.graph)
    for value in (0.8, 0.3):
        rate.set_value(value)
        slopes = (
            (wanted(value, 0.501) - wanted(value, 0.499)) / 2e-3,
            (wanted(value + 1e-6) - wanted(value - 1e-6)) / 2e-6,
        )
        np.testing.assert_allclose(function(SERIES, 0.5), slopes, rtol=1e-6)


def test_verify_uses_the_present_value(rate: SharedVariable) -> None:
    """In the first run. Where a shared variable is another one, the values differ."""
    graph = decaying(rate)
    assert so.verify(graph, so.optimize(graph).graph).ok
    x = pt.dvector("x")
    at_least = ([x], [pt.switch(rate > 0, x, 1 / (x - x))])
    rate.set_value(-1.0)
    found = so.verify(at_least, ([x], [x * 1]), runs=1)
    assert not found.ok


@pytest.mark.deep
def test_verify_pairs_shared_variables_with_themselves() -> None:
    a, b = (pytensor.shared(np.array(v), name=name) for v, name in ((2.0, "a"), (5.0, None)))
    x = pt.dvector("x")
    one = ([x], [x * a - b])
    for other in (([x], [-b + a * x]), ([b, x, a], [a * x - b])):
        found = so.verify(one, other)
        assert found.ok
        assert found.remarks == ()
    assert so.verify(one, ([x], [x * a - b + 0 * pytensor.shared(1.0)])).ok
    assert not so.verify(one, ([x], [x * b - a])).ok


def test_diff_and_digest_take_it_for_an_input(rate: SharedVariable) -> None:
    graph = decaying(rate)
    plain = pt.dscalar("rate")
    x, bias = graph[0]
    out = scan(lambda v, s: s * plain + v + bias, sequences=[x], outputs_info=[np.float64(0)])
    twin = ([x, bias, plain], [out[-1]])
    assert so.digest(graph) == so.digest(twin)
    assert diff(graph, twin).same
    assert so.digest(so.optimize(graph).graph) == so.digest(so.optimize(twin).graph)


# generators and default updates


def test_generators_go_on_where_they_are() -> None:
    rng = pytensor.shared(np.random.default_rng(3), name="rng")
    x = pt.dvector("x")
    graph = so.optimize(([x], [pt.random.normal(x, 1, rng=rng)])).graph
    assert graph.shared == [rng]
    function = compiled(graph)
    np.testing.assert_array_equal(function(SERIES)[0], np.random.default_rng(3).normal(SERIES, 1))
    rng.set_value(np.random.default_rng(4))
    np.testing.assert_array_equal(function(SERIES)[0], np.random.default_rng(4).normal(SERIES, 1))


def test_default_updates_hold_for_results() -> None:
    """They are made of the caller's inputs, which are those of the result."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        x = pt.dvector("x")
        stream = RandomStream(7)
        draws = stream.normal(x, 1)
        out = scan(lambda v: v * 2, sequences=[draws], outputs_info=[None])
    (rng,) = as_graph(([x], [out])).shared
    start = rng.get_value()
    graph = so.optimize(([x], [out]), passes="loop").graph
    function = pytensor.function(graph.inputs, graph.outputs)
    found = [function(SERIES)[0] for _ in range(3)]
    rng.set_value(start)
    alone = pytensor.function([x], [out])
    np.testing.assert_allclose(found, [alone(SERIES)[0] for _ in range(3)])
    assert not np.allclose(found[0], found[1])


# graphs


def test_a_copy_has_nodes_of_its_own_over_the_same_variables(rate: SharedVariable) -> None:
    graph = as_graph(decaying(rate))
    copy = graph.copy()
    assert copy.fgraph.inputs == graph.fgraph.inputs
    assert copy.fgraph.apply_nodes.isdisjoint(graph.fgraph.apply_nodes)


def test_what_is_computed_may_be_an_input(rate: SharedVariable) -> None:
    x = pt.dvector("x")
    y = pt.exp(x)
    graph = so.optimize(([y], [y * rate])).graph
    np.testing.assert_allclose(compiled(graph)(SERIES)[0], 0.8 * SERIES)


def test_few_names_are_listed() -> None:
    shared = [pytensor.shared(1.0, name=f"s{i}") for i in range(12)]
    assert listed_names(shared[:2]) == "s0, s1"
    assert listed_names(shared).endswith("s9 and 2 more")
    assert listed_names([pytensor.shared(1.0)]) == "one of type Scalar(float64, shape=())"


@settings(max_examples=tiers.examples(10, 100), deadline=None)
@given(generated=scan_graphs(), data=st.data())
def test_generated_graphs_that_read_some(generated: GeneratedScan, data: st.DataObject) -> None:
    """Some of the inputs become shared variables, which get the arguments in turn."""
    inputs = generated.inputs
    assume(inputs)
    places = data.draw(st.sets(st.integers(0, len(inputs) - 1)))
    first = generated.arguments[0]
    shared = {i: shared_from(inputs[i].type, first[i], inputs[i].name) for i in places}
    outputs = clone_replace(generated.outputs, {inputs[i]: v for i, v in shared.items()})
    kept = [i for i in range(len(inputs)) if i not in shared]
    graph = so.optimize(([inputs[i] for i in kept], outputs), passes="grad").graph
    assert graph.inputs == [inputs[i] for i in kept]
    assert set(graph.shared) <= set(shared.values())
    for arguments in generated.arguments:
        for i, variable in shared.items():
            variable.set_value(arguments[i])
        results = evaluate(inputs, generated.outputs, arguments)
        found = evaluate(graph.inputs, graph.outputs, [arguments[i] for i in kept])
        if any(isinstance(result, Exception) for result in results):
            continue  # the passes may have removed the error, or merged its loop with another
        for result, got in zip(results, found, strict=True):
            if not has_unknown_shape(result, got):
                assert_same_outcomes([result], [got])
