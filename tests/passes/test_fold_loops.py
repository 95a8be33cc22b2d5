"""fold-loops: its legal cases by number, and a twin that must not fire for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Constant
from pytensor.graph.replace import clone_replace
from pytensor.raise_op import Assert
from pytensor.scan.utils import until

from scanopt_cli.ir.graph import Graph
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.ir.scan_view import is_loop
from support.compiled_ways import VM, compiled
from support.evaluating import assert_same_outcomes, evaluate
from support.graph_building import assert_same_values, graph_of, optimized, scan

X, N = pt.dscalar("x"), pt.lscalar("n")
ONE = pt.constant(np.array([0.5, 1.5]))
FORMS = ("fold-loops", "scan-to-loop,fold-loops")


def _loops(graph: Graph) -> int:
    return sum(is_loop(node) for node in walk(graph.fgraph))


def _decay(start: Any = ONE, n_steps: Any = 5, **more: Any) -> Any:
    return scan(lambda y: pt.exp(-y) + 0.1, outputs_info=[start], n_steps=n_steps, **more)


def _assert_folds(
    ys: Any, form: str = "fold-loops", reads: Any = lambda ys: (ys * X).sum()
) -> Graph:
    graph = graph_of(reads(ys))
    after, _ = optimized(graph, form)
    assert _loops(after) == 0
    assert_same_values(graph, after, x=1.5)
    for way in (graph, after):
        again = compiled(way.inputs, way.outputs, VM)(1.5)
        assert_same_outcomes(evaluate(graph.inputs, graph.outputs, [np.array(1.5)]), again)
    return after


def _assert_stays(graph: Graph, *told: str, form: str = "fold-loops") -> None:
    after, remarks = optimized(graph, form)
    assert _loops(after) == _loops(graph) > 0
    assert not any("computed all values" in remark for remark in remarks)
    for text in told:
        assert any(text in remark for remark in remarks), remarks


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_steps", [1, 2, 7])
def test_case_1_a_state_that_starts_from_a_constant(form: str, n_steps: int) -> None:
    _assert_folds(_decay(n_steps=n_steps), form)


@pytest.mark.parametrize("form", FORMS)
def test_case_1_several_states_taps_sequences_and_traces(form: str) -> None:
    ys, zs, ws = scan(
        lambda a, b, y2, y1, z, m: [y1 * a + y2 * b, z @ m + a, y1 + z.sum()],
        sequences=[{"input": pt.constant(np.arange(8.0)), "taps": [0, 1]}],
        outputs_info=[
            {"initial": pt.constant(np.array([1.0, 2.0])), "taps": [-2, -1]},
            pt.constant(np.ones((2, 2))),
            None,
        ],
        non_sequences=[pt.constant(np.array([[0.1, 0.2], [0.3, 0.4]]))],
    )
    graph = graph_of(ys.sum() * X, zs[-1] * X, ws * X)
    after, _ = optimized(graph, form)
    assert _loops(after) == 0
    assert_same_values(graph, after, x=1.5)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("form", FORMS)
def test_case_1_gradients_at_a_constant(form: str, order: int) -> None:
    """Their mit_mots are buffers of which each step reads and writes several rows."""
    w = pt.dscalar("w")
    ys = scan(
        lambda y2, y1: y1 * w + pt.sin(y2),
        n_steps=4,
        outputs_info=[{"initial": pt.stack([w, w * 2]), "taps": [-2, -1]}],
    )
    cost = (ys**2).sum()
    for _ in range(order):
        cost = pytensor.grad(cost, w)
    graph = graph_of(clone_replace(cost, {w: pt.constant(0.7, dtype="float64")}) * X)
    after, _ = optimized(graph, form)
    assert _loops(after) == 0
    assert_same_values(graph, after, x=1.5)


@pytest.mark.parametrize("order", [1, 2])
def test_case_1_gradients_by_what_the_values_are_multiplied_by(order: int) -> None:
    cost = (_decay() * X**3).sum()
    for _ in range(order):
        cost = pytensor.grad(cost, X)
    graph = graph_of(cost)
    after, _ = optimized(graph, "fold-loops")
    assert _loops(after) == 0
    assert_same_values(graph, after, x=1.5)


@pytest.mark.parametrize("form", FORMS)
def test_case_1_loops_in_loops(form: str) -> None:
    def outer(i: Any, y: Any) -> Any:
        return _decay(y, n_steps=i + 1)[-1] * 2

    ys = scan(outer, sequences=[pt.constant(np.arange(3))], outputs_info=[ONE])
    _assert_folds(ys, form)


@pytest.mark.parametrize("form", FORMS)
def test_case_1_in_the_body_of_a_loop(form: str) -> None:
    ys = scan(lambda y: y * _decay()[-1].sum(), outputs_info=[X], n_steps=N)
    graph = graph_of(ys)
    after, remarks = optimized(graph, form)
    assert _loops(graph) == 2
    assert _loops(after) == 1
    assert any("computed all values" in remark for remark in remarks)
    for n in (0, 1, 4):
        assert_same_values(graph, after, x=1.5, n=n)


def test_case_1_in_an_op_from_graph() -> None:
    v = pt.dvector("v")
    op = OpFromGraph([v], [v * _decay()[-1]], name="layer")
    graph = graph_of(op(X * ONE))
    after, _ = optimized(graph, "fold-loops")
    assert _loops(after) == 0
    assert_same_values(graph, after, x=1.5)


def test_case_1_an_op_from_graph_in_a_step() -> None:
    v = pt.dvector("v")
    op = OpFromGraph([v], [v * 2 + 1], name="layer")
    _assert_folds(scan(lambda y: op(y), outputs_info=[ONE], n_steps=3))


@pytest.mark.parametrize("preset", ["default", "grad", "loop"])
def test_presets_fold(preset: str) -> None:
    _assert_folds(_decay(), preset)


def test_case_1_twin_a_variable() -> None:
    _assert_stays(graph_of(_decay(X * ONE)))
    _assert_stays(graph_of(_decay(n_steps=N)))


@pytest.mark.parametrize("form", FORMS)
def test_case_1_twin_random_draws(form: str) -> None:
    """A generator in a step, or one that starts from a constant, is never run."""
    rng = pytensor.shared(np.random.default_rng(1))

    def step(y: Any, generator: Any) -> Any:
        after, draw = pt.random.normal(0, 1, rng=generator, return_next_rng=True)
        return [y + draw, after]

    ys, _ = scan(step, outputs_info=[pt.constant(0.5, dtype="float64"), rng], n_steps=3)
    _assert_stays(graph_of(ys * X), form=form)
    fixed = rng.type.make_constant(np.random.default_rng(1))
    _assert_stays(graph_of(clone_replace(ys, {rng: fixed}) * X), form=form)
    constant = pt.random.normal(0, 1, rng=fixed, return_next_rng=True)[1]
    _assert_stays(
        graph_of(
            scan(
                lambda y: y + constant, outputs_info=[pt.constant(0.5, dtype="float64")], n_steps=3
            )
            * X
        )
    )


def test_case_1_twin_draws_of_a_loop_inside() -> None:
    rng = pytensor.shared(np.random.default_rng(1))

    def inside(generator: Any) -> Any:
        after, draw = pt.random.normal(0, 1, rng=generator, return_next_rng=True)
        return [draw, after]

    def outer(y: Any) -> Any:
        draws, _ = scan(inside, outputs_info=[None, rng], n_steps=2)
        return y + draws.sum()

    _assert_stays(
        graph_of(scan(outer, outputs_info=[pt.constant(0.5, dtype="float64")], n_steps=3) * X)
    )


def test_case_1_twin_an_op_of_another_package() -> None:
    from pytensor.compile.ops import as_op

    calls = []

    @as_op(itypes=[pt.dvector], otypes=[pt.dvector])
    def counted(value: Any) -> Any:
        calls.append(1)
        return value + len(calls)

    _assert_stays(graph_of(scan(lambda y: counted(y), outputs_info=[ONE], n_steps=3) * X))
    assert not calls


def test_case_1_twin_a_class_that_computes_by_itself() -> None:
    class Hundredfold(OpFromGraph):
        def perform(self, node: Any, inputs: Any, outputs: Any) -> None:
            outputs[0][0] = inputs[0] * 100

    v = pt.dvector("v")
    op = Hundredfold([v], [v * 2])
    _assert_stays(graph_of(scan(lambda y: op(y), outputs_info=[ONE], n_steps=3) * X))


def test_case_1_twin_prints() -> None:
    from pytensor.printing import Print

    _assert_stays(graph_of(scan(lambda y: Print("y")(y) * 2, outputs_info=[ONE], n_steps=3) * X))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "step",
    [
        lambda y: Assert("small")(y * 2, (y < 3).all()),
        lambda y: y * ONE[pt.cast(y[0] * 4, "int64")],
        lambda y: y[: pt.cast(y[0] * 3, "int64")],
    ],
    ids=["a check", "an index", "a shape that changes"],
)
def test_case_1_twin_what_raises(step: Any, form: str) -> None:
    graph = graph_of(scan(step, outputs_info=[ONE], n_steps=6) * X)
    after, _ = optimized(graph, form)
    assert _loops(after) == 1
    if form == "fold-loops":
        assert_same_values(graph, after, x=1.5)


def test_case_1_twin_a_sequence_that_is_too_short() -> None:
    ys = scan(
        lambda a, y: y * a,
        sequences=[pt.constant(np.array([1.0, 2.0]))],
        outputs_info=[X],
        n_steps=5,
    )
    graph = graph_of(clone_replace(ys, {X: pt.constant(0.5, dtype="float64")}) * X)
    _assert_stays(graph)


@pytest.mark.parametrize("form", FORMS)
def test_case_1_twin_values_that_are_large(form: str) -> None:
    graph = graph_of(_decay(n_steps=10) * X)
    assert _loops(optimized(graph, form.replace("fold-loops", "fold-loops{max_bytes=176}"))[0]) == 0
    _assert_stays(
        graph, "more than 159 bytes", form=form.replace("fold-loops", "fold-loops{max_bytes=159}")
    )


def test_case_1_twin_steps_that_take_long() -> None:
    """A million steps, and a thousand with a thousand inside: neither is begun."""
    _assert_stays(graph_of(_decay(n_steps=1_000_000)[-1] * X), "more than 20000 operations")
    nested = scan(lambda y: _decay(y, n_steps=1000)[-1], outputs_info=[ONE], n_steps=1000)
    _assert_stays(graph_of(nested[-1] * X), "more than 20000 operations")


def test_case_1_twin_arrays_that_are_large() -> None:
    ys = scan(
        lambda y: pt.alloc(y, 3000, 3000).mean(),
        outputs_info=[pt.constant(1.0, dtype="float64")],
        n_steps=3,
    )
    _assert_stays(graph_of(ys * X), "more than 20000 operations")


def test_case_1_twin_negative_zero() -> None:
    ys = scan(lambda y: y * -1.0, outputs_info=[pt.constant(0.0, dtype="float64")], n_steps=3)
    _assert_stays(graph_of(X / ys), "-0.0")


def test_case_1_twin_no_steps() -> None:
    _assert_stays(graph_of(_decay(n_steps=0) * X))


@pytest.mark.parametrize("form", FORMS)
def test_case_2_rows_at_constant_places(form: str) -> None:
    graph = graph_of(_decay(n_steps=100)[-1] * X, _decay(n_steps=100)[10:20][::-1] * X)
    after, _ = optimized(graph, form.replace("fold-loops", "fold-loops{max_bytes=200}"))
    assert _loops(after) == 0
    assert_same_values(graph, after, x=1.5)


def test_case_2_twin_a_row_at_another_place() -> None:
    graph = graph_of(_decay(n_steps=100)[N] * X)
    _assert_stays(graph, "more than 200 bytes", form="fold-loops{max_bytes=200}")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("most", [1, 4, 30])
def test_case_3_a_condition(form: str, most: int) -> None:
    ys = scan(lambda y: (y * 2, until(y.sum() > 10)), outputs_info=[ONE], n_steps=most)
    graph = graph_of((ys * X).sum(), ys.shape[0], ys[-1] * X)
    after, _ = optimized(graph, form)
    assert _loops(after) == 0
    assert_same_values(graph, after, x=1.5)


def test_case_3_twin_a_condition_that_may_come_late() -> None:
    ys = scan(lambda y: (y + 1, until(y.sum() > 1e6)), outputs_info=[ONE], n_steps=1_000_000)
    _assert_stays(graph_of(ys[-1] * X), "more than 20000 operations")


def test_results_are_constants() -> None:
    after = _assert_folds(_decay(), reads=lambda ys: ys[-1] * X)
    (product,) = (node for node in after.fgraph.apply_nodes if len(node.inputs) == 2)
    assert any(isinstance(v, Constant) for v in product.inputs)
