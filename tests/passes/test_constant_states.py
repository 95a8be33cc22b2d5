"""`constant-states`: a state that no step changes is a constant; and passes for both designs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Variable
from pytensor.scalar.basic import float64
from pytensor.tensor.basic import scalar_from_tensor
from pytensor.tensor.random.type import random_generator_type

from scanopt_cli.ir.graph import Graph
from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.loop import Body, TracedLoop
from scanopt_cli.loop.operator_base import LoopView
from support.graph_building import assert_same_values, graph_of, optimized

x, w = pt.dscalars("x", "w")
n = pt.lscalar("n")
v = pt.dvector("v")


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
    (node,) = (n for n in graph.fgraph.apply_nodes if isinstance(n.op, TracedLoop))
    return [slot.label for slot in LoopView.of(node).slots if slot.kind is not SlotKind.INDEX]


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("start", [x, v])
def test_case_1(start: Variable, steps: int) -> None:
    made = loop_of([w, start], lambda _, s, c: [s * 2 + c.sum(), c], n)
    graph = graph_of(*made)
    work, remarks = optimized(graph, "constant-states")
    assert kinds(work) == ["state[0]", "constant[0]"]
    assert len(remarks) == 1
    assert_same_values(graph, work, x=0.5, w=2.0, v=np.arange(3.0), n=steps)


def test_case_1_of_a_number() -> None:
    index, number, state = pt.lscalar("index"), float64("number"), pt.dscalar("state")
    body = Body(index=index, states=[number, state], next_states=[number, state * 2 + 1])
    outputs: list[Any] = TracedLoop.over(3, body, [scalar_from_tensor(x), w], {})
    graph = graph_of(pt.as_tensor_variable(outputs[0]), *outputs[1:])
    work, _ = optimized(graph, "constant-states")
    assert kinds(work) == ["state[0]", "constant[0]"]
    assert_same_values(graph, work, x=0.5, w=2.0)


def test_case_1_where_a_condition_ends_the_loop() -> None:
    index, bound, state = pt.lscalar("index"), pt.dscalar(), pt.dscalar()
    new = state * 2
    body = Body(index=index, states=[bound, state], next_states=[bound, new], condition=new < bound)
    graph = graph_of(*TracedLoop.over(9, body, [w, x], {}))
    work, _ = optimized(graph, "constant-states")
    assert kinds(work) == ["state[0]", "constant[0]"]
    assert_same_values(graph, work, x=0.5, w=10.0)


def test_twin_a_state_that_is_neither_an_array_nor_a_number() -> None:
    """It has no trace that could be made of copies of it."""
    rng = random_generator_type("rng")
    made = loop_of([rng, w], lambda _, rng, s: [rng, s * 2])
    work, remarks = optimized(graph_of(made[0], made[1]), "constant-states")
    assert kinds(work) == ["state[0]", "state[1]"]
    assert not remarks


def test_twin_states_that_change_places() -> None:
    graph = graph_of(*loop_of([x, w], lambda _, a, b: [b, a]))
    work, remarks = optimized(graph, "constant-states")
    assert (kinds(work), remarks) == (["state[0]", "state[1]"], [])


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
