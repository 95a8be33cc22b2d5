"""C004, N001 and N002: what they find is wrong or NaN once compiled, and is right once fixed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest

import scanopt_cli as so
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.rules.graph_checking import check
from support.compiled_ways import NUMBA, VM, compiled
from support.graph_building import scan
from support.seeded_numbers import A, V, X, log_summed, mixed, normed, unit_vector
from support.tiers import deep

MODES = [VM, *deep(NUMBA)]
N = pt.lscalar("n")
C8 = pt.bscalar("c8")
BYTES = pt.bvector("bytes")
type Graph = tuple[list[Any], list[Any]]


def found(graph: Any, code: str) -> list[Any]:
    return [f for f in check(graph, select=[code]).findings if f.code == code]


def value(inputs: Any, outputs: Any, arguments: Any, mode: Any = VM) -> list[Any]:
    function = compiled(inputs, outputs, mode)
    with np.errstate(all="ignore"):
        return list(function(*arguments))


def mended(graph: Graph, code: str) -> Graph:
    (finding,) = found(graph, code)
    assert not finding.is_mended_safely
    result = so.optimize(graph, finding.fix.passes).graph
    assert not found(result, code)
    return list(result.inputs), list(result.outputs)


# C004: small integers.


def counter(step: Callable[..., Any], *, start: Any = None, steps: Any = N, **more: Any) -> Graph:
    start = np.int8(0) if start is None else start
    ys = scan(step, outputs_info=[start], n_steps=steps, **more)
    return [N, C8, BYTES, V], [ys[-1] * V]


def once(c: Any) -> Any:
    return c + np.int8(1)


FOUND = {
    "unknown steps": counter(once),
    "steps that are too many": counter(once, steps=128),
    "a large start": counter(once, start=np.int8(100), steps=28),
    "down": counter(lambda c: c - np.int8(2), steps=65),
    "unsigned, down": counter(lambda c: c - np.uint8(1), start=np.uint8(3), steps=4),
    "16 bits": counter(lambda c: c + np.int16(1000), start=np.int16(0), steps=33),
    "a product": counter(lambda c: c * np.int8(2), start=np.int8(1), steps=7),
    "where a switch lets it": counter(lambda c: pt.switch(pt.gt(V, 0), c + np.int8(1), c)),
    "through a wider type": counter(lambda c: (c + np.int64(1)).astype("int8")),
    "what is counted is not known": counter(lambda b, c: c + b, sequences=[BYTES]),
    "a start that is not known": counter(once, start=C8),
}
CLEAN = {
    "steps that fit": counter(once, steps=127),
    "a start that leaves room": counter(once, start=np.int8(-100), steps=227),
    "a product that fits": counter(lambda c: c * np.int8(2), start=np.int8(1), steps=6),
    "bounded by a minimum": counter(lambda c: pt.minimum(c + np.int8(1), np.int8(9))),
    "a remainder": counter(lambda c: (c + np.int8(1)) % np.int8(7)),
    "nothing is added": counter(lambda c: c + np.int8(0)),
    "a product of zero": counter(lambda c: c * np.int8(2), start=np.int8(0)),
    "a float that is cut off": counter(lambda c: (c + np.float64(0.5)).astype("int8")),
    "64 bits": counter(lambda c: c + 1, start=np.int64(0)),
    "booleans are counted in few steps": counter(
        lambda b, c: c + pt.gt(b, 0), sequences=[BYTES[:100]], steps=100
    ),
    "another value": counter(lambda c: pt.switch(c < 100, c + np.int8(1), np.int8(0))),
}


@pytest.mark.parametrize("name", FOUND)
def test_integers_that_may_wrap_are_found(name: str) -> None:
    (finding,) = found(FOUND[name], "C004")
    assert "wraps" in finding.text


@pytest.mark.parametrize("name", CLEAN)
def test_twin_integers_that_do_not(name: str) -> None:
    assert not found(CLEAN[name], "C004")


@pytest.mark.parametrize("mode", MODES, ids=["vm", "numba"])
@pytest.mark.parametrize(("steps", "wrapped"), [(127, 63.5), (128, -64.0), (300, 22.0)])
def test_counters_wrap_and_count_once_fixed(steps: int, wrapped: float, mode: Any) -> None:
    graph = FOUND["unknown steps"]
    arguments = [steps, 0, np.zeros(2, "int8"), 0.5]
    assert value(*graph, arguments, mode) == [wrapped]
    assert value(*mended(graph, "C004"), arguments, mode) == [steps * 0.5]


def test_nothing_mends_a_counter_whose_readers_are_as_small() -> None:
    ys = scan(once, outputs_info=[np.int8(0)], n_steps=N)
    (finding,) = found(([N], [ys]), "C004")
    assert finding.fix is None


# C004: lengths.

FIVE = pt.tensor("five", shape=(5,))
THREE = pt.tensor("three", shape=(3,))


def over(*sequences: Any, steps: Any = None) -> Graph:
    ys = scan(
        lambda *args: args[-1] + sum(args[:-1]),
        sequences=list(sequences),
        outputs_info=[V],
        n_steps=steps,
    )
    return [X, FIVE, THREE, V, N], [ys]


def test_rows_that_no_step_reads_are_found() -> None:
    (finding,) = found(over(FIVE, THREE), "C004")
    assert finding.slots == ("five",)
    assert "never reads the last rows of `five`: `three` is shorter" in finding.text
    arguments = [np.ones(1), np.ones(5), np.ones(3), 0.0, 0]
    assert value(*over(FIVE, THREE), arguments)[0].shape == (3,)
    assert found(over(X[1:], X), "C004")
    assert found(over(X[:-1], X), "C004")


@pytest.mark.parametrize(
    "graph",
    [
        over(FIVE, FIVE * 2),
        over(X[1:], X[:-1]),
        over(X[1:], X[1:] * 2),
        over(FIVE, THREE, steps=3),
        over(X, FIVE),
        over({"input": X, "taps": [-1, 0]}),
        over(X, steps=N),
    ],
)
def test_twin_lengths_that_are_equal_or_not_known_or_asked_for(graph: Graph) -> None:
    assert not found(graph, "C004")


def test_lengths_of_many_sequences_are_not_compared_in_pairs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There are 10,000 pairs of 100 sequences."""
    asked = []
    provably_le = Lengths.provably_le

    def counted(self: Lengths, left: Any, right: Any) -> bool:
        asked.append((left, right))
        return provably_le(self, left, right)

    monkeypatch.setattr(Lengths, "provably_le", counted)
    for count in (30, 100):
        vectors = [pt.dvector(f"s{i}") for i in range(count)]
        _, outputs = over(*vectors, vectors[0][1:])
        asked.clear()
        findings = found(([*vectors, V], outputs), "C004")
        assert len(asked) < 1_500
        if count == 30:  # of a hundred, not all minima are opened
            assert "never reads the last rows of `s0#1`: `s0#2`" in findings[0].text


def test_too_few_rows_are_found_and_raise() -> None:
    graph = over(THREE, steps=5)
    (finding,) = found(graph, "C004")
    assert "3 rows for 5 steps" in finding.text
    with pytest.raises(ValueError, match="required number of steps"):
        value(*graph, [np.ones(1), np.ones(5), np.ones(3), 0.0, 0])


# N001.

ROWS = np.array([[1.0, 0.0], [0.0, 0.0], [0.6, 0.8]])


def stepping(step: Callable[[Any], Any]) -> Graph:
    ys = scan(lambda row, s: s * 0.5 + step(row).sum(), sequences=[A], outputs_info=[V])
    return [A, V, X], [ys[-1]]


def far_apart(row: Any) -> Any:
    return pt.switch(row[0] > row[1], pt.sqrt(row[0] - row[1]) * row, 0.0)


UNSELECTED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "sqrt": (partial(unit_vector, guarded=False), "square root"),
    "sqrt of a difference": (far_apart, "square root"),
    "log": (lambda r: pt.switch(r[0] > 0, pt.log(r[0]) * r, 0.0), "log"),
    "log, the other branch": (lambda r: pt.switch(r[0] <= 0, 0.0, pt.log(r[0]) * r), "log"),
    "log, also": (
        lambda r: pt.switch(pt.and_(r[0] > 0, r[1] > -9), pt.log(r[0]) * r, 0.0),
        "log",
    ),
    "division": (lambda r: pt.switch(pt.neq(r[0], 0), pt.exp(1 / r[0]) * r, 0.0), "division"),
    "power": (lambda r: pt.switch(r[0] > 0.01, r[0] ** 0.3 * r, 0.0), "power"),
    "log1p": (lambda r: pt.switch(r[0] - 1 > -1, pt.log1p(r[0] - 1) * r, 0.0), "log1p"),
}
SELECTED: dict[str, Callable[[Any], Any]] = {
    "safe already": partial(unit_vector, guarded=True),
    "by entry, which PyTensor repairs": lambda r: pt.switch(r > 0, pt.log(r), 0.0),
    "a condition on another value": lambda r: pt.switch(r[1] > 0, pt.sqrt(r[0]) * r, 0.0),
    "the number is selected": lambda r: pt.switch(r[0] >= 0, pt.log(r[0]) * r, 0.0),
    "no such number": lambda r: pt.switch((r**2).sum() + 1 > 0.5, pt.log((r**2).sum() + 1) * r, r),
    "a whole power": lambda r: pt.switch(r[0] > 0, r[0] ** 3 * r, 0.0),
    "no switch": lambda r: pt.sqrt((r**2).sum()) * r,
    "a constant of the loop": lambda r: pt.switch(V > 0, pt.sqrt(V) * r, 0.0),
    "no derivative": lambda r: pt.switch(r[0] > 0, pt.floor(pt.log(r[0])) * r, 0.0),
}


def of_gradient(graph: Graph) -> Graph:
    inputs, (output,) = graph
    return inputs, [output, pt.grad(output, inputs[0])]


@pytest.mark.tiered(every=2)
@pytest.mark.parametrize("mode", MODES, ids=["vm", "numba"])
@pytest.mark.parametrize("name", UNSELECTED)
def test_gradients_are_nan_and_numbers_once_fixed(name: str, mode: Any) -> None:
    step, what = UNSELECTED[name]
    graph = stepping(step)
    (finding,) = found(graph, "N001")
    assert what in finding.text
    arguments = [ROWS, 0.5, np.ones(2)]
    wanted, before = value(*of_gradient(graph), arguments, mode)
    assert np.isnan(before[1]).any()
    number, after = value(*of_gradient(mended(graph, "N001")), arguments, mode)
    assert number == wanted
    assert np.isfinite(after).all()
    kept = ~np.isnan(before)
    np.testing.assert_array_equal(after[kept], before[kept])
    np.testing.assert_allclose(after[[0, 2]], _differences(graph, arguments)[[0, 2]], atol=1e-5)
    # Of zeros, the branch that is selected is zero, or the row itself.
    np.testing.assert_array_equal(after[1], 0.5 if name == "sqrt" else 0.0)


def _differences(graph: Graph, arguments: list[Any]) -> Any:
    """The gradient, by differences to both sides."""
    function = compiled(*graph, VM)
    found = np.zeros_like(ROWS)
    for place in np.ndindex(ROWS.shape):
        moved = np.zeros_like(ROWS)
        moved[place] = 1e-6
        up, down = (function(ROWS + s * moved, *arguments[1:])[0] for s in (1, -1))
        found[place] = (up - down) / 2e-6
    return found


@pytest.mark.parametrize("name", SELECTED)
def test_twin_nothing_is_said_of_other_branches(name: str) -> None:
    assert not found(stepping(SELECTED[name]), "N001")


def test_only_the_loop_is_named_not_its_gradient() -> None:
    inputs, outputs = of_gradient(normed(guarded=False))
    (finding,) = found((inputs, outputs), "N001")
    assert finding.loop == "scan_fn"


# N002.

LARGE = np.array([[1000.0, 1001.0], [5.0, 1000.0]])


@pytest.mark.parametrize("mode", MODES, ids=["vm", "numba"])
@pytest.mark.parametrize(
    "graph", [log_summed(shifted=False), mixed(several=True)], ids=["step", "outside"]
)
def test_gradients_of_log_sums_are_nan_and_right_once_fixed(graph: Graph, mode: Any) -> None:
    arguments = [np.zeros(3) if v is X else LARGE for v in graph[0]]
    before = value(*of_gradient(graph), arguments, mode)[1]
    assert np.isnan(before).any()
    fixed = mended(graph, "N002")
    total, after = value(*of_gradient(fixed), arguments, mode)
    assert np.isfinite(after).all()
    assert np.isfinite(total)
    # Of small numbers, both are right.
    small = [each / 1000 for each in arguments]
    for one, other in zip(
        value(*of_gradient(fixed), small, mode),
        value(*of_gradient(graph), small, mode),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_twin_exponents_of_a_known_size_and_other_sums() -> None:
    for step in (
        lambda r: pt.log(pt.exp(pt.tanh(r)).sum()),
        lambda r: pt.log(1 + pt.exp(r)),
        lambda r: pt.log(pt.exp(r)),
        lambda r: pt.logsumexp(r),
        lambda r: pt.log(pt.exp(r - pt.maximum(r[0], r[1])).sum()),
    ):
        assert not found(stepping(step), "N002")


@pytest.mark.parametrize(
    ("step", "is_found"),
    [
        (lambda q, s: s * pt.sigmoid(q), True),
        (lambda q, s: s * pt.exp(-(q**2) / 2), True),
        (lambda q, s: s * pt.clip(q, 0, 1), True),
        (lambda q, s: s * (1 - pt.sigmoid(q)), True),
        (lambda q, s: s * 0.9, False),
        (lambda q, s: s * q, False),
        (lambda q, s: s * pt.exp(q), False),
        (lambda q, s: s * pt.sigmoid(q) + q, False),
        (lambda q, s: s + pt.log(pt.sigmoid(q)), False),
    ],
)
def test_products_of_probabilities(step: Callable[..., Any], *, is_found: bool) -> None:
    ys = scan(step, sequences=[X], outputs_info=[V])
    assert bool(found(([X, V], [ys]), "N002")) is is_found


def test_a_product_of_probabilities_underflows() -> None:
    ys = scan(lambda q, s: s * pt.sigmoid(q), sequences=[X], outputs_info=[V])
    graph = [X, V], [pt.log(ys[-1])]
    (finding,) = found(graph, "N002")
    assert finding.fix is None
    assert "logarithm" in finding.text
    assert value(*graph, [np.zeros(1100), 1.0]) == [-np.inf]
