"""split-states: each legal case, a twin for each precondition, and derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.conditional.op import ifelse
from pytensor.graph.basic import Variable
from pytensor.scan.utils import until
from pytensor.tensor.random.type import random_generator_type

import scanopt_cli as so
from scanopt_cli import loop
from scanopt_cli.pipeline.grammar import PRESETS
from support.compiled_ways import BACKENDS, NUMBA, VM, compiled
from support.filters import (
    MATRICES,
    A,
    H,
    P,
    Q,
    R,
    Y,
    Z,
    assert_same,
    filtered,
    state_ranks,
    step,
    told,
    values,
)
from support.graph_building import scan
from support.tiers import examples

NAME = "split-states"
PASSES = f"scan-to-loop,trace-to-last,remove-unused,{NAME},remove-unused"
INPUTS = [Y, Z, *MATRICES]
LENGTHS = ((5, 8), (8, 5), (1, 4), (3, 0), (0, 0))
DATA = [values(*lengths) for lengths in LENGTHS]
RUNS = [values(*lengths) for lengths in LENGTHS[:3]]


def split(*outputs: Variable, inputs: Any = (Y, Z, *MATRICES)) -> tuple[Any, list[str]]:
    result = so.optimize((list(inputs), list(outputs)), PASSES)
    return result.graph, told([r for run in result.passes for r in run.remarks], NAME)


def test_case_1_and_2_two_series() -> None:
    graph, remarks = split(filtered(Y)[2], filtered(Z)[2])
    assert state_ranks(graph) == [[1, 0], [1, 0], [2]]
    assert remarks == ["computes `P`, which read no data, once for 2 loops"] * 2
    assert_same(INPUTS, [filtered(Y)[2], filtered(Z)[2]], DATA, (VM, NUMBA), PASSES)


@pytest.mark.tiered
@pytest.mark.parametrize("mode", BACKENDS)
def test_case_3_what_is_traced_of_the_states(mode: Any) -> None:
    def traced(y: Any, m: Any, p: Any, total: Any, *matrices: Any) -> list[Any]:
        return [*step(y, m, p, total, *matrices), p @ p, p]

    zero = pt.constant(np.float64(0))
    one = scan(
        traced,
        sequences=[Y],
        outputs_info=[MATRICES[4], P, zero, None, None],
        non_sequences=MATRICES[:4],
    )
    outputs = [*one, *filtered(Z)]
    graph, _ = split(*outputs)
    assert state_ranks(graph) == [[1, 0], [1, 0], [2]]
    assert_same(INPUTS, outputs, [d for d in RUNS if d[0].size], [mode], PASSES)


def test_case_1_three_series_one_of_constant_length() -> None:
    fixed = filtered(pt.constant(np.arange(4.0)))
    outputs = [filtered(Y)[2][-1], fixed[2][-1], filtered(Z)[1][-1]]
    graph, remarks = split(*outputs)
    assert len(remarks) >= 2
    assert_same(INPUTS, outputs, RUNS, [VM], PASSES)
    assert [2] in state_ranks(graph)


def test_a_negative_number_of_steps_is_an_error() -> None:
    counts = [pt.lscalar("n"), pt.lscalar("m"), pt.lscalar("k")]
    start = pt.tensor("start", shape=(2, 2), dtype="float64")
    outputs = [
        v for count in counts for v in loop.scan(lambda p, _: (p @ p, p), start, max_steps=count)
    ]
    result = so.optimize(([start, *counts], outputs), NAME)
    assert state_ranks(result.graph) == [[2]]
    plain = compiled([start, *counts], outputs, VM)
    function = compiled(result.graph.inputs, result.graph.outputs, VM)
    value = np.asarray([[0.5, 0.2], [0.1, 0.4]])
    for numbers in ((2, 5, 0), (5, 2, 3), (0, 0, 1)):
        for new, old in zip(function(value, *numbers), plain(value, *numbers), strict=True):
            np.testing.assert_allclose(new, old)
    for numbers in ((-1, 5, 2), (5, -2, 2), (2, 5, -3)):
        for one in (plain, function):
            with pytest.raises((ValueError, MemoryError, IndexError)):
                one(value, *numbers)


def test_a_series_that_starts_where_another_ends() -> None:
    """The second loop depends on the first, and not on how many steps that runs."""
    means, _, totals = filtered(Y)

    zero = pt.constant(np.float64(0))
    results = scan(
        step, sequences=[Z], outputs_info=[means[-1], P, zero], non_sequences=MATRICES[:4]
    )
    outputs = [totals[-1], results[2][-1]]
    graph, _ = split(*outputs)
    assert state_ranks(graph) == [[1, 0], [1, 0], [2]]
    assert_same(INPUTS, outputs, RUNS, [VM], PASSES)


@pytest.mark.deep
@pytest.mark.parametrize("before", [False, True], ids=["gradient first", "pass first"])
def test_first_and_second_derivatives(before: bool) -> None:
    outputs = [filtered(Y)[2][-1], filtered(Z)[2][-1]]
    inputs = INPUTS
    if before:
        graph, _ = split(*outputs)
        inputs, outputs = list(graph.inputs), list(graph.outputs)
    named = {v.name: v for v in inputs}
    cost = outputs[0] * outputs[1]
    first = pt.grad(cost, [named[n] for n in ("A", "Q", "R", "P", "y")])
    second = pt.grad(first[0].sum() + first[4].sum(), [named["A"], named["y"]])
    expected = [filtered(Y)[2][-1], filtered(Z)[2][-1]]
    slopes = pt.grad(expected[0] * expected[1], [A, Q, R, P, Y])
    wanted = [*slopes, *pt.grad(slopes[0].sum() + slopes[4].sum(), [A, Y])]
    if not before:
        assert_same(INPUTS, wanted, RUNS, [VM], PASSES)
        return
    one, other = compiled(INPUTS, wanted, VM), compiled(inputs, [*first, *second], VM)
    for data in RUNS:
        for new, old in zip(other(*data), one(*data), strict=True):
            np.testing.assert_allclose(new, old, rtol=1e-8, atol=1e-8)


@pytest.mark.deep
def test_derivatives_by_numba() -> None:
    cost = filtered(Y)[2][-1] * filtered(Z)[2][-1]
    first = pt.grad(cost, [A, Q, R, P, Y])
    assert_same(INPUTS, [cost, *first], RUNS, [NUMBA], "loop")


def _matrix_of_data() -> list[Any]:
    """A covariance that reads its series."""

    def reads(y: Any, m: Any, p: Any, total: Any, *matrices: Any) -> list[Any]:
        m, p, total = step(y, m, p, total, *matrices)
        return [m, p + 0.001 * y**2, total]

    return [filtered(Y, reads)[2], filtered(Z, reads)[2]]


def _matrix_of_mean() -> list[Any]:
    """A covariance that reads a state which reads the series."""

    def reads(y: Any, m: Any, p: Any, total: Any, *matrices: Any) -> list[Any]:
        new = step(y, m, p, total, *matrices)
        return [new[0], new[1] + 0.001 * m.sum(), new[2]]

    return [filtered(Y, reads)[2], filtered(Z, reads)[2]]


def _index() -> list[Any]:
    def reads(y: Any, t: Any, m: Any, p: Any, total: Any, *matrices: Any) -> list[Any]:
        m, p, total = step(y, m, p, total, *matrices)
        return [m, p / (1 + t), total]

    def of(series: Any) -> Any:
        zero = pt.constant(np.float64(0))
        return scan(
            reads,
            sequences=[series, pt.arange(series.shape[0])],
            outputs_info=[MATRICES[4], P, zero],
            non_sequences=MATRICES[:4],
        )[2]

    return [of(Y), of(Z)]


def _other_matrix() -> list[Any]:
    return [filtered(Y)[2], filtered(Z, matrices=(A, Q + 1, R, H))[2]]


def _other_step() -> list[Any]:
    def wider(y: Any, m: Any, p: Any, total: Any, *matrices: Any) -> list[Any]:
        m, p, total = step(y, m, p, total, *matrices)
        return [m, 1.5 * p, total]

    return [filtered(Y)[2], filtered(Z, wider)[2]]


def _condition() -> list[Any]:
    def stops(y: Any, *given: Any) -> Any:
        return step(y, *given), until(y > 1)

    return [filtered(Y, stops)[2], filtered(Z, stops)[2]]


def _untaken_branch() -> list[Any]:
    return [filtered(Y)[2][-1], ifelse(R > 0, filtered(Z)[2][-1], R)]


def _one_loop() -> list[Any]:
    return [filtered(Y)[2], Z]


def _numbers() -> list[Any]:
    def of(series: Any) -> Any:
        step_of = lambda y, x, v, r: [x + v * y, v / (1 + v) + r]  # noqa: E731
        return scan(step_of, sequences=[series], outputs_info=[R, R], non_sequences=[R])[0]

    return [of(Y), of(Z)]


def _shape_changes() -> list[Any]:
    """A state that nothing proves to keep its shape, of a loop that was no Scan."""

    def of(series: Any) -> Any:
        def step_of(carry: Any, y: Any, q: Any) -> Any:
            (x, p) = carry
            return (x + y * p.sum(), pt.concatenate([p, q])[-p.shape[0] - 1 :]), None

        return loop.scan(step_of, (R, H), series, H)[0][0]

    return [of(Y), of(Z)]


TWINS = {
    "a state that reads a sequence": _matrix_of_data,
    "a state that reads a state that reads data": _matrix_of_mean,
    "a state that reads the index": _index,
    "another matrix": _other_matrix,
    "another step": _other_step,
    "a condition": _condition,
    "a branch": _untaken_branch,
    "one loop": _one_loop,
    "numbers": _numbers,
    "a shape that may change": _shape_changes,
}
REASONS = {
    "a condition": "the loop may stop early",
    "a branch": "a branch of an IfElse decides whether it runs",
    "one loop": "no other loop that always runs computes the same",
    "another step": "no other loop that always runs computes the same",
    "another matrix": "no other loop that always runs computes the same",
    "numbers": "they are numbers, which take no longer to compute than to read",
    "a shape that may change": "its shape may change in a step",
}


@pytest.mark.parametrize("name", TWINS)
def test_twins(name: str) -> None:
    outputs = TWINS[name]()
    graph, remarks = split(*outputs)
    assert not [text for text in remarks if text.startswith("computes") and "once for" in text]
    assert [2] not in state_ranks(graph)
    if name in REASONS:
        assert any(REASONS[name] in text for text in remarks)
    else:
        assert not remarks


def test_twin_steps_that_depend_on_another_loop() -> None:
    first = filtered(Y)[2][-1]
    count = pt.cast(pt.clip(abs(first), 1, 3), "int64")
    other = filtered(Z, n_steps=count)[2][-1]
    graph, remarks = split(first, other)
    assert [2] not in state_ranks(graph)
    assert any("how many steps there are may depend on another loop" in text for text in remarks)


def test_twin_random_draws() -> None:
    rng = random_generator_type("rng")

    def of(series: Any) -> Any:
        def draws(y: Any, x: Any, p: Any, rng: Any) -> Any:
            _, jump = pt.random.normal(0, 1, rng=rng, return_next_rng=True)
            return [x + y * p.sum(), p @ p / 2 + jump]

        return scan(draws, sequences=[series], outputs_info=[R, P], non_sequences=[rng])[0]

    graph, remarks = split(of(Y), of(Z), inputs=[rng, *INPUTS])
    assert not remarks
    assert [2] not in state_ranks(graph)


@pytest.mark.tiered(every=2)
@pytest.mark.parametrize("passes", [NAME, "stop-at-fixed-point{tolerance=0}"])
def test_back_to_scans(passes: str) -> None:
    outputs = [filtered(Y)[2], filtered(Z)[2], filtered(Y)[1]]
    assert_same(INPUTS, outputs, RUNS, [VM], f"scan-to-loop,{passes}", "loop-to-scan")


def test_it_is_in_the_preset_loop_and_settles() -> None:
    assert [name for name, passes in PRESETS.items() if NAME in passes] == ["loop"]
    once = so.optimize((INPUTS, [filtered(Y)[2][-1], filtered(Z)[2][-1]]), "loop").graph
    assert len(state_ranks(once)) == 3
    assert not so.optimize(once, NAME).changed


_TERMS = [
    lambda p, q: p @ q,
    lambda p, q: pt.tanh(p) + q,
    lambda p, q: p.T - q @ p,
    lambda p, q: pt.outer(p.sum(axis=0), q[0]),
    lambda p, q: p / (1 + pt.sum(q**2)),
]
_USES = [
    lambda p: p.sum(),
    lambda p: pt.log1p(pt.sum(p**2)),
    lambda p: p[0, 0] * p.mean(),
    lambda p: pt.sum(pt.tanh(p) @ p.T),
]


@st.composite
def recursions(draw: Any) -> tuple[Any, list[int]]:
    """Return a step with up to three states that may read no data, and two lengths."""
    count = draw(st.integers(1, 3))
    updates = [
        [(draw(st.integers(0, count - 1)), draw(st.sampled_from(_TERMS))) for _ in range(2)]
        for _ in range(count)
    ]
    uses = [(draw(st.integers(0, count - 1)), draw(st.sampled_from(_USES))) for _ in range(2)]
    noisy = draw(st.sampled_from([None, None, *range(count)]))

    def fn(y: Any, x: Any, *rest: Any) -> list[Any]:
        states, q = rest[:count], rest[count]
        new = [0.4 * sum(term(states[i], q) for i, term in terms) for terms in updates]
        if noisy is not None:
            new[noisy] = new[noisy] + 0.1 * y
        return [0.5 * x + y * sum(use(states[i]) for i, use in uses), *new]

    return (fn, count), [draw(st.sampled_from([0, 1, 2, 5])) for _ in range(2)]


@pytest.mark.tiered
@settings(max_examples=examples(2, 20))
@given(drawn=recursions())
@pytest.mark.parametrize("mode", BACKENDS)
def test_generated_recursions(mode: Any, drawn: Any) -> None:
    (fn, count), lengths = drawn
    matrices = [P * (i + 1) for i in range(count)]
    outputs: list[Any] = []
    for series in (Y, Z):
        outputs += scan(fn, sequences=[series], outputs_info=[R, *matrices], non_sequences=[Q])
    data = values(*lengths)
    if min(lengths):
        outputs += pt.grad(outputs[0].sum() + (outputs[1 + count] ** 2).sum(), [P, Q, Y])
    assert_same(INPUTS, outputs, [data], [mode], f"scan-to-loop,{NAME}", tolerance=1e-7)
