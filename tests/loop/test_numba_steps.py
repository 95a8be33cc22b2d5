"""Steps on arrays, in Numba: what they compute is written into buffers that the loop keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Variable
from pytensor.tensor.elemwise import Elemwise

import scanopt_cli.loop.codegen.functions  # noqa: F401
from scanopt_cli import loop
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.loop import Body, Loop
from scanopt_cli.loop.products import Product
from support.programs import Program
from support.tiers import deep

_V, _W, _M = np.linspace(-1, 1, 5), np.linspace(0.2, 2, 5), np.arange(25.0).reshape(5, 5) / 30


def _shrunk(i: Any, states: Any, constants: Any) -> Any:
    (h,) = states
    return [pt.tanh(h)[1:] * 2], []


def _grown(i: Any, states: Any, constants: Any) -> Any:
    (h,) = states
    return [pt.exp(pt.concatenate([h * 0.5, h[:1]])) - 1], []


def _rows(i: Any, states: Any, constants: Any) -> Any:
    (h, m), (rows, cube) = states, constants
    one = pt.tanh(h * rows[i] + rows[i - 6])
    return [one + cube[i, :, 2], pt.cos(m) * cube[:, i] - cube[2]], [one * h]


def _some_rows(i: Any, states: Any, constants: Any) -> Any:
    (h, m), (c, whole) = states, constants
    one = pt.tanh(h * c[i : i + 3] + c[-3:] - c[:3])
    two = pt.cos(m * whole[1:4, -i - 1] - whole[-9:3, 1:][:, i - 1] + c[1:9][:3])
    return [one, two], [pt.sin(c[7 - i :] + 1).sum(), pt.cos(c[: -20 + i] * 2).sum()]


def _by_numbers(i: Any, states: Any, constants: Any) -> Any:
    (h, x), (c, w) = states, constants
    new = pt.tanh(h * c + i * x) - w[i]
    return [new, pt.cos(x) * c + new.sum()], [pt.stack([x, c, w[i]]) * new[0]]


def _other_dtypes(i: Any, states: Any, constants: Any) -> Any:
    single, small, flags = states
    larger = single > 0.5
    return [
        pt.cast(pt.cos(single) * 1.5, "float32"),
        pt.cast(small * 3 + larger, "int8"),
        pt.xor(flags, larger),
    ], [larger]


def _broadcast(i: Any, states: Any, constants: Any) -> Any:
    (a, m), (v,) = states, constants
    column, row = a[:, None], v[None, :]
    return [pt.sin(a) * v[0], pt.tanh(m * column + row)], [column - row]


def _products(i: Any, states: Any, constants: Any) -> Any:
    (h, g, m), (w,) = states, constants
    return [pt.tanh(w @ h), g @ w * 0.1 + h, (m @ w) * 0.2], [w @ g]


def _only_products(i: Any, states: Any, constants: Any) -> Any:
    (h, g, m), (w,) = states, constants
    return [w @ h, g @ w, m @ w], []


def _nested(i: Any, states: Any, constants: Any) -> Any:
    (h,), (w,) = states, constants
    start = pt.tanh(h * w)
    last, _ = loop.scan(lambda z, x, w: (pt.cos(z * w) + x,) * 2, start, pt.arange(3.0), w)
    return [last], [start]


def _written(i: Any, states: Any, constants: Any) -> Any:
    (h,), (w,) = states, constants
    new = pt.tanh(h * w)
    return [pt.set_subtensor(new[i], 3.0)], [new.sum()]


ARRAYS = {
    "a state that changes": Program(lambda i, s, c: ([pt.tanh(s[0] * c[0])], []), [_V], [_W]),
    "states that change places": Program(
        lambda i, s, c: ([s[1], pt.tanh(s[0]) * 1.5], []), [_V, _W]
    ),
    "the state before": Program(lambda i, s, c: ([pt.cos(s[0]), s[0], s[1]], []), [_V, _W, _V**2]),
    "one result, two states": Program(
        lambda i, s, c: ([pt.cos(s[0] + s[1])] * 2, [pt.cos(s[0] + s[1])]), [_V, _W]
    ),
    "parts of a result": Program(
        lambda i, s, c: ([pt.cos(s[0])[::-1], pt.cos(s[0])[:2]], []), [_V, _W[:2]]
    ),
    "a result and a part of it": Program(
        lambda i, s, c: ([pt.cos(s[0]), pt.cos(s[0])[1:3]], [pt.cos(s[0])[0]]), [_V, _W[:2]]
    ),
    "transposed": Program(lambda i, s, c: ([pt.cos(s[0]).T, s[0] * 0.5], []), [_M, _M - 1]),
    "rows of constants": Program(_rows, [_V, _M], [np.tile(_W, (6, 1)), np.ones((5, 5, 5)) / 3]),
    "some rows": Program(
        _some_rows, [_V[:3], _V[1:4]], [np.linspace(0, 1, 8), np.arange(20.0).reshape(4, 5) / 9]
    ),
    "by numbers": Program(_by_numbers, [_V, 0.3], [1.7, _W]),
    "other dtypes": Program(
        _other_dtypes,
        [_V.astype("float32"), np.arange(5, dtype="int8") * 20, np.arange(5) > 2],
    ),
    "broadcast": Program(_broadcast, [_V, _M], [_W]),
    "products": Program(_products, [_V, _W, _M], [_M]),
    "only products": Program(_only_products, [_V, _W, _M], [_M * 0.5]),
    "a loop inside": Program(_nested, [_V], [_W]),
    "written into": Program(_written, [_V], [_W]),
    "a condition": Program(
        lambda i, s, c: ([pt.cos(s[0]) + i], []),
        [_V],
        condition=lambda i, new: pt.lt(new[0].sum(), 12.0),
    ),
    "of no entries": Program(lambda i, s, c: ([pt.tanh(s[0] * 2), s[1] + 1], []), [_V[:0], _W]),
    "of other lengths in each step": Program(_shrunk, [_V]),
    "of more in each step": Program(_grown, [_V[:2]]),
}
IN_ONE = (
    "by numbers",
    "a state that changes",
    "states that change places",
    "parts of a result",
    "products",
)
"""Compiled together, to use each other's memory if they could."""


def outputs_of(name: str, steps: int, twin: bool) -> tuple[list[Variable], list[Variable]]:
    """Return the inputs and outputs of a loop, or of its steps one after the other."""
    program = ARRAYS[name]
    inputs = program.inputs()
    n = len(program.states)
    if twin and program.condition is not None:
        states = inputs[:n]
        values = dict(zip(inputs, program.arguments, strict=True))
        for i in range(steps):
            states, _ = program.step(pt.constant(i), states, inputs[n:])
            if not program.condition(i, states).eval(values):
                break
        return inputs, states
    outputs = program.unrolled(inputs, steps) if twin else program.looped(inputs, steps)
    has_traces = program.condition is None and "in each step" not in name
    return inputs, outputs if has_traces else outputs[:n]


def check(names: Sequence[str], steps: int, arguments: Callable[[Any], Any]) -> None:
    found: Any = []
    for mode, twin in (("NUMBA", False), ("FAST_COMPILE", True)):
        parts = [outputs_of(name, steps, twin) for name in names]
        inputs = [v for own, _ in parts for v in own]
        outputs = [v for _, own in parts for v in own]
        function = pytensor.function(inputs, outputs, mode=mode, on_unused_input="ignore")
        values = [arguments(v) for name in names for v in ARRAYS[name].arguments]
        found.append(function(*values))
        again = function(*values)
        for one, other in zip(found[-1], again, strict=True):
            np.testing.assert_array_equal(one, other)
    for one, other in zip(*found, strict=True):
        rtol = 1e-6 if one.dtype == "float32" else 1e-10
        np.testing.assert_allclose(one, other, rtol=rtol, atol=1e-12)
        assert one.dtype == other.dtype


def strided(value: np.ndarray) -> np.ndarray:
    """Return an array that is not contiguous."""
    if not value.ndim:
        return value
    wide = np.zeros([2 * n for n in value.shape], value.dtype)
    part: np.ndarray = wide[(slice(None, None, 2),) * value.ndim]
    part[...] = value
    return part


@pytest.mark.deep
def test_values_in_one_function() -> None:
    check(IN_ONE, 4, np.copy)


@pytest.mark.deep
@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("steps", [1, 2, 4])
def test_values(name: str, steps: int) -> None:
    check([name], steps, np.copy)


@pytest.mark.deep
@pytest.mark.parametrize("layout", [strided, lambda value: value.copy(order="F")])
def test_layouts(layout: Any) -> None:
    check([*IN_ONE, "transposed", "broadcast"], 3, layout)


@st.composite
def programs(draw: Any) -> list[tuple[str, int, int]]:
    """Operations on earlier results, by their places."""
    names = st.sampled_from(["add", "tanh", "reversed", "row", "product", "shifted", "column"])
    lines = draw(st.lists(st.tuples(names, st.integers(0, 9), st.integers(0, 9)), max_size=8))
    return [*lines, ("tanh", 0, 0)]


@pytest.mark.deep
@settings(max_examples=25)
@given(programs(), st.data())
def test_any_step(lines: list[tuple[str, int, int]], data: Any) -> None:
    """As it is written, without PyTensor's rewrites, of which fusion leaves few nodes."""
    places = [data.draw(st.integers(0, 11)) for _ in range(3)]

    def step(index: Any, states: Any, constants: Any) -> Any:
        matrix, vector = constants
        known = [*states, vector]
        for name, one, other in lines:
            a, b = known[-1 - one % len(known)], known[other % len(known)]
            column = matrix[:, index]
            made = {
                "add": lambda a=a, b=b: a * 0.5 + b,
                "tanh": lambda a=a: pt.tanh(a),
                "reversed": lambda b=b: b[::-1],
                "row": lambda a=a: matrix[index] - a,
                "product": lambda a=a: pt.dot(matrix, a) * 0.2,
                "shifted": lambda a=a, b=b: pt.concatenate([a[1:] * 2, b[:1]]),
                "column": lambda a=a, column=column: pt.sin(column + a),
            }[name]()
            known.append(made)
        return [known[-1 - places[0] % 2], known[places[1] % len(known)]], []

    program = Program(step, [_V, _W], [_M, _V * 2])
    inputs = program.inputs()
    body_inputs = [v.type() for v in inputs]
    index = pt.lscalar("index")
    next_states, _ = step(index, body_inputs[:2], body_inputs[2:])
    body = Body(
        index=index,
        states=body_inputs[:2],
        constants=body_inputs[2:],
        next_states=next_states,
    )
    outer = dict(zip(body_inputs[2:], inputs[2:], strict=True))
    lasts = Loop.over(4, body, inputs[:2], outer)
    expected = program.unrolled(inputs, 4)[:2]
    found = [
        pytensor.function(inputs, outputs, mode=mode, on_unused_input="ignore")(*program.arguments)
        for outputs, mode in ((lasts, Mode("numba", None)), (expected, "FAST_COMPILE"))
    ]
    for new, old in zip(*found, strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-9, atol=1e-12)


@pytest.mark.deep
@pytest.mark.parametrize("index", [6, -7])
def test_rows_that_are_not_there(index: int) -> None:
    m = pt.dmatrix("m")
    start, k = pt.dvector("start"), pt.lscalar("k")
    row, at, state = m.type(), k.type(), start.type()
    body = Body(
        index=pt.lscalar("i"),
        states=[state],
        constants=[row, at],
        next_states=[pt.tanh(state * row[at])],
    )
    (last,) = Loop.over(2, body, [start], {row: m, at: k})
    function = pytensor.function([start, m, k], last, mode="NUMBA")
    rows = np.arange(18.0).reshape(6, 3)
    for good in (5, -6):
        np.testing.assert_allclose(
            function(np.ones(3), rows, good), np.tanh(np.tanh(rows[good]) * rows[good])
        )
    with pytest.raises(IndexError):
        function(np.ones(3), rows, index)


@pytest.mark.deep
def test_lengths_that_differ() -> None:
    start, c = pt.dvector("start"), pt.dvector("c")
    state, inner = start.type(), c.type()
    body = Body(
        index=pt.lscalar("i"),
        states=[state],
        constants=[inner],
        next_states=[pt.tanh(state * inner)],
    )
    (last,) = Loop.over(2, body, [start], {inner: c})
    function = pytensor.function([start, c], last, mode="NUMBA")
    for one, other in ((3, 4), (3, 1), (1, 3), (0, 1)):
        with pytest.raises(ValueError, match="incompatible shape in axis"):
            function(np.ones(one), np.ones(other))


@pytest.mark.parametrize("name", ["products", *deep("only products")])
def test_the_body_has_products(name: str) -> None:
    """The tests above try what they say."""
    inputs, outputs = outputs_of(name, 3, twin=False)
    function = pytensor.function(inputs, outputs, mode="NUMBA", on_unused_input="ignore")
    ops = [node.op for node in walk(function.maker.fgraph)]
    assert sum(isinstance(op, Product) for op in ops) >= 3
    assert any(isinstance(op, Elemwise) for op in ops) is (name == "products")
