"""stop-at-fixed-point: values within the tolerance, exact at none, and what must not stop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until
from pytensor.tensor.random.type import random_generator_type

import scanopt_cli as so
from scanopt_cli import loop
from scanopt_cli.errors import PassError
from scanopt_cli.pipeline.grammar import PRESETS
from support.compiled_ways import BACKENDS, NUMBA, VM, compiled, optimized_by
from support.filters import (
    MATRICES,
    YS,
    A,
    H,
    P,
    Q,
    R,
    Y,
    assert_same,
    filtered,
    state_ranks,
    step,
    told,
    values,
)
from support.graph_building import scan
from support.tiers import examples

NAME = "stop-at-fixed-point"
PASSES = f"scan-to-loop,trace-to-last,remove-unused,{NAME},remove-unused"
INPUTS = [Y, *MATRICES]
LENGTHS = (0, 1, 2, 7, 120)
WRT = [A, Q, R, P, Y]


def stopped(*outputs: Variable, inputs: Any = (Y, *MATRICES)) -> tuple[Any, list[str]]:
    result = so.optimize((list(inputs), list(outputs)), PASSES)
    return result.graph, told([r for run in result.passes for r in run.remarks], NAME)


@pytest.mark.parametrize("mode", [VM, NUMBA], ids=["VM", "NUMBA"])
def test_case_1_to_3(mode: Any) -> None:
    """The means, covariances and log-densities of every step."""
    outputs = filtered(Y)
    graph, remarks = stopped(*outputs)
    assert state_ranks(graph) == [[1, 0], [2]]
    assert remarks == ["stops `P`, which read no data, once no entry changes by more than 1e-12"]
    assert_same(INPUTS, outputs, [values(n) for n in LENGTHS], [mode], PASSES)


def test_it_runs_no_more_steps_than_it_needs() -> None:
    graph, _ = stopped(filtered(Y)[2][-1])
    own = next(n for n in graph.fgraph.toposort() if n.op.__class__.__name__ == "TracedLoop")
    assert own.op.is_while
    count = compiled(graph.inputs, [own.outputs[-1]], VM)
    assert [int(count(*values(n))[0]) for n in (0, 1, 3)] == [0, 1, 3]
    n_done = int(count(*values(2000))[0])
    assert 5 < n_done < 100
    # Row s is the first that is near enough to the one before.
    rows = compiled(INPUTS, [filtered(Y)[1]], VM)(*values(2000))[0]
    rows = np.concatenate([[np.eye(3)], rows])
    near = abs(np.diff(rows, axis=0)) <= 1e-12 * np.maximum(1, abs(rows[1:]))
    assert near.all(axis=(1, 2)).argmax() + 1 == n_done


def test_without_tolerance_values_are_the_same() -> None:
    passes = f"scan-to-loop,{NAME}{{tolerance=0}}"
    expected = compiled(INPUTS, filtered(Y), VM)
    graph = optimized_by(INPUTS, filtered(Y), passes)
    function = compiled(graph.inputs, graph.outputs, VM)
    for n in LENGTHS:
        for new, old in zip(function(*values(n)), expected(*values(n)), strict=True):
            np.testing.assert_allclose(new, old, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize(
    ("start", "update", "rows"),
    [
        # NaN never converges.
        ([np.nan, 1.0], lambda x, w: x * w, None),
        # An infinite change is no larger than an infinite bound.
        ([1e200, 1e200], lambda x, w: x * x + w, None),
        # The tolerance is relative above 1, and absolute below.
        ([1e9, 1.0], lambda x, w: x + 1e-3 * w, 1),
        ([1e-9, 0.0], lambda x, w: x + 1e-3 * w, None),
        ([1e-9, 0.0], lambda x, w: x + 1e-9 * w, 1),
    ],
)
def test_what_counts_as_converged(start: Any, update: Any, rows: int | None) -> None:
    def fn(y: Any, total: Any, x: Any, w: Any) -> list[Any]:
        return [total + y * x.sum(), update(x, w)]

    zero = pt.constant(np.float64(0))
    total, _ = scan(fn, sequences=[Y], outputs_info=[zero, H], non_sequences=[R])
    graph = optimized_by([Y, H, R], [total], f"scan-to-loop,{NAME}{{tolerance=1e-8}}")
    loops = [n for n in graph.fgraph.toposort() if getattr(n.op, "is_while", False)]
    if not loops:
        pytest.fail("nothing was split")
    count = compiled(graph.inputs, [loops[0].outputs[-1]], VM)
    first = np.array(start)
    if rows == 1 and first[0] > 1:
        first[1] = 1e9
    assert int(count(np.ones(6), first, np.array(1.0))[0]) == (6 if rows is None else rows)


@pytest.mark.tiered(every=2)
@pytest.mark.parametrize("mode", [VM, NUMBA], ids=["VM", "NUMBA"])
def test_derivatives_taken_before(mode: Any) -> None:
    cost = filtered(Y)[2][-1]
    first = pt.grad(cost, WRT)
    second = pt.grad(first[0].sum() + first[2] + first[4].sum(), [A, Y])
    data = [values(n) for n in (1, 2, 60)]
    assert_same(INPUTS, [cost, *first, *second], data, [mode], PASSES, tolerance=1e-7)


@pytest.mark.deep
@pytest.mark.parametrize("mode", [VM, NUMBA], ids=["VM", "NUMBA"])
def test_derivatives_taken_after(mode: Any) -> None:
    graph, _ = stopped(filtered(Y)[2][-1])
    named = {v.name: v for v in graph.inputs}
    wrt = [named[v.name] for v in WRT]
    (cost,) = graph.outputs
    first = pt.grad(cost, wrt)
    second = pt.grad(first[0].sum() + first[2] + first[4].sum(), [wrt[0], wrt[4]])
    got = compiled(graph.inputs, [cost, *first, *second], mode)
    slopes = pt.grad(filtered(Y)[2][-1], WRT)
    twice = pt.grad(slopes[0].sum() + slopes[2] + slopes[4].sum(), [A, Y])
    wanted = compiled(INPUTS, [filtered(Y)[2][-1], *slopes, *twice], VM)
    for n in (1, 2, 60):
        for new, old in zip(got(*values(n)), wanted(*values(n)), strict=True):
            np.testing.assert_allclose(new, old, rtol=1e-7, atol=1e-7)


def test_a_batch_of_series() -> None:
    batch = [YS, *MATRICES]
    (total,) = vectorize_graph([filtered(Y)[2][-1]], {Y: YS})
    graph = optimized_by(batch, [total], PASSES)
    assert state_ranks(graph) == [[2], [2, 1]]
    assert_same(batch, [total], [values((3, n)) for n in (1, 2, 60)], [VM, NUMBA], PASSES)


def test_numbers_and_two_recursions() -> None:
    def fn(y: Any, x: Any, v: Any, p: Any, q: Any) -> list[Any]:
        return [x + v * y + p.sum(), v / (1 + v) + 0.1, pt.tanh(p @ q)]

    outputs = scan(fn, sequences=[Y], outputs_info=[R, R, P], non_sequences=[Q])
    graph, remarks = stopped(*outputs)
    assert len(remarks) == 2
    assert state_ranks(graph) == [[0], [0], [2]]
    assert_same(INPUTS, outputs, [values(n) for n in LENGTHS], [VM, NUMBA], PASSES)


@pytest.mark.parametrize("mode", [VM, NUMBA], ids=["VM", "NUMBA"])
def test_a_matrix_whose_entries_are_states(mode: Any) -> None:
    """As ``unroll-small`` leaves it where lengths are known: they stop together."""
    inputs = [Y, *(pt.tensor(v.name, dtype=v.dtype, shape=(3,) * v.ndim) for v in MATRICES)]
    named = {v.name: v for v in inputs}
    zero = pt.constant(np.float64(0))
    outputs = scan(
        step,
        sequences=[Y],
        outputs_info=[named["m"], named["P"], zero],
        non_sequences=[named[name] for name in "AQRH"],
    )
    once = optimized_by(inputs, [outputs[2][-1]], "loop")
    graph = optimized_by(once.inputs, once.outputs, NAME)
    assert len(state_ranks(graph)) == 2
    assert_same(inputs, [outputs[2][-1]], [values(n) for n in (1, 2, 60)], [mode], "loop", NAME)


def test_nothing_else_in_the_loop() -> None:
    outputs = [scan(lambda p, q: pt.tanh(p @ q), outputs_info=[P], non_sequences=[Q], n_steps=9)]
    assert_same(INPUTS, outputs, [values(1)], [VM, NUMBA], PASSES)


def _with(change: Any) -> Any:
    def fn(y: Any, m: Any, p: Any, total: Any, *matrices: Any) -> list[Any]:
        new = step(y, m, p, total, *matrices)
        return [new[0], new[1] + change(y, m), new[2]]

    return filtered(Y, fn)[2]


def _index() -> Any:
    def fn(carry: Any, t: Any, q: Any) -> Any:
        return (carry[0] + carry[1].sum(), carry[1] @ q / (t + 1)), None

    return loop.scan(fn, (R, P), pt.arange(Y.shape[0]), Q)[0][0]


def _condition() -> Any:
    return filtered(Y, lambda y, *given: (step(y, *given), until(y > 1)))[2]


def _integers() -> Any:
    def fn(y: Any, x: Any, n: Any) -> list[Any]:
        return [x + y * n[0], n // 2]

    return scan(fn, sequences=[Y], outputs_info=[R, pt.constant(np.array([9, 4]))])[0]


TWINS = {
    "a sequence": lambda: _with(lambda y, _: 0.01 * y**2),
    "a state that reads data": lambda: _with(lambda _, m: 0.01 * m.sum()),
    "the index": _index,
    "a condition": _condition,
    "integers": _integers,
}
REASONS = {"a condition": "the loop may stop early", "integers": "not all of them are floats"}


@pytest.mark.parametrize("name", TWINS)
def test_twins(name: str) -> None:
    output = TWINS[name]()
    once = so.optimize((INPUTS, [output]), "scan-to-loop,trace-to-last,remove-unused").graph
    result = so.optimize(once, NAME)
    remarks = told([r for run in result.passes for r in run.remarks], NAME)
    assert not result.changed
    assert len(remarks) == (name in REASONS)
    assert all(REASONS[name] in text for text in remarks)


def test_twin_random_draws() -> None:
    rng = random_generator_type("rng")

    def draws(y: Any, x: Any, p: Any, rng: Any) -> Any:
        _, jump = pt.random.normal(0, 1, rng=rng, return_next_rng=True)
        return [x + y * p.sum(), p @ p / 2 + jump]

    output = scan(draws, sequences=[Y], outputs_info=[R, P], non_sequences=[rng])[0]
    _, remarks = stopped(output, inputs=[rng, *INPUTS])
    assert not remarks


def test_its_option_and_presets() -> None:
    assert not [name for name, passes in PRESETS.items() if NAME in passes]
    for wrong in ("-1", "nan", "inf"):
        with pytest.raises(PassError):
            so.optimize((INPUTS, filtered(Y)), f"{NAME}{{tolerance={wrong}}}")


_TERMS = [
    lambda p, q: p @ q,
    lambda p, q: pt.tanh(p) + q,
    lambda p, q: p.T - q @ p,
    lambda p, q: p / (1 + pt.sum(q**2)),
]


@pytest.mark.tiered
@settings(max_examples=examples(2, 20))
@given(
    terms=st.lists(st.tuples(st.integers(0, 1), st.sampled_from(_TERMS)), min_size=2, max_size=4),
    steps=st.sampled_from([0, 1, 2, 40]),
    is_traced=st.booleans(),
)
@pytest.mark.parametrize("mode", BACKENDS)
def test_generated_recursions(mode: Any, terms: Any, steps: int, is_traced: bool) -> None:
    """Contractions of two matrices that read each other, or only themselves."""

    def fn(y: Any, x: Any, p: Any, r: Any, q: Any) -> list[Any]:
        states, half = (p, r), len(terms) // 2
        new = [
            0.2 * sum(term(states[i], q) for i, term in part)
            for part in (terms[:half], terms[half:])
        ]
        return [0.5 * x + y * pt.tanh(p).sum() + r[0, 0], *new]

    results = scan(fn, sequences=[Y], outputs_info=[R, P, 2 * P], non_sequences=[Q])
    outputs = list(results) if is_traced else [results[0]]
    if steps:
        outputs += pt.grad(results[0].sum(), [P, Q, Y])
    assert_same(INPUTS, outputs, [values(steps)], [mode], PASSES, tolerance=1e-7)
