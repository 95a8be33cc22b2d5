"""`loops-to-ops`: branches, masks and rolled rows, and sequences of unrelated lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.conditional.op import ifelse

from support.compiled_ways import NUMBA, VM
from support.evaluating import assert_same_outcomes, evaluate
from support.graph_building import arguments, graph_of, optimized, scan
from support.needless_loops import (
    LOOPS,
    RUN,
    assert_compiled_values_stay,
    assert_needs_no_loop,
    has_loop,
)
from support.tiers import deep

h, v, w = pt.dvectors("h", "v", "w")
m = pt.dmatrix("m")
x = pt.dscalar("x")
n = pt.lscalar("n")
b, i = pt.vector("b", dtype="bool"), pt.lvector("i")
c = pt.matrix("c", dtype="bool")

type Built = Callable[[], Any]


def rows(step: Callable[..., Any], *sequences: Any, state: Any = None, **more: Any) -> Any:
    found = scan(step, sequences=list(sequences), outputs_info=[state], **more)
    return found if state is None else found[-1]


def given_for(steps: int) -> dict[str, Any]:
    draw = np.random.default_rng(steps)
    return {
        "h": draw.normal(size=3),
        "v": draw.normal(size=steps),
        "w": draw.normal(size=4),
        "m": draw.normal(size=(steps, 3)),
        "x": 0.7,
        "n": steps,
        "b": draw.normal(size=steps) > 0,
        "c": draw.normal(size=(steps, 3)) > 0,
        "i": draw.integers(0, 4, size=steps),
    }


CASES: dict[str, Built] = {
    "1: rolled rows": lambda: rows(lambda a: pt.roll(a, 1) * a, m),
    "1: rows rolled by more than their length": lambda: rows(lambda a: pt.roll(a, -5), m),
    "1: entries of a mask, else 0": lambda: rows(lambda a, keep: pt.where(keep, a, 0), m, c),
    "1: rows of a mask, else 0": lambda: rows(lambda a, keep: pt.where(keep, a, 0), m, b),
    "2: a sum of rolled rows": lambda: rows(lambda a, s: s + pt.roll(a, 1), m, state=h),
    "2: a sum of rows of a mask": lambda: rows(
        lambda a, keep, s: s + pt.where(keep, a, 0), m, b, state=h
    ),
    "9: a branch of a row": lambda: rows(lambda a: ifelse(a[1] > 0, a * 2, a - 1), m),
    "9: a branch of numbers": lambda: rows(lambda a: ifelse(a > 0, a, -a), v),
    "9: a branch by a number that is no truth value": lambda: rows(
        lambda a: ifelse(a * 0 + 3, a, -a), v
    ),
    "9: a branch that a row does not decide": lambda: rows(
        lambda a, x: ifelse(x > 0, a * 2, a - 1), m, non_sequences=[x]
    ),
    "9: a row, or what no step changes": lambda: rows(
        lambda a, k, h: ifelse(k, a + h, a), m, b, non_sequences=[h]
    ),
    "9: a sum of branches": lambda: rows(
        lambda a, s: s + ifelse(a[1] > 0, a, a * 0), m, state=h
    ),
}  # fmt: skip


@pytest.mark.parametrize("pipeline", [RUN, LOOPS])
@pytest.mark.parametrize("name", CASES)
def test_cases(name: str, pipeline: str) -> None:
    graph = graph_of(CASES[name]())
    for steps in (0, 1, 5):
        assert_needs_no_loop(graph, pipeline, given_for(steps))


@pytest.mark.parametrize("mode", [VM, NUMBA], ids=["vm", "numba"])
@pytest.mark.parametrize("name", ["1: rolled rows", "9: a branch of a row", *deep(*CASES)])
def test_compiled(name: str, mode: Any) -> None:
    graph = graph_of(CASES[name]())
    for steps in (1, 5):
        assert_compiled_values_stay(graph, given_for(steps), mode)


# Of their gradients: how long a row is, compared to what is not a row, is not known.
LENGTHS_UNKNOWN = {"2: a sum of rolled rows": "Split", "9: a sum of branches": "IfElse"}


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:
    output = CASES[name]()
    by = [one for one in (m, v) if one in graph_of(output).inputs]
    graph = graph_of(*pytensor.grad((output**2).sum(), by))
    work, remarks = optimized(graph, "grad")
    op = LENGTHS_UNKNOWN.get(name)
    assert has_loop(work) is (op is not None), remarks
    assert op is None or any(r.endswith(f"what one does by {op}") for r in remarks)
    for steps in (1, 5):
        data = arguments(graph, **given_for(steps))
        old, new = (evaluate(g.inputs, g.outputs, data) for g in (graph, work))
        assert_same_outcomes(old, new, rtol=1e-9)


STAYS: dict[str, tuple[Built, str]] = {
    "a branch that takes long": (
        lambda: rows(lambda a: ifelse(a[1] > 0, pt.exp(a), a), m),
        "IfElse",
    ),
    "a branch that may raise": (
        lambda: rows(lambda k: ifelse(pt.neq(k, 0), 7 // k, k), i),
        "IfElse",
    ),
    "a branch that reads an entry": (
        lambda: rows(lambda a: ifelse(pt.gt(a.shape[0], 7), a[7], a[0]), m),
        "IfElse",
    ),
    "a branch of other lengths": (
        lambda: rows(lambda a, h: ifelse(a[1] > 0, a * 2, h * 2), m, non_sequences=[h]),
        "IfElse",
    ),
    "entries that a mask picks": (
        lambda: rows(lambda a, keep: a[keep].sum(), m, c),
        "AdvancedSubtensor",
    ),
    "entries that a mask picks, of a sum": (
        lambda: rows(lambda a, keep, s: s + a[keep].sum(), m, c, state=x),
        "AdvancedSubtensor",
    ),
}


@pytest.mark.parametrize("pipeline", [RUN, LOOPS])
@pytest.mark.parametrize("name", STAYS)
def test_what_stays_says_why(name: str, pipeline: str) -> None:
    build, op = STAYS[name]
    graph = graph_of(build())
    work, remarks = optimized(graph, pipeline)
    assert has_loop(work)
    told = [r for r in remarks if "no Op does for all steps at once what one does by" in r]
    assert told
    assert all(r.endswith(op) for r in told)
    for steps in (1, 4):
        data = arguments(graph, **given_for(steps))
        old, new = (evaluate(g.inputs, g.outputs, data) for g in (graph, work))
        assert_same_outcomes(old, new)


def test_a_state_of_its_own_needs_the_loop_without_a_remark() -> None:
    graph = graph_of(scan(lambda s: pt.tanh(s), outputs_info=[h], n_steps=n))
    work, remarks = optimized(graph, RUN)
    assert has_loop(work)
    assert not any("Op" in remark for remark in remarks)


@pytest.mark.parametrize("lengths", [(3, 3), (2, 5), (5, 2)])
def test_gradients_of_entries_at_places_of_sequences_of_unrelated_lengths(
    lengths: tuple[int, int],
) -> None:
    total = scan(
        lambda k, a, s, w: s + w[k] * a,
        sequences=[i, v],
        outputs_info=[pt.zeros(())],
        non_sequences=[w],
    )[-1]
    graph = graph_of(total, *pytensor.grad(total**2, [w, v]))
    work, remarks = optimized(graph, "grad")
    assert not has_loop(work), remarks
    draw = np.random.default_rng(0)
    data = arguments(
        graph,
        i=draw.integers(0, 4, size=lengths[0]),
        v=draw.normal(size=lengths[1]),
        w=draw.normal(size=4),
    )
    old, new = (evaluate(g.inputs, g.outputs, data) for g in (graph, work))
    assert_same_outcomes(old, new)
