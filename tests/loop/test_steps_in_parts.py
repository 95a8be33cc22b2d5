"""Loops of which Numba does many steps in parts: recurrences apart from the rest."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.compile.mode import Mode, get_mode
from pytensor.configdefaults import config
from pytensor.graph.traversal import ancestors
from pytensor.scalar import basic as scalars
from pytensor.scalar.basic import float64, int64

import scanopt_cli as so
from scanopt_cli.loop import scan, while_loop
from scanopt_cli.loop.known_choices import with_known_conditions
from scanopt_cli.loop.operators import Loop
from support.direct_code import no_leaks
from support.tiers import examples

NUMBA = get_mode("NUMBA")
ALONE = NUMBA.excluding("distribute_loops")
PLAIN = Mode("vm", "fast_compile")
X, Y, Z = pt.dvector("x"), pt.dvector("y"), pt.dvector("z")
A, B, H = pt.dscalar("a"), pt.dscalar("b"), pt.dscalar("h")
INPUTS = [X, Y, Z, A, B, H]
LENGTHS = (0, 1, 5, 31, 32, 33, 36, 63, 256, 261, 300, 1100)

type Step = Callable[..., tuple[Any, Any]]
"""Makes the next carry, and what is traced, from the carry, rows of x, y and z, a and b."""


def looped(step: Step, carry: Any) -> list[Any]:
    """Return the last carry and the traces of a loop over the rows of x, y and z."""
    last, traces = scan(lambda c, xs, cs: step(c, *xs, *cs), carry, (X, Y, Z), (A, B))
    found = [last, traces]
    return [
        v for one in found if one is not None for v in (one if isinstance(one, tuple) else [one])
    ]


def is_in_parts(function: Any) -> bool:
    found = [n.op.in_parts for n in function.maker.fgraph.apply_nodes if isinstance(n.op, Loop)]
    assert found
    return any(found)


def compiled(outputs: Sequence[Any], mode: Any = NUMBA, inputs: Sequence[Any] = INPUTS) -> Any:
    return pytensor.function(list(inputs), list(outputs), mode=mode, on_unused_input="ignore")


def check_in_parts(outputs: Sequence[Any]) -> None:
    function, plain = compiled(outputs), compiled(outputs, PLAIN)
    assert is_in_parts(function)
    for n in LENGTHS:
        for found, wanted in zip(function(*values(n)), plain(*values(n)), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)
    with no_leaks():
        function(*values(600))


def values(n: int, a: float = 0.7, b: float = -0.4, h: float = 0.3) -> list[np.ndarray]:
    rng = np.random.default_rng(n)
    rows = rng.normal(size=n), rng.uniform(-0.9, 0.9, n), rng.uniform(0.5, 1.5, n)
    return [*rows, *(np.asarray(value, "float64") for value in (a, b, h))]


def logistic(h: Any, y: Any) -> Any:
    """A step that is not affine, and whose states stay between 0 and 1."""
    return h * (1 - h) * (3 + y) / 4 + 0.1


FUNCTIONS: dict[str, tuple[Step, Any]] = {
    "of a state": (lambda h, x, y, z, a, b: ((new := logistic(h, y)), pt.log(new)), H),
    "of both": (lambda h, x, y, z, a, b: (logistic(h, y), pt.exp(h * x) + pt.sigmoid(h)), H),
    "of several": (
        lambda h, x, y, z, a, b: (
            logistic(h, y),
            pt.log(pt.exp(h) + pt.exp(h * x) + pt.exp(h * y) + pt.exp(h * z)),
        ),
        H,
    ),
    "in a sum": (
        lambda c, x, y, z, a, b: ((logistic(c[0], y), c[1] + pt.tanh(c[0] * x)), None),
        (H, H),
    ),
    "before a recurrence": (lambda h, x, y, z, a, b: (logistic(h, 1 / (1 + pt.exp(x))), h), H),
    "between recurrences": (
        lambda c, x, y, z, a, b: (
            (logistic(c[0], y), y * c[1] + pt.log1p(c[0])),
            pt.tanh(c[1]),
        ),
        (H, H),
    ),
    "beside a number that counts": (
        lambda c, x, y, z, a, b: (
            (logistic(c[0], y), pt.switch(x > 0, c[1] + 1, 0)),
            pt.expm1(c[0]) * c[1],
        ),
        (H, pt.constant(0, dtype="int64")),
    ),
}


@pytest.mark.tiered(every=4)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    check_in_parts(looped(*FUNCTIONS[name]))


# The forms that are affine, and those that are not though they look so.

AFFINE: dict[str, tuple[Step, Any]] = {
    "a constant factor": (lambda h, x, y, z, a, b: (a * h + x, h), H),
    "a factor of each step": (lambda h, x, y, z, a, b: (y * h + x, None), H),
    "no term": (lambda h, x, y, z, a, b: (y * h, h), H),
    "differences": (lambda h, x, y, z, a, b: (x - (y - h) * a, h), H),
    "quotients": (lambda h, x, y, z, a, b: ((h + x) / (1 + z), h), H),
    "a choice": (lambda h, x, y, z, a, b: (pt.switch(x > 0, h * y + x, h), h), H),
    "a choice that starts anew": (lambda h, x, y, z, a, b: (pt.switch(x > 1, x, -h), h), H),
    "a sum that is read": (lambda h, x, y, z, a, b: (h + x, h), H),
    "two states, one after the other": (
        lambda c, x, y, z, a, b: ((a * c[0] + x, y * c[1] + c[0] ** 2), c[1]),
        (H, H + 1),
    ),
    "two states of each other": (
        lambda c, x, y, z, a, b: ((a * c[0] + b * c[1] + x, c[0]), c[1]),
        (H, H + 1),
    ),
    "a state of the step before": (
        lambda c, x, y, z, a, b: ((a * c[0] + x, c[0], z), c[1] * c[2]),
        (H, H + 1, H),
    ),
    "a factor of a function": (lambda h, x, y, z, a, b: (pt.exp(-z) * h + pt.log(z), h), H),
    "sums beside": (
        lambda c, x, y, z, a, b: ((y * c[0] + x, c[1] + c[0] * z, c[2] + x * c[0] ** 2), None),
        (H, H, H),
    ),
    "a difference beside": (
        lambda c, x, y, z, a, b: ((y * c[0] + x, c[1] - c[0] * z), c[0]),
        (H, H),
    ),
    "what is computed of the next state": (
        lambda h, x, y, z, a, b: ((new := y * h + x), (new**2 / z, h * new)),
        H,
    ),
}


@pytest.mark.tiered(every=4)
@pytest.mark.parametrize("name", AFFINE)
def test_affine(name: str) -> None:
    check_in_parts(looped(*AFFINE[name]))


NOT_AFFINE: dict[str, tuple[Step, Any]] = {
    "a square": (lambda h, x, y, z, a, b: (y * h**2 / (1 + h**2) + x, h), H),
    "a product of states": (
        lambda c, x, y, z, a, b: ((y * c[0] * c[1] + x, y * c[1] + 0.1 * c[0]), None),
        (H, H),
    ),
    "a choice by the state": (lambda h, x, y, z, a, b: (pt.switch(h > 0, y * h, x), h), H),
    "a divisor": (lambda h, x, y, z, a, b: (x / (2 + h**2), h), H),
    "factors that wait for another state": (
        lambda c, x, y, z, a, b: ((c[1] * c[0] + x, c[1] / (1 + z * c[1] ** 2)), None),
        (H, H),
    ),
    "two states of each other, factors of each step": (
        lambda c, x, y, z, a, b: ((y * c[0] + 0.3 * x * c[1], c[0] - y * c[1] + z), None),
        (H, H + 1),
    ),
    "a function in the recurrence only": (lambda h, x, y, z, a, b: (pt.tanh(y * h + x), h), H),
    "three states of each other": (
        lambda c, x, y, z, a, b: ((a * c[2] + x, y * c[0], c[1] + b * c[0]), None),
        (H, H, H),
    ),
    "sums that nothing else reads": (lambda h, x, y, z, a, b: (h + x * y, None), H),
    "a function that takes long": (lambda h, x, y, z, a, b: (y * h + x, pt.sin(h)), H),
}


@pytest.mark.parametrize("name", NOT_AFFINE)
def test_not_affine(name: str) -> None:
    outputs = looped(*NOT_AFFINE[name])
    function, plain = compiled(outputs), compiled(outputs, PLAIN)
    assert not is_in_parts(function)
    for found, wanted in zip(function(*values(70)), plain(*values(70)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


def test_integers() -> None:
    n = pt.lvector("n")
    last, _ = scan(lambda h, x: (3 * h + x, None), pt.constant(1, dtype="int64"), n)
    function = compiled([last], inputs=[n])
    assert not is_in_parts(function)
    assert function(np.arange(200)) == [compiled([last], PLAIN, [n])(np.arange(200))[0]]


def test_a_loop_that_a_condition_ends() -> None:
    last = while_loop(lambda h, a: h < 50, lambda h, a: a * h + 1, H, A, max_steps=100)
    assert not is_in_parts(compiled([last], inputs=[A, H]))


def test_few_steps() -> None:
    many, few = (
        scan(lambda h, _, a: (a * h + 1, None), H, constants=A, max_steps=n)[0] for n in (32, 31)
    )
    assert is_in_parts(compiled([many], inputs=[A, H]))
    assert not is_in_parts(compiled([few], inputs=[A, H]))


def test_what_switches_it_off() -> None:
    outputs = looped(*AFFINE["a constant factor"])
    assert not is_in_parts(compiled(outputs, ALONE))
    with config.change_flags(numba__fastmath=False):
        assert not is_in_parts(compiled(outputs))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dtypes(dtype: str) -> None:
    x, y = pt.vector("x", dtype=dtype), pt.vector("y", dtype=dtype)
    start = pt.constant(np.asarray(0.5, dtype))
    last, trace = scan(lambda h, xs: (xs[0] * h + xs[1], h), start, (x, y))
    function, plain = (compiled([last, trace], mode, [x, y]) for mode in (NUMBA, PLAIN))
    assert is_in_parts(function)
    given = [v.astype(dtype) for v in values(600)[1:3]]
    for found, wanted in zip(function(*given), plain(*given), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-4 if dtype == "float32" else 1e-10)


@pytest.mark.deep
def test_gradients() -> None:
    last, trace = looped(*AFFINE["a constant factor"])
    last2 = looped(*AFFINE["sums beside"])[1]
    _, trace2 = looped(*FUNCTIONS["of both"])
    cost = last + trace.sum() * last2 + (trace2**2).sum()
    slopes = pytensor.grad(cost, INPUTS, disconnected_inputs="ignore")
    second = pytensor.grad(sum((s**2).sum() for s in slopes), INPUTS, disconnected_inputs="ignore")
    outputs = [cost, *slopes, *second]
    function, plain = compiled(outputs), compiled(outputs, PLAIN)
    assert is_in_parts(function)
    for n in (3, 70, 600):
        for found, wanted in zip(function(*values(n)), plain(*values(n)), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-10)


def test_entries_that_an_index_chooses() -> None:
    chosen, rewards, start = pt.lvector("chosen"), pt.dvector("rewards"), pt.dvector("start")
    start = pt.specify_shape(start, 3)

    def step(q: Any, xs: Any, rate: Any) -> tuple[Any, Any]:
        c, r = xs
        return q[c].inc(rate * (r - q[c])), q[c] - pt.logsumexp(q)

    last, terms = scan(step, start, (chosen, rewards), A)
    cost = terms.sum()
    inputs = [chosen, rewards, start.owner.inputs[0], A]
    outputs = [last, cost, *pytensor.grad(cost, inputs[1:])]
    with so.enabled():
        function = compiled(outputs, inputs=inputs)
    assert is_in_parts(function)
    plain = compiled(outputs, PLAIN, inputs)
    rng = np.random.default_rng(3)
    for n in (5, 40, 300):
        given = [rng.integers(-3, 3, n), rng.normal(size=n), rng.normal(size=3), np.asarray(0.3)]
        for found, wanted in zip(function(*given), plain(*given), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)
        given[0][-2] = 3
        with pytest.raises(IndexError):
            function(*given)


def test_what_is_known_of_choices() -> None:
    i, x, y = int64("i"), float64("x"), float64("y")
    first, second = scalars.eq(i, 0), scalars.eq(i, 1)
    read = scalars.switch(first, x, scalars.switch(second, y, -1.0))
    values = [scalars.switch(one, read * 2, read) for one in (first, second)]
    known = with_known_conditions([*values, read])
    assert known[2] is read
    assert [
        x in ancestors([known[0].owner.inputs[1]]),
        y in ancestors([known[0].owner.inputs[1]]),
    ] == [True, False]
    assert [
        x in ancestors([known[1].owner.inputs[1]]),
        y in ancestors([known[1].owner.inputs[1]]),
    ] == [False, True]
    # Where it is not 0, it may be 1.
    assert y in ancestors([known[0].owner.inputs[2]])
    # Another variable, or no constant: nothing is known.
    j = int64("j")
    other = scalars.switch(scalars.eq(j, 1), x, y)
    assert with_known_conditions([scalars.switch(first, other, y)])[0].owner.inputs[1] is other
    unknown = scalars.switch(scalars.eq(i, j), x, y)
    assert with_known_conditions([scalars.switch(first, unknown, y)])[0].owner.inputs[1] is unknown


def test_rows_that_are_read_at_an_index_and_a_state() -> None:
    """As by a way back through a table of predecessors; the index takes no work."""
    place, table = pt.lscalar("place"), pt.lmatrix("table")
    last, trace = scan(lambda place, row: (row[place],) * 2, place, table)
    with config.change_flags(on_opt_error="raise"):
        function = compiled([last, trace], inputs=[place, table])
    entries = np.random.default_rng(0).integers(0, 3, (40, 3))
    wanted = [1]
    for row in entries:
        wanted.append(row[wanted[-1]])
    found = function(np.array(1), entries)
    assert found[0] == wanted[-1]
    np.testing.assert_array_equal(found[1], wanted[1:])


def test_loops_share_their_buffers() -> None:
    step, start = AFFINE["a factor of a function"]

    def with_more(i: int, *given: Any) -> tuple[Any, Any]:
        new, read = step(*given)
        return new + i, read

    # Equal loops would share a function.
    several = [looped(partial(with_more, i), start)[-1] for i in range(5)]
    sizes = []
    for outputs in (several[:1], several):
        check_in_parts(outputs)
        with config.change_flags(numba__cache=False):
            function = compiled(outputs)
            function(*values(40))
        (code,) = function.vm.jit_fn.inspect_llvm().values()
        sizes.append(len(re.findall(r"alloca \[\d+ x double\]|alloca double, i64 \d+", code)))
    assert 0 < sizes[1] <= sizes[0] + 1


# Generated steps.

_ROWS = st.sampled_from(["x", "y", "z", "a", "b", "0.5", "x * y", "(y - a)", "(y * y)"])


@st.composite
def _affine_steps(draw: Any) -> list[str]:
    """Return the next values of states, of which each is affine in itself and one before it."""
    n_states = draw(st.integers(1, 4))
    found: list[str] = []
    for i in range(n_states):
        terms = [f"{draw(_ROWS)} * c[{i}]" if draw(st.booleans()) else f"c[{i}]"]
        if i:
            other = draw(st.sampled_from([f"c[{i - 1}]", f"c[{i - 1}] ** 2", f"c[{i - 1}] * x"]))
            terms.append(f"0.1 * {draw(_ROWS)} * {other}")
        terms += draw(st.lists(_ROWS, max_size=2))
        sign = draw(st.sampled_from(["", "-", "0.3 * "]))
        found.append(f"{sign}({draw(st.sampled_from([' + ', ' - '])).join(terms)})")
    return found


@pytest.mark.tiered
@given(steps=_affine_steps(), is_traced=st.booleans(), seed=st.integers(0, 99))
@settings(max_examples=examples(5, 60))
def test_generated_steps(steps: list[str], is_traced: bool, seed: int) -> None:
    def step(c: Any, x: Any, y: Any, z: Any, a: Any, b: Any) -> tuple[Any, Any]:
        names = {"c": c, "x": x, "y": y, "z": z, "a": a, "b": b}
        return tuple(eval(one, names) for one in steps), tuple(c) if is_traced else None

    outputs = looped(step, tuple(H + i for i in range(len(steps))))
    cost = sum(v.sum() for v in outputs)
    slopes = pytensor.grad(cost, INPUTS, disconnected_inputs="ignore")
    ahead, alone = (compiled([*outputs, *slopes], mode) for mode in (NUMBA, ALONE))
    for n in (seed % 50, 4 * seed + 40):
        for found, wanted in zip(ahead(*values(n)), alone(*values(n)), strict=True):
            scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=1)
            np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-9 * scale)


@pytest.mark.parametrize("read", [pt.isnan, pt.real, abs], ids=["isnan", "real", "abs"])
def test_loops_that_read_complex_numbers_are_in_one_part(read: Callable[[Any], Any]) -> None:
    """No rule writes code of complex numbers, which parts would keep as numbers."""
    rows = pt.vector("rows", dtype="complex128")
    last, _ = scan(lambda s, r, _: (s * 0.5 + pt.exp(read(r).astype("float64")), None), H, rows, ())
    function = compiled([last], inputs=[rows, H])
    plain = compiled([last], PLAIN, inputs=[rows, H])
    given_values = np.linspace(-1, 1, 40) * (1 + 2j), 0.3
    np.testing.assert_allclose(function(*given_values), plain(*given_values), rtol=1e-12)
