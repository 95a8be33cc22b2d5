"""`scan`, `for_loop`, `while_loop`, `map`, `reduce` and `filter`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from scanopt_cli import loop
from support.tiers import deep

MODES = ("FAST_COMPILE", *deep("NUMBA"))
ONE = np.ones(1)


def values(inputs: Any, outputs: Any, *arguments: Any, mode: str = "FAST_COMPILE") -> Any:
    function = pytensor.function(inputs, outputs, mode=mode, on_unused_input="ignore")
    return function(*arguments)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backwards", [False, True])
def test_scan(backwards: bool, mode: str) -> None:
    xs = pt.dmatrix("xs")

    def step(carry: Any, row: Any, weights: Any) -> Any:
        h, (count,) = carry["h"], carry["more"]
        h = pt.tanh(h * weights + row)
        return {"h": h, "more": (count + 1,)}, (h.sum(), {"row": row})

    init = {"h": np.zeros(2), "more": (0,)}
    weights = pt.dvector("weights")
    carry, (sums, kept) = loop.scan(step, init, xs, weights, go_backwards=backwards)
    rows, w = np.random.default_rng(1).normal(size=(5, 2)), np.array([0.3, -1.0])
    outputs = [carry["h"], carry["more"][0], sums, kept["row"]]
    found = values([xs, weights], outputs, rows, w, mode=mode)
    h, expected = np.zeros(2), []
    for row in rows[::-1] if backwards else rows:
        h = np.tanh(h * w + row)
        expected.append(h.sum())
    np.testing.assert_allclose(found[0], h)
    assert found[1] == 5
    np.testing.assert_allclose(found[2], expected)
    np.testing.assert_allclose(found[3], rows[::-1] if backwards else rows)


@pytest.mark.parametrize("mode", MODES)
def test_no_steps(mode: str) -> None:
    xs = pt.dtensor3("xs")
    carry, rows = loop.scan(lambda c, x: (c + x.sum(), x @ x), 1.5, xs)
    last, collected = values([xs], [carry, rows], np.zeros((0, 3, 3)), mode=mode)
    assert last == 1.5
    assert collected.shape == (0, 3, 3)


def test_steps_without_rows() -> None:
    n = pt.lscalar("n")
    carry, powers = loop.scan(lambda c, _: (c * 2, c), 1.0, max_steps=n)
    last, collected = values([n], [carry, powers], 4)
    assert last == 16
    assert collected.tolist() == [1, 2, 4, 8]


def test_fewer_steps_than_rows() -> None:
    x = pt.dvector("x")
    total = loop.scan(lambda c, row: (c + row, None), 0.0, x, max_steps=2)[0]
    assert values([x], total, [1.0, 2.0, 4.0]) == 3
    assert values([x], total, [1.0]) == 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_for_loop_knows_its_step(steps: int, mode: str) -> None:
    x, n = pt.dvector("x"), pt.lscalar("n")

    def step(index: Any, total: Any, x: Any) -> Any:
        gap = x[index + 1] - x[index]
        return total + index * gap, {"gap": gap, "index": index}

    total, made = loop.for_loop(n, step, 0.0, x, name="gaps")
    slope = pytensor.grad(total, x)
    array = np.array([1.0, 2.0, 4.0, 8.0])
    found = values([x, n], [total, made["gap"], made["index"], slope], array, steps, mode=mode)
    gaps = np.diff(array)[:steps]
    assert found[0] == np.arange(steps) @ gaps
    assert found[1].tolist() == gaps.tolist()
    assert found[2].tolist() == [*range(steps)]
    expected = np.zeros(4)
    for index in range(steps):
        expected[index : index + 2] += [-index, index]
    assert found[3].tolist() == expected.tolist()


@pytest.mark.parametrize("mode", MODES)
def test_a_for_loop_that_stops_collects_its_last_step(mode: str) -> None:
    bound = pt.dscalar("bound")
    last, rows = loop.for_loop(9, lambda i, c, b: (c * 2, (i, c), c < b), 1.0, bound)
    assert [v.tolist() for v in values([bound], [last, *rows], 4.0, mode=mode)] == [
        8.0,
        [0, 1, 2],
        [1.0, 2.0, 4.0],
    ]


@pytest.mark.parametrize("mode", MODES)
def test_a_random_state(mode: str) -> None:
    """A step takes a generator and returns the next; nothing is updated behind its back."""
    rng = pytensor.shared(np.random.default_rng(3))

    def step(rng: Any, mean: Any) -> Any:
        return pt.random.normal(mean, 1.0, rng=rng).owner.outputs

    means = np.arange(3.0)
    last, draws = loop.scan(step, rng, means)
    found = values([], draws, mode=mode)
    np.testing.assert_array_equal(found, values([], draws, mode=mode))
    reference = np.random.default_rng(3)
    np.testing.assert_allclose(found, [reference.normal(mean, 1.0) for mean in means])
    assert last.type == rng.type


@pytest.mark.parametrize("mode", MODES)
def test_the_gradient_of_what_is_drawn(mode: str) -> None:
    """The backward loop reads the draws that the forward loop made."""
    rng, scale = pytensor.shared(np.random.default_rng(3)), pt.dscalar("scale")

    def step(carry: Any, _: Any, scale: Any) -> Any:
        rng, x = carry
        rng, draw = pt.random.normal(0.0, 1.0, rng=rng).owner.outputs
        return (rng, x + scale * draw * x), None

    (_, last), _ = loop.scan(step, (rng, np.array(1.0)), None, scale, max_steps=3)
    slope = pytensor.grad(last, scale)
    draws = np.random.default_rng(3).normal(size=3)
    found = values([scale], [last, slope], 0.5, mode=mode)
    factors = 1 + 0.5 * draws
    expected = sum(draws[i] * np.prod(np.delete(factors, i)) for i in range(3))
    np.testing.assert_allclose(found, [np.prod(factors), expected])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("start", "expected"), [(1.0, 16.0), (20.0, 20.0)])
def test_while_loop(start: float, expected: float, mode: str) -> None:
    x, bound = pt.dscalar("x"), pt.dscalar("bound")
    last = loop.while_loop(lambda c, b: c < b, lambda c, _: c * 2, x, bound)
    assert values([x, bound], last, start, 10.0, mode=mode) == expected


@pytest.mark.parametrize("mode", MODES)
def test_the_gradient_of_a_while_loop(mode: str) -> None:
    x = pt.dscalar("x")
    last = loop.while_loop(lambda c: c < 10, lambda c: c * c + 1, x, max_steps=50)
    first = pytensor.grad(last, x)
    second = pytensor.grad(first, x)
    twin = ((x**2 + 1) ** 2 + 1) ** 2 + 1
    slope = pytensor.grad(twin, x)
    expected = values([x], [twin, slope, pytensor.grad(slope, x)], 1.2)
    np.testing.assert_allclose(values([x], [last, first, second], 1.2, mode=mode), expected)


def test_a_while_loop_has_a_most() -> None:
    last = loop.while_loop(lambda c: c > 0, lambda c: c + 1, 1, max_steps=4)
    assert values([], last) == 5


@pytest.mark.parametrize("mode", MODES)
def test_map_reduce_and_filter(mode: str) -> None:
    x, m = pt.dvector("x"), pt.dmatrix("m")
    outputs = [
        loop.map(lambda row, k: (row * k).sum(), m, 2.0),
        loop.reduce(pt.maximum, x, -np.inf),
        loop.reduce(lambda c, row: c * 10 + row, x, 0.0, go_backwards=True),
        loop.filter(lambda value: value > 1, x),
        loop.filter(lambda row: row["rows"].sum() > 1, {"rows": m})["rows"],
    ]
    found = values([x, m], outputs, [1.0, 3.0, 2.0], np.eye(3) + 0.3, mode=mode)
    for one, other in zip(found, [[3.8] * 3, 3, 231, [3, 2], np.eye(3) + 0.3], strict=True):
        np.testing.assert_allclose(one, other)


def test_lengths_that_differ() -> None:
    x, y = pt.dvectors("x", "y")
    total, _ = loop.scan(lambda c, rows: (c + rows["a"] * rows["b"], None), 0.0, {"a": x, "b": y})
    assert values([x, y], total, [1.0, 2.0], [3.0, 4.0]) == 11
    with pytest.raises(AssertionError, match=r"numbers of rows of xs\['a'\], xs\['b'\] differ"):
        values([x, y], total, [1.0, 2.0], [3.0])


def step_of(result: Any) -> Any:
    return lambda *_: result


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: loop.scan(step_of(1), 0.0, ONE), TypeError, "returns a pair"),
        (lambda: loop.scan(step_of((1.0, None)), 0.0), ValueError, "needs xs or max_steps"),
        (lambda: loop.scan(step_of((1.0, None)), 0.0, 3.0), ValueError, "xs has no dimension"),
        (
            lambda: loop.scan(step_of((1.0, None)), 0.0, {"a": ONE, "b": np.ones(2)}),
            ValueError,
            r"xs\['a'\] has 1 rows, and xs\['b'\] has 2",
        ),
        (
            lambda: loop.scan(step_of(({"h": 1.0, "k": 0.0}, None)), {"h": 0.0}, ONE),
            TypeError,
            r"carry of the form \{'h': '\*', 'k': '\*'\}, not \{'h': '\*'\}",
        ),
        (
            lambda: loop.scan(lambda c, x: ({"h": c["h"] + [x]}, None), {"h": 0.0}, ONE),
            TypeError,
            r"carry\['h'\] is of type Scalar\(float64.*a step makes it Vector",
        ),
        (
            lambda: loop.scan(lambda c, x: (c + x, None), pt.iscalar("count"), np.array([1.5])),
            TypeError,
            r"carry is of type Scalar\(int32.*a step makes it Scalar\(float64",
        ),
        (
            lambda: loop.scan(lambda c, x: (c + pt.dscalar("rate"), None), 0.0, ONE),
            ValueError,
            "reads rate, which is none of its inputs; pass it as a constant",
        ),
        (
            lambda: loop.scan(step_of((0.0, None)), 0.0, max_steps=-1),
            ValueError,
            "cannot run -1 steps",
        ),
        (lambda: loop.for_loop(3, lambda i, c: c, 0.0), TypeError, "a step of for_loop returns"),
        (lambda: loop.for_loop(-1, lambda i, c: (c, None), 0.0), ValueError, "cannot run -1 steps"),
        (lambda: loop.for_loop(2.5, lambda i, c: (c, None), 0.0), TypeError, "is an integer"),
        (
            lambda: loop.for_loop(3, lambda i, c: (c, None, c), 0.0),
            TypeError,
            "condition is a bool of no dimensions",
        ),
        (
            lambda: loop.while_loop(lambda c: c, lambda c: c, 1.0),
            TypeError,
            "condition is a bool of no dimensions",
        ),
    ],
)
def test_errors_name_the_place(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_a_trace_without_buffer_under_numba() -> None:
    rng = pytensor.shared(np.random.default_rng(3))
    index, state = pt.lscalar("i"), rng.type()
    new = pt.random.normal(rng=state).owner.outputs[0]
    body = loop.Body(index=index, states=[state], next_states=[new])
    trace = loop.TracedLoop.over(2, body, [rng], {})[1]
    assert len(values([], trace)) == 3
    with pytest.raises(TypeError, match="Numba has no list of"):
        values([], trace, mode="NUMBA")
