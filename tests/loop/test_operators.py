"""What the operators accept, and what they say of themselves."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import equal_computations
from pytensor.graph.traversal import explicit_graph_inputs
from pytensor.printing import debugprint
from pytensor.tensor.rewriting.shape import ShapeFeature

from scanopt_cli import loop
from scanopt_cli.ir.graph import from_io
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.loop import Body, Loop, TracedLoop
from scanopt_cli.loop.shapes import _traced_lengths
from support.programs import PROGRAMS


def doubling(**more: Any) -> Body:
    index, x = pt.lscalar("index"), pt.dscalar("x")
    return Body(**{"index": index, "states": [x], "next_states": [x * 2]} | more)


def test_a_state_whose_type_changes() -> None:
    x = pt.dscalar("speed")
    with pytest.raises(
        TypeError, match=r"^speed is of type Scalar\(float64.*; a step makes it Vector"
    ):
        doubling(states=[x], next_states=[x + pt.zeros(3)[: pt.lscalar()]]).freeze()


def test_an_undeclared_variable() -> None:
    x, y = pt.dscalars("x", "rate")
    with pytest.raises(ValueError, match="reads rate, which is none of its inputs"):
        doubling(states=[x], next_states=[x * y]).freeze()


def test_an_index_or_a_condition_of_another_type() -> None:
    x = pt.dscalar("x")
    with pytest.raises(TypeError, match="index of a loop is an int64"):
        doubling(index=pt.iscalar()).freeze()
    with pytest.raises(TypeError, match="condition of a loop is a bool"):
        doubling(states=[x], next_states=[x], condition=x).freeze()


@pytest.mark.parametrize(
    ("n_steps", "error"), [(-1, ValueError), (2.0, TypeError), ([1, 2], TypeError)]
)
def test_numbers_of_steps_that_are_none(n_steps: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        Loop.over(n_steps, doubling(), [pt.dscalar()], {})


@pytest.mark.parametrize("mode", ["FAST_COMPILE", "CVM", "NUMBA"])
def test_a_negative_number_of_steps_when_it_runs(mode: str) -> None:
    n = pt.lscalar("n")
    (last,) = Loop.over(n, doubling(), [pt.constant(1.0, dtype="float64")], {})
    function = pytensor.function([n], last, mode=mode)
    assert function(3) == 8
    with pytest.raises(ValueError, match=r"-2|negative"):
        function(-2)


def test_inputs_of_other_types() -> None:
    op = Loop.from_body(doubling())
    with pytest.raises(TypeError, match="initial value of state 0 of Loop must be of type"):
        op(3, pt.dvector())
    with pytest.raises(ValueError, match="takes 2 inputs"):
        op(3)


@pytest.mark.parametrize(
    ("n_states", "is_while"), [(True, False), (np.int8(1), False), (1, 0), (1, np.False_)]
)
def test_counts_and_flags_of_other_types(n_states: Any, is_while: Any) -> None:
    """Files may hold them, and sums of small integers overflow."""
    index, state = pt.lscalar(), pt.dscalar()
    body = Body(index=index, states=[state], next_states=[state * 2]).freeze()
    with pytest.raises(TypeError, match="whole number of states"):
        TracedLoop(body, n_states, is_while)


def test_nested_loops_are_looked_into_once() -> None:
    """Of each of 20 nested loops the shapes are found once, not twice for each one around it."""

    def nested(y: Any, depth: int) -> Any:
        if depth == 0:
            return pt.sin(y)
        return loop.scan(lambda s, _: (nested(s, depth - 1), s * depth), y, max_steps=2)[0]

    before = _traced_lengths.cache_info().misses
    made = nested(pt.dvector("y"), 20)
    pt.grad(made.sum(), list(explicit_graph_inputs([made])))
    ShapeFeature().shape_tuple(made)
    assert _traced_lengths.cache_info().misses - before <= 4 * 20


def test_states_that_change_places_reach_each_other() -> None:
    index, states = pt.lscalar(), [pt.dscalar() for _ in range(40)]
    body = Body(index=index, states=states, next_states=[*states[1:], states[0]])
    op = TracedLoop.from_body(body)
    assert np.asarray(op.reached())[1:].all()
    two = Body(index=index, states=states[:2], next_states=[states[0], states[0] + states[1]])
    reached = np.asarray(TracedLoop.from_body(two).reached())
    np.testing.assert_array_equal(reached, [[0, 0], [1, 1], [0, 1]])


def test_it_does_not_run_as_it_is() -> None:
    outputs = TracedLoop.over(3, doubling(), [pt.constant(1.0, dtype="float64")], {})
    with pytest.raises(NotImplementedError, match="lower it"):
        outputs[0].owner.op.perform(outputs[0].owner, [], [])


def test_equal_bodies_make_equal_operators() -> None:
    one, other = TracedLoop.from_body(doubling()), TracedLoop.from_body(doubling())
    assert one == other
    assert hash(one) == hash(other)
    x = pt.dscalar("x")
    assert one != TracedLoop.from_body(doubling(states=[x], next_states=[x * 3]))
    assert one != TracedLoop.from_body(doubling(condition=pt.constant(True, dtype="bool")))


@pytest.mark.parametrize("name", PROGRAMS)
def test_pickling(name: str) -> None:
    program = PROGRAMS[name]
    inputs = program.inputs()
    outputs = program.looped(inputs, 3)
    again_in, again_out = pickle.loads(pickle.dumps((inputs, outputs)))
    assert equal_computations(outputs, again_out, inputs, again_in)


@pytest.mark.parametrize("name", PROGRAMS)
def test_shapes_are_known_before_it_runs(name: str) -> None:
    program = PROGRAMS[name]
    inputs, n = program.inputs(), pt.lscalar("n")
    outputs = program.looped(inputs, n)[:-1]
    values = pytensor.function([*inputs, n], outputs, mode="FAST_COMPILE", on_unused_input="ignore")
    shapes = pytensor.function(
        [*inputs, n], [v.shape for v in outputs], mode="FAST_RUN", on_unused_input="ignore"
    )
    # A step may change these, for all that its graph says.
    if name not in ("matrices", "coupled", "shifted vectors", "swapped"):
        assert not any(isinstance(node.op, Loop) for node in shapes.maker.fgraph.apply_nodes)
    for n_steps in (0, 1, 3):
        found = shapes(*program.arguments, n_steps)
        expected = values(*program.arguments, n_steps)
        assert [tuple(shape) for shape in found] == [np.shape(value) for value in expected]


@pytest.mark.parametrize("n_steps", [0, 1, 2])
def test_a_state_may_take_the_length_of_another(n_steps: int) -> None:
    one, other = pt.dvectors("one", "other")
    index, a, b = pt.lscalar(), pt.dvector(), pt.dvector()
    body = Body(index=index, states=[a, b], next_states=[b * 2, b])
    last = TracedLoop.over(n_steps, body, [one, other], {})[0]
    length = pytensor.function([one, other], last.shape[0], mode="FAST_RUN")
    assert length(np.ones(3), np.ones(5)) == (5 if n_steps else 3)


def test_a_print_says_what_the_inputs_of_a_body_are() -> None:
    outputs = TracedLoop.over(3, doubling(), [pt.dscalar("start")], {})
    text = debugprint(outputs[0], file="str", print_op_info=True)
    assert "state-0" in text
    assert "most-steps" in text


@pytest.mark.parametrize("times", [3, 40])
def test_a_cotangent_is_not_written_out(times: int) -> None:
    """A sum of a sum with itself, and so on, has exponentially many terms."""
    x, c = pt.dscalars("x", "c")

    def step(state: Any, _: None, c: Any) -> Any:
        for _ in range(times):
            c = c + c
        return state * c, None

    last, _ = loop.scan(step, x, None, c, max_steps=2)
    slope = pytensor.grad(last, c)
    assert len(list(walk(from_io([x, c], [slope]).fgraph))) < 1_000
    if times == 3:  # PyTensor's own rewrites take exponential time, too
        function = pytensor.function([x, c], slope, mode="FAST_COMPILE")
        np.testing.assert_allclose(function(0.5, 0.125), 8.0)
