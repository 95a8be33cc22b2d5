"""`hoist-states` on TracedLoops, by number; and other passes for both designs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import get_mode
from pytensor.conditional.op import IfElse
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.scalar.basic import float64
from pytensor.tensor.basic import scalar_from_tensor, tensor_from_scalar
from pytensor.tensor.random.type import random_generator_type

from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.loop import Body, TracedLoop
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.pipeline.grammar import parse, print_pipeline
from support.compiled_ways import BACKENDS, compiled
from support.evaluating import PLAIN, assert_same_outcomes, evaluate
from support.graph_building import arguments, assert_same_values, graph_of, optimized
from support.zoo.model import outputs_of
from support.zoo.models import MODELS

x, w = pt.dscalars("x", "w")
n = pt.lscalar("n")
u, v = pt.dvectors("u", "v")
v3 = pt.tensor("v3", shape=(3,), dtype="float64")
m = pt.matrix("m", shape=(3, 3), dtype="float64")
PASS = "hoist-states"
CLEAN = f"{PASS},remove-unused"


def loop_of(
    initial: list[Any], step: Any, n_steps: Any = 4, traced: Any = None, **outer: Any
) -> list[Any]:
    """Return the outputs of a loop; ``step`` and ``traced`` take the index, states, constants."""
    index, states = pt.lscalar("index"), [start.type() for start in initial]
    constants = {value.type(): value for value in outer.values()}
    given = [index, *states, *constants]
    body = Body(
        index=index,
        states=states,
        next_states=step(*given),
        traced=[] if traced is None else traced(*given),
    )
    return TracedLoop.over(n_steps, body, initial, constants)


def kinds(graph: Graph) -> list[str]:
    """Return the slots of the one loop of a graph, without the index."""
    slots = LoopView.of(loop_node(graph)).slots
    return [slot.label for slot in slots if slot.kind is not SlotKind.INDEX]


def loop_node(graph: Graph) -> Apply:
    (node,) = (n for n in graph.fgraph.apply_nodes if isinstance(n.op, TracedLoop))
    return node


def assert_same_compiled(graph: Graph, work: Graph, steps: Sequence[int], **values: Any) -> None:
    """Check that two graphs give the same: as they are, and as backends compile them."""
    for mode in (PLAIN, *BACKENDS):
        one, other = (compiled(g.inputs, g.outputs, mode) for g in (graph, work))
        for count in steps:
            data = arguments(graph, n=count, **values)
            assert_same_outcomes(one(*data), other(*data))


def loops_of(graph: Graph) -> int:
    return sum(isinstance(node.op, TracedLoop) for node in graph.fgraph.apply_nodes)


@pytest.mark.tiered
@pytest.mark.parametrize("start", [x, v3])
def test_case_1_an_invariant_state_that_a_step_reads(start: Any) -> None:
    """The first step reads the initial value."""
    made = loop_of([w, start], lambda _, s, c, k: [s * 2 + c.sum(), k + 1], n, k=start * 2)
    graph = graph_of(*made)
    work, remarks = optimized(graph, CLEAN)
    assert kinds(work) == ["state[0]", "constant[0]"]
    assert remarks[0].endswith(f"hoisted the invariant state `{start.name}`")
    assert_same_compiled(graph, work, (0, 1, 3), x=0.5, w=2.0, v3=np.arange(3.0))


@pytest.mark.tiered
def test_case_1_and_2_alone() -> None:
    """No loop is left, nor the error of what cannot be computed if there is no step."""
    made = loop_of(
        [m, w],
        lambda _, a, b, m: [pt.linalg.cholesky(m), (m**2).sum()],
        n,
        traced=lambda _, a, b, m: [pt.linalg.cholesky(m) @ m, pt.exp(m).sum()],
        m=m,
    )
    graph = graph_of(*made)
    work, _ = optimized(graph, PASS)
    assert loops_of(work) == 0
    assert any(isinstance(node.op, IfElse) for node in work.fgraph.apply_nodes)
    for steps, sign in ((0, -4), (1, 4), (3, 4)):
        assert_same_values(graph, work, m=sign * np.eye(3), w=0.5, n=steps)
    work, _ = optimized(graph, "hoist-states{guarded=false}")
    assert_same_compiled(graph, work, (0, 1, 3), m=4 * np.eye(3), w=0.5)


@pytest.mark.tiered
def test_case_1_starting_with_its_value() -> None:
    made = loop_of([w + 1, x], lambda _, a, b, k: [1 + k, a * b], n, k=w)
    graph = graph_of(*made)
    work, _ = optimized(graph, CLEAN)
    assert kinds(work) == ["state[0]", "constant[0]"]
    assert not any(v.type.ndim for v in LoopView.of(loop_node(work)).node.inputs)
    assert_same_compiled(graph, work, (0, 2), x=0.5, w=2.0)


def test_case_1_what_a_step_reads_is_not_kept_for_each_step_if_there_may_be_any_number() -> None:
    """Of a known number, they are rows that `push-out` computes with, and copies for nothing."""
    for n_steps, rows in ((n, (2,)), (4, (4,))):
        made = loop_of([x, w], lambda _, a, b, k: [k + 1, b * pt.exp(a)], n_steps, k=w)
        work, _ = optimized(graph_of(made[1]), CLEAN)
        shapes = [v.type.shape for v in loop_node(work).inputs if v.type.ndim]
        assert shapes == [rows]


@pytest.mark.jax
def test_jax_takes_any_number_of_steps() -> None:
    pytest.importorskip("jax")
    made = loop_of([x, w], lambda _, a, b, k: [k + 1, b * pt.exp(a)], n, k=w)
    graph = from_io([x, w, n], [made[0], made[1]])
    work, _ = optimized(graph, "hoist-states{guarded=false}")
    jitted = compiled(work.inputs, work.outputs, get_mode("JAX"))
    for steps in (0, 1, 3):
        data = arguments(graph, x=0.5, w=0.25, n=steps)
        assert_same_outcomes(evaluate(graph.inputs, graph.outputs, data), jitted(*data))


@pytest.mark.parametrize("model", [model for model in MODELS if "invariant" in str(model)], ids=str)
def test_case_1_after_converting_first(model: Any) -> None:
    graph = from_io(*outputs_of(model, 0))
    before = "remove-unused,clean-slices,mit-mot-to-sit-sot,scan-to-loop"
    assert loops_of(optimized(graph, before)[0]) == 1
    assert loops_of(optimized(graph, f"{before},{PASS}")[0]) == 0


def test_case_1_of_numbers_and_of_traces() -> None:
    index, number, state = pt.lscalar("index"), float64("number"), pt.dscalar("state")
    given = float64("given")
    body = Body(
        index=index,
        states=[number, state],
        constants=[given],
        next_states=[given + given, state * tensor_from_scalar(number)],
        traced=[given * given],
    )
    outputs: list[Any] = TracedLoop.over(
        n, body, [scalar_from_tensor(x), w], {given: scalar_from_tensor(w)}
    )
    graph = graph_of(pt.as_tensor_variable(outputs[0]), *outputs[1:])
    work, _ = optimized(graph, CLEAN)
    assert kinds(work) == ["state[0]", "constant[0]"]
    for steps in (0, 1, 4):
        assert_same_values(graph, work, x=0.5, w=2.0, n=steps)


@pytest.mark.tiered
def test_case_1_where_a_condition_ends_the_loop() -> None:
    """What a step reads is not kept for the most steps there may be."""
    index, states, bound = pt.lscalar("index"), [x.type(), x.type()], pt.dscalar()
    body = Body(
        index=index,
        states=states,
        constants=[bound],
        next_states=[bound + 1, states[1] * 2],
        traced=[pt.exp(bound)],
        condition=states[1] < bound,
    )
    graph = graph_of(*TracedLoop.over(n, body, [w, x], {bound: w}))
    work, _ = optimized(graph, PASS)
    assert kinds(work) == ["state[0]", "constant[0]"]
    assert_same_compiled(graph, work, (0, 1, 9), x=0.5, w=10.0)
    body = replace(body, next_states=[bound + 1, states[1] * 2 + states[0]])
    graph = graph_of(*TracedLoop.over(n, body, [w, x], {bound: w}))
    work, _ = optimized(graph, PASS)
    assert kinds(work) == ["state[0]", "constant[0]", "constant[1]"]
    assert_same_compiled(graph, work, (0, 1, 9), x=0.5, w=10.0)


def test_case_1_its_gradient() -> None:
    made = loop_of([w, x], lambda _, s, c, k: [s * c, k**2], 4, k=w)
    graph = from_io([x, w], made[:-1])
    work, _ = optimized(graph, CLEAN)
    both = []
    for one in (graph, work):
        cost: Any = sum((output**2).sum() for output in one.outputs)
        both.append(from_io(one.inputs, pytensor.grad(cost, list(one.inputs))))
    assert kinds(work) == ["state[0]", "constant[0]"]
    assert_same_values(*both, x=0.5, w=1.25)


def test_case_1_a_last_value_of_another_shape() -> None:
    """Only what a step reads has to keep its shape, and what is read as a trace."""
    made = loop_of([v, w], lambda _, a, b, k: [k * 2, b + 1], n, k=u)
    graph = graph_of(made[0], made[1])
    work, _ = optimized(graph, CLEAN)
    assert kinds(work) == ["state[0]"]
    for steps in (0, 2):
        assert_same_values(graph, work, v=np.arange(3.0), u=np.arange(2.0), w=2.0, n=steps)


STAYS: dict[str, Callable[..., list[Any]]] = {
    "it reads the index": lambda i, a, b, k: [k + i, b * a],
    "it reads a state": lambda i, a, b, k: [b + k, b * 2],
    "it reads a row": lambda i, a, b, k: [pt.stack([k, k * 2])[i % 2], b * a],
    "states change places": lambda i, a, b, k: [b, a],
}


@pytest.mark.parametrize("name", STAYS)
def test_twins_of_case_1(name: str) -> None:
    work, remarks = optimized(graph_of(*loop_of([x, w], STAYS[name], k=x)), PASS)
    assert kinds(work)[:2] == ["state[0]", "state[1]"]
    assert remarks == []


def test_twin_a_state_that_may_change_its_shape() -> None:
    made = loop_of([v, w], lambda _, a, b, k: [k * 2, b + a.sum()], n, k=u)
    graph = graph_of(made[1])
    work, (told,) = optimized(graph, PASS)
    assert kinds(work) == ["state[0]", "state[1]", "constant[0]"]
    assert told.endswith("keeps the invariant `v` in the loop: its shape may change in a step")


def test_twin_what_is_drawn() -> None:
    rng = random_generator_type("rng")

    def draw(*given: Any) -> Any:
        return pt.random.normal(rng=given[-1]).owner.outputs[1]

    made = loop_of(
        [x, w], lambda *a: [draw(*a), a[2] + a[1]], traced=lambda *a: [draw(*a)], rng=rng
    )
    work, remarks = optimized(graph_of(*made), PASS)
    assert kinds(work) == ["state[0]", "state[1]", "constant[0]", "traced[0]"]
    assert remarks == []


@pytest.mark.tiered
@pytest.mark.parametrize("start", [x, v])
def test_case_3(start: Variable) -> None:
    made = loop_of([w, start], lambda _, s, c: [s * 2 + c.sum(), c], n)
    graph = graph_of(*made)
    work, remarks = optimized(graph, PASS)
    assert kinds(work) == ["state[0]", "constant[0]"]
    assert len(remarks) == 1
    assert_same_compiled(graph, work, (0, 1, 3), x=0.5, w=2.0, v=np.arange(3.0))


def test_case_3_by_the_name_that_it_had() -> None:
    assert parse("remove-unused,constant-states") == parse("remove-unused,hoist-states")
    assert print_pipeline(parse("constant-states{guarded=false}")) == "hoist-states{guarded=false}"


def test_case_3_of_a_number() -> None:
    index, number, state = pt.lscalar("index"), float64("number"), pt.dscalar("state")
    new = state * tensor_from_scalar(number)
    body = Body(index=index, states=[number, state], next_states=[number, new])
    outputs: list[Any] = TracedLoop.over(3, body, [scalar_from_tensor(x), w], {})
    graph = graph_of(pt.as_tensor_variable(outputs[0]), *outputs[1:])
    work, _ = optimized(graph, PASS)
    assert kinds(work) == ["state[0]", "constant[0]"]
    assert_same_values(graph, work, x=0.5, w=2.0)


@pytest.mark.tiered
def test_case_3_where_a_condition_ends_the_loop() -> None:
    index, bound, state = pt.lscalar("index"), pt.dscalar(), pt.dscalar()
    new = state * 2
    body = Body(index=index, states=[bound, state], next_states=[bound, new], condition=new < bound)
    graph = graph_of(*TracedLoop.over(n, body, [w, x], {}))
    work, _ = optimized(graph, PASS)
    assert kinds(work) == ["state[0]", "constant[0]"]
    assert_same_compiled(graph, work, (0, 1, 9), x=0.5, w=10.0)


def test_twin_a_state_that_is_neither_an_array_nor_a_number() -> None:
    """It has no trace that could be made of copies of it."""
    rng = random_generator_type("rng")
    made = loop_of([rng, w], lambda _, rng, s: [rng, s * 2])
    work, remarks = optimized(graph_of(made[0], made[1]), PASS)
    assert kinds(work) == ["state[0]", "state[1]"]
    assert not remarks


def test_remove_unused_takes_dead_states_values_and_constants() -> None:
    made = loop_of(
        [x, x, x],
        lambda _, a, b, c, k, z: [a * k, b + c, c - b * z],
        traced=lambda _, a, b, c, k, z: [a + k, b * z],
        k=w,
        z=x,
    )
    graph = graph_of(made[0], made[6])
    work, _ = optimized(graph, "remove-unused")
    assert kinds(work) == ["state[0]", "constant[0]", "traced[0]"]
    assert_same_values(graph, work, x=0.5, w=2.0)


@pytest.mark.parametrize("read", [0, 3])
def test_remove_unused_keeps_a_state_of_which_the_last_value_or_the_trace_is_read(
    read: int,
) -> None:
    made = loop_of([x, x, x], lambda _, a, b, c: [a + b, b * 2, c])
    graph = graph_of(made[read])
    work, _ = optimized(graph, "remove-unused")
    assert kinds(work) == ["state[0]", "state[1]"]
    assert_same_values(graph, work, x=0.5)


def test_remove_unused_keeps_what_decides_the_end() -> None:
    index, state, other = pt.lscalar("index"), pt.dscalar(), pt.dscalar()
    body = Body(
        index=index,
        states=[state, other],
        next_states=[state * 2, other + 1],
        condition=other < 2.5,
    )
    graph = graph_of(TracedLoop.over(9, body, [x, x], {})[-1])
    work, _ = optimized(graph, "remove-unused")
    assert kinds(work) == ["state[0]"]
    assert_same_values(graph, work, x=0.5)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_merge_states_merges_states_and_traced_values(steps: int) -> None:
    made = loop_of(
        [x, x, w],
        lambda _, a, b, c: [b * 2 + c, a * 2 + c, c + 1],
        n,
        traced=lambda _, a, b, c: [a + c, b + c, c + 1],
    )
    graph = graph_of(*made)
    work, _ = optimized(graph, "merge-states")
    assert kinds(work) == ["state[0]", "state[1]", "traced[0]"]
    assert_same_values(graph, work, x=0.5, w=2.0, n=steps)


def test_twin_states_that_start_differently() -> None:
    graph = graph_of(*loop_of([x, w], lambda _, a, b: [a * 2, b * 2]))
    work, _ = optimized(graph, "merge-states")
    assert kinds(work) == ["state[0]", "state[1]"]


def test_twin_a_state_and_the_index() -> None:
    """What counts like the index is not the index."""
    graph = graph_of(
        *loop_of([n, n], lambda index, a, b: [a + index, b + a], traced=lambda i, a, b: [i])
    )
    work, _ = optimized(graph, "merge-states")
    assert kinds(work) == ["state[0]", "state[1]", "traced[0]"]
    assert_same_values(graph, work, n=0)


def test_inline_constants_takes_constants_of_loops() -> None:
    graph = graph_of(
        *loop_of(
            [x], lambda _, s, k, z: [s * k + z.sum()], k=pt.constant(2.0, dtype="float64"), z=v
        )
    )
    work, _ = optimized(graph, "inline-constants")
    assert kinds(work) == ["state[0]", "constant[0]"]
    assert_same_values(graph, work, x=0.5, v=np.arange(3.0))


@pytest.mark.tiered
def test_a_batch_of_one_that_a_batch_of_more_reads() -> None:
    """PyTensor's ``local_merge_alloc`` asserts that two lengths are equal where one may be 1."""
    rows = pt.tensor("rows", shape=(2, None), dtype="float64")
    ys = pytensor.scan(
        lambda _row, h: h, sequences=[u], outputs_info=[x], n_steps=n, return_updates=False
    )
    graph = from_io([n, rows, x], vectorize_graph([ys], {u: rows}))
    work, _ = optimized(graph, "loop")
    assert_same_compiled(graph, work, [0, 1, 3], rows=np.ones((2, 3)), x=4.0)
