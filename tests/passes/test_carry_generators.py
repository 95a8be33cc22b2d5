"""`carry-generators`: what is drawn then is what NumPy draws, call by call."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode, get_mode
from pytensor.scan.utils import until

import scanopt_cli as so
from scanopt_cli.ir.graph import Graph
from scanopt_cli.pipeline.grammar import PRESETS
from scanopt_cli.remarks import Code, RemarkKind, Why
from scanopt_cli.rules.graph_checking import check
from support.compiled_ways import compiled
from support.graph_building import scan
from support.tiers import deep

normal = partial(pt.random.normal, return_next_rng=True)
uniform = partial(pt.random.uniform, return_next_rng=True)

RNG = pt.random.rng("rng")
MEANS, N = pt.dvector("means"), pt.lscalar("n")
VALUES = {"means": np.array([0.0, 10.0, 20.0, 30.0]), "n": np.array(4)}
MODES = [Mode("vm", "fast_run"), *deep(get_mode("NUMBA"))]
type Pair = tuple[list[Any], list[Any]]
type Reference = Callable[[np.random.Generator, int], Any]


def fixed() -> Pair:
    """Case 1: one draw."""
    return [RNG, N], [scan(lambda rng: normal(rng=rng)[1], non_sequences=[RNG], n_steps=N)]


def fixed_reference(rng: np.random.Generator, n: int) -> Any:
    return [rng.normal() for _ in range(n)]


def moving() -> Pair:
    """Case 1: parameters of a sequence, and rows of three."""
    draws = scan(
        lambda mean, rng: normal(mean, 0.5, size=(3,), rng=rng)[1],
        sequences=[MEANS],
        non_sequences=[RNG],
        n_steps=N,
    )
    return [RNG, MEANS, N], [draws]


def moving_reference(rng: np.random.Generator, n: int) -> Any:
    return [rng.normal(mean, 0.5, size=3) for mean in VALUES["means"][:n]]


def twice(*, carried: bool) -> Pair:
    """Case 1 or 2: two draws of a step, the second with the first as its parameter."""

    def step(rng: Any) -> Any:
        after, a = normal(rng=rng)
        _, b = uniform(a, a + 2, rng=rng)
        return (after, a, b) if carried else (a, b)

    if not carried:
        return [RNG, N], [*scan(step, non_sequences=[RNG], n_steps=N)]
    after, a, b = scan(step, outputs_info=[RNG, None, None], n_steps=N)
    return [RNG, N], [a, b, after]


def twice_reference(rng: np.random.Generator, n: int) -> Any:
    pairs = []
    for _ in range(n):
        a = rng.normal()
        pairs.append((a, rng.uniform(a, a + 2)))
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def handed_on() -> Pair:
    """Case 2: a step that hands on what it was given."""
    _, draws = scan(lambda rng: (rng, normal(rng=rng)[1]), outputs_info=[RNG, None], n_steps=N)
    return [RNG, N], [draws]


def forked() -> Pair:
    """Case 1: the next generator of one draw is read, too."""

    def step(rng: Any) -> Any:
        after, a = normal(rng=rng)
        _, b = normal(10, rng=after)
        _, c = normal(20, rng=rng)
        return a, b, c

    return [RNG, N], [*scan(step, non_sequences=[RNG], n_steps=N)]


def forked_reference(rng: np.random.Generator, n: int) -> Any:
    rows = [[rng.normal(mean) for mean in (0, 10, 20)] for _ in range(n)]
    return [[row[i] for row in rows] for i in range(3)]


def with_state() -> Pair:
    """Case 1: a state that adds the draws up, and a stop condition."""

    def step(total: Any, rng: Any) -> Any:
        total = total + uniform(rng=rng)[1]
        return total, until(total > 100)

    totals = scan(step, outputs_info=[np.float64(0)], non_sequences=[RNG], n_steps=N + 1)
    return [RNG, N], [totals]


def with_state_reference(rng: np.random.Generator, n: int) -> Any:
    return np.cumsum([rng.uniform() for _ in range(n + 1)])


def nested() -> Pair:
    """Case 1 twice: a loop in a loop, and a draw of the outer one behind it."""

    def step(rng: Any) -> Any:
        return scan(lambda rng: normal(rng=rng)[1], non_sequences=[rng], n_steps=3)

    return [RNG, N], [scan(step, non_sequences=[RNG], n_steps=N)]


def nested_reference(rng: np.random.Generator, n: int) -> Any:
    return [[rng.normal() for _ in range(3)] for _ in range(n)]


CASES: dict[str, tuple[Callable[[], Pair], Reference]] = {
    "fixed": (fixed, fixed_reference),
    "moving": (moving, moving_reference),
    "twice, fixed": (partial(twice, carried=False), twice_reference),
    "twice, carried": (partial(twice, carried=True), twice_reference),
    "handed on": (handed_on, fixed_reference),
    "forked": (forked, forked_reference),
    "with a state": (with_state, with_state_reference),
    "nested": (nested, nested_reference),
}


FORMS = ["", "scan-to-loop,"]
"""What runs before the pass: it takes Scans, and TracedLoops."""


def mended(pair: Pair, form: str = "") -> Graph:
    return so.optimize(pair, f"{form}carry-generators").graph


def evaluated(graph: Graph, steps: int, mode: Mode, rng: np.random.Generator) -> list[Any]:
    given = {**VALUES, "n": np.array(steps)}
    arguments = [rng if v is RNG else given[v.name] for v in graph.inputs]
    return compiled(graph.inputs, graph.outputs, mode)(*arguments)


def sorted_draws(rows: Any) -> Any:
    """Return the draws of each step without their means, in order."""
    return np.sort(np.array(rows) - [[0], [10], [20]], axis=0)


@pytest.mark.parametrize("steps", [4, 1, 0])
@pytest.mark.parametrize("mode", MODES, ids=["vm", "numba"])
@pytest.mark.parametrize("form", FORMS, ids=["Scan", "TracedLoop"])
@pytest.mark.parametrize("name", CASES)
def test_draws_are_those_of_numpy_in_turn(name: str, form: str, mode: Mode, steps: int) -> None:
    build, reference = CASES[name]
    rng = np.random.default_rng(7)
    values = evaluated(mended(build(), form), steps, mode, deepcopy(rng))
    expected: Any = reference(rng, steps)
    if not isinstance(expected, tuple) and len(values) == 1:
        expected = [expected]
    if name == "forked":  # two draws may follow the first in either order
        values, expected = ([sorted_draws(rows)] for rows in (values, expected))
    for value, wanted in zip(values, expected, strict=False):
        np.testing.assert_allclose(np.asarray(value).ravel(), np.ravel(wanted), 1e-12, 1e-12)
    if len(values) > len(expected):  # the generator after the last step
        assert values[-1].normal() == rng.normal()


@pytest.mark.parametrize("form", FORMS, ids=["Scan", "TracedLoop"])
@pytest.mark.parametrize("name", CASES)
def test_the_draws_were_equal_or_shared_bits_before(name: str, form: str) -> None:
    """So the finding is true, its fix is unsafe and mends it, and a second run changes nothing."""
    build, _ = CASES[name]
    pair = so.optimize(build(), f"{form}remove-unused").graph
    before = check(pair, select=["R001", "R002"]).findings
    assert before
    assert all(f.fix is not None and not f.fix.is_safe for f in before)
    after = mended(pair)
    assert not check(after, select=["R001", "R002"]).findings
    again = so.optimize(after, "carry-generators")
    assert not again.changed


def read_outside() -> Pair:
    inputs, outputs = fixed()
    return inputs, [*outputs, normal(rng=RNG)[1]]


def two_loops() -> Pair:
    inputs, outputs = fixed()
    return inputs, [*outputs, *forked()[1]]


def replaced() -> Pair:
    """Two generators change places."""
    other = pt.random.rng("other")

    def step(one: Any, two: Any) -> Any:
        _, a = normal(rng=one)
        _, b = uniform(rng=one)
        after, c = normal(rng=two)
        return after, one, a + b + c

    _, _, draws = scan(step, outputs_info=[RNG, other, None], n_steps=4)
    return [RNG, other], [draws]


def handed_to_another() -> Pair:
    """Two states start with what one generator returns, of which one is not its own."""
    other = pt.random.rng("other")

    def step(one: Any, two: Any) -> Any:
        after, a = normal(rng=one)
        _, b = uniform(rng=one)
        _, c = normal(rng=two)
        return after, after, a + b + c

    _, _, draws = scan(step, outputs_info=[RNG, other, None], n_steps=4)
    return [RNG, other], [draws]


def from_elsewhere() -> Pair:
    """The next step gets a generator that another one gives."""
    other = pt.random.rng("other")

    def step(one: Any, two: Any) -> Any:
        _, a = normal(rng=one)
        _, b = uniform(rng=one)
        after, c = normal(rng=two)
        return after, a + b + c

    _, draws = scan(step, outputs_info=[RNG, None], non_sequences=[other], n_steps=4)
    return [RNG, other], [draws]


def read_by_a_loop() -> Pair:
    """A loop in the step draws from it, and does not carry it, since the step does, too."""

    def step(rng: Any) -> Any:
        rows = scan(lambda rng: normal(rng=rng)[1], non_sequences=[rng], n_steps=3)
        return rows.sum() + uniform(rng=rng)[1]

    return [RNG], [scan(step, non_sequences=[RNG], n_steps=4)]


TWINS: dict[str, tuple[Callable[[], Pair], set[Why]]] = {
    "a draw outside": (read_outside, {Why.GENERATOR_SHARED}),
    "two loops": (two_loops, {Why.GENERATOR_SHARED}),
    "handed to another state": (handed_to_another, {Why.GENERATOR_SHARED}),
    "from elsewhere": (from_elsewhere, {Why.GENERATOR_REPLACED, Why.GENERATOR_SHARED}),
    "read by a loop": (read_by_a_loop, {Why.GENERATOR_READER, Why.GENERATOR_SHARED}),
    "replaced by another": (replaced, {Why.GENERATOR_SHARED}),
}


@pytest.mark.parametrize("form", FORMS, ids=["Scan", "TracedLoop"])
@pytest.mark.parametrize("name", TWINS)
def test_twin_it_does_not_fire(name: str, form: str) -> None:
    build, why = TWINS[name]
    graph = so.optimize(build(), f"{form}remove-unused").graph
    result = so.optimize(graph, "carry-generators")
    assert not result.changed
    remarks = [remark for run in result.passes for remark in run.remarks]
    assert {remark.code for remark in remarks} == {Code.GENERATOR_KEPT}
    assert {remark.kind for remark in remarks} == {RemarkKind.MISSED}
    assert {remark.reason.code for remark in remarks if remark.reason is not None} == why
    found = check(graph, select=["R001", "R002"]).findings
    assert found
    assert all(finding.fix is None for finding in found)


def carried() -> Pair:
    def step(rng: Any) -> Any:
        after, a = normal(rng=rng)
        last, b = normal(rng=after)
        return last, a, b

    after, a, b = scan(step, outputs_info=[RNG, None, None], n_steps=N)
    return [RNG, N], [a, b, after]


def test_twin_what_is_carried_stays() -> None:
    result = so.optimize(carried(), "carry-generators")
    assert not result.changed
    assert not [remark for run in result.passes for remark in run.remarks]
    assert not check(carried(), select=["R"]).findings


def test_no_preset_changes_what_is_drawn() -> None:
    assert not [name for name, passes in PRESETS.items() if "carry-generators" in passes]
