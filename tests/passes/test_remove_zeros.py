"""`remove-zeros`: each case that it removes, and each that it must leave alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until

from scanopt_cli.loop import Body, TracedLoop
from support.evaluating import assert_same_outcomes, evaluate
from support.graph_building import (
    arguments,
    graph_of,
    labels,
    only_scan,
    optimized,
    scan,
    scan_views,
)

RUN = "remove-zeros"
x, y = pt.dscalars("x", "y")
a, b = pt.dvectors("a", "b")
c = pt.tensor("c", shape=(3,), dtype="float64")
n = pt.lscalar("n")
POINT = {
    "x": 0.7,
    "y": -0.4,
    "a": [0.3, -0.2, 0.9],
    "b": [1.5, 0.1, 0.2],
    "c": [0.4, 0.0, 1.0],
    "n": 3,
}


def check(
    *outputs: Variable, of_loop: int | None = None, **changes: Any
) -> tuple[list[str], list[str]]:
    """Run the pass and compare values; return the slots that are left, and the remarks.

    Of the TracedLoop that the Scan becomes, it removes as many slots, or ``of_loop``.
    """
    graph = graph_of(*outputs)
    work, remarks = optimized(graph, RUN)
    loops, _ = optimized(graph, "scan-to-loop")
    turned, told = optimized(loops, RUN)
    assert len(told) == (len(remarks) if of_loop is None else of_loop)
    for steps in (0, 1, 3):
        data = arguments(graph, **{**POINT, "n": steps, **changes})
        wanted = evaluate(graph.inputs, graph.outputs, data)
        assert_same_outcomes(wanted, evaluate(work.inputs, work.outputs, data))
        assert_same_outcomes(wanted, evaluate(turned.inputs, turned.outputs, data))
    return labels(only_scan(work.fgraph)), [remark.partition(": ")[2] for remark in remarks]


def beside(step: Callable[..., Any], start: Any, like: Any = x, **more: Any) -> list[Any]:
    """A loop of `tanh` states that start as ``like``, with a state that ``step`` updates."""
    return scan(
        lambda *read: [pt.tanh(read[-2]) + read[-1], step(*read)],
        **{"outputs_info": [like, start], "n_steps": n, **more},
    )


KEEPS_ZERO: dict[str, Callable[..., Any]] = {
    "times": lambda s, z: z * s,
    "times twice": lambda s, z: pt.exp(s) * z * s,
    "sum": lambda s, z: z * s + 2 * z,
    "difference": lambda s, z: z - s * z,
    "quotient": lambda s, z: z / (s + 3),
    "negative": lambda s, z: -z,
    "function": lambda s, z: pt.tanh(z) + pt.sqrt(z) + pt.expm1(z),
    "switch": lambda s, z: pt.switch(s > 0, z, z * 2),
    "itself": lambda s, z: z,
    "power": lambda s, z: pt.sqr(z),
}


@pytest.mark.parametrize("name", KEEPS_ZERO)
@pytest.mark.parametrize("like", [x, a], ids=["scalar", "vector"])
def test_case_1_states_that_stay_zero(name: str, like: Any) -> None:
    states, zeros = beside(KEEPS_ZERO[name], pt.zeros_like(like), like)
    left, remarks = check(states, zeros)
    assert [label for label in left if "sot" in label] == ["sit_sot[0]"]
    assert remarks == ["removed sit_sot `sit_sot[1]`: zero in every step"]


@pytest.mark.parametrize(("like", "of_loop"), [(a, 0), (c, 2)])
def test_case_1_states_that_feed_each_other(like: Any, of_loop: int) -> None:
    """A TracedLoop does not know that vectors that feed each other keep an unknown length."""

    def step(s: Any, u: Any, v: Any) -> list[Any]:
        return [pt.tanh(s) + u, v * s, u - v]

    zero = pt.zeros_like(like)
    outs = scan(step, outputs_info=[like, zero, zero], n_steps=n)
    left, remarks = check(*outs, of_loop=of_loop)
    assert "sit_sot[1]" not in left
    assert len(remarks) == 2


def test_case_1_only_the_largest_set_that_holds() -> None:
    """`u` would stay zero if `v` did, and `v` is fed by `s`."""
    zero = pt.zeros(())
    outs = scan(
        lambda s, u, v, w: [pt.tanh(s), u + v, v + s, w * s],
        outputs_info=[x, zero, zero, zero],
        n_steps=n,
    )
    left, remarks = check(*outs)
    assert left == ["sit_sot[0]", "sit_sot[1]", "sit_sot[2]"]
    assert remarks == ["removed sit_sot `sit_sot[3]`: zero in every step"]


def test_case_1_several_taps() -> None:
    start = pt.zeros((2,))
    outs = scan(
        lambda s, u, v: [pt.tanh(s), s * u - v],
        outputs_info=[x, {"initial": start, "taps": [-2, -1]}],
        n_steps=n,
    )
    assert check(*outs, of_loop=2)[0] == ["sit_sot[0]"]


def test_case_2_sequences_of_zeros() -> None:
    states = scan(
        lambda u, v, s: pt.tanh(s) * v + u,
        sequences=[pt.zeros((3, 3)), b],
        outputs_info=[a],
    )
    left, remarks = check(states)
    assert left == ["seq[0]", "sit_sot[0]"]
    assert remarks == ["removed seq `seq[0]`: zero in every step"]
    # What is zero from a known row on is not zero from the start.
    most = pt.set_subtensor(pt.zeros((3,))[0], x)
    states = scan(lambda u, s: pt.tanh(s) + u, sequences=[most], outputs_info=[y])
    assert check(states)[1] == []


def test_twins_of_case_2_in_a_traced_loop() -> None:
    """A row that is not there is an error; the row after the last one may be another."""
    rows = pt.set_subtensor(pt.zeros((4, 3))[3], c)
    for ahead, steps, found in ((0, 3, 1), (1, 2, 1), (1, 3, 0), (0, n, 0)):
        index, state, given_rows = pt.lscalar("index"), pt.dvector(), rows.type()
        body = Body(
            index=index,
            states=[state],
            constants=[given_rows],
            next_states=[pt.tanh(state) + given_rows[index + ahead]],
        )
        made = TracedLoop.over(steps, body, [a], {given_rows: rows})[0]
        graph = graph_of(made)
        work, remarks = optimized(graph, RUN)
        assert len(remarks) == found
        data = arguments(graph, **{**POINT, "n": 3})
        assert_same_outcomes(
            evaluate(graph.inputs, graph.outputs, data), evaluate(work.inputs, work.outputs, data)
        )


def test_twin_a_state_that_changes_its_shape() -> None:
    index, state, other = pt.lscalar("index"), pt.dvector(), pt.dscalar()
    new = [pt.concatenate([state, state]), other + state.sum() + state.shape[0]]
    body = Body(index=index, states=[state, other], next_states=new)
    made = TracedLoop.over(n, body, [pt.zeros((2,)), x], {})
    assert optimized(graph_of(made[1]), RUN)[1] == []


def test_the_cotangent_of_a_state_that_the_cost_ignores() -> None:
    """So it is for the recovered of an SIR model; then the forward loop need not run them."""
    used, ignored = scan(
        lambda s, t, k: [pt.tanh(s * k), pt.cos(t * s)],
        outputs_info=[a, a * 2],
        non_sequences=[x],
        n_steps=n,
    )
    assert ignored is not None
    graph = graph_of(*pt.grad((used**2).sum(), [a, x]))
    before = "mit-mot-to-sit-sot,simplify{outer=true}"
    plain, _ = optimized(graph, f"{before},remove-unused")
    work, _ = optimized(graph, f"{before},{RUN},remove-unused")
    states = [
        [len(view.of_kind("sit_sot")) for view in scan_views(each.fgraph)] for each in (plain, work)
    ]
    assert states == [[2, 3], [1, 2]]
    for steps in (1, 4):
        data = arguments(graph, a=POINT["a"], x=0.7, n=steps)
        assert_same_outcomes(
            evaluate(graph.inputs, graph.outputs, data), evaluate(work.inputs, work.outputs, data)
        )


STAYS: dict[str, tuple[Callable[..., Any], Any]] = {
    "not zero at the start": (lambda s, z: z * s, y),
    "a sum with another": (lambda s, z: z + s, pt.zeros(())),
    "not zero at zero": (lambda s, z: pt.cos(z), pt.zeros(())),
    "divided by it": (lambda s, z: s / (z + 1), pt.zeros(())),
    "switch to another": (lambda s, z: pt.switch(s > 0, z, s), pt.zeros(())),
    "zero to the power of zero": (lambda s, z: z**0.0, pt.zeros(())),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_is_not_zero_stays(name: str) -> None:
    step, start = STAYS[name]
    left, remarks = check(*beside(step, start))
    assert left == ["sit_sot[0]", "sit_sot[1]"]
    assert remarks == []


def test_while_and_batched_loops_stay() -> None:
    stopping = scan(
        lambda s, z: ([pt.tanh(s), z * s], until(s > 9)),
        outputs_info=[x, pt.zeros(())],
        n_steps=3,
    )
    assert check(*stopping)[1] == []
    states, zeros = beside(KEEPS_ZERO["times"], pt.zeros(()), n_steps=3)
    both = vectorize_graph([states, zeros], {x: pt.dvector("xs")})
    assert check(*both, xs=[0.1, 0.2])[1] == []


def test_a_loop_with_nothing_else_stays() -> None:
    zeros = scan(lambda z: z * 2, outputs_info=[pt.zeros(())], n_steps=n)
    assert check(zeros) == (["sit_sot[0]"], [])


def test_a_buffer_that_goes_on_with_other_rows_stays() -> None:
    """A buffer longer than the steps reach keeps its last rows, which are not zero."""
    states, zeros = beside(KEEPS_ZERO["times"], pt.zeros(()), n_steps=2)
    node = states.owner.inputs[0].owner
    buffers = list(node.inputs)
    for position, made in enumerate(buffers):
        if made is zeros.owner.inputs[0].owner.inputs[position] and made.type.ndim == 1:
            buffers[position] = pt.concatenate([pt.zeros((1,)), b, b])
    odd = node.op(*buffers)
    assert check(*odd)[1] == []


@given(
    updates=st.lists(st.sampled_from(sorted(KEEPS_ZERO) + sorted(STAYS)), min_size=1, max_size=3),
    steps=st.integers(2, 4) | st.just(n),
)
def test_generated_states(updates: list[str], steps: Any) -> None:
    """Whatever is removed, values stay."""
    every = {**KEEPS_ZERO, **{name: step for name, (step, _) in STAYS.items()}}

    def step(s: Any, *states: Any) -> list[Any]:
        turned = (*states[1:], states[0])
        new = [every[name](s, z) for name, z in zip(updates, turned, strict=True)]
        return [pt.tanh(s) + sum(states), *new]

    outs = scan(step, outputs_info=[x, *[pt.zeros(())] * len(updates)], n_steps=steps)
    with np.errstate(all="ignore"):
        check(*outs)
