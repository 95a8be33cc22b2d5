"""Steps on arrays with short axes, in Numba: sums along an axis, indices, and functions of rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numba import njit
from pytensor.tensor.elemwise import CAReduce
from pytensor.tensor.rewriting.fused_elemwise import FusedElemwise

import scanopt_cli.loop.codegen.functions  # noqa: F401
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.loop import Body, Loop
from scanopt_cli.loop.vector_math import FUNCTIONS, WholeArrayFunction
from support.llvm_functions import IN_PLACE
from support.programs import Program

rng = np.random.default_rng(4)
_M, _V = rng.normal(size=(5, 3)) / 2, rng.normal(size=5) / 2
_CUBE = rng.normal(size=(5, 3, 2)) / 3
_AT = np.array([[0, 2, -1, 1, 0], [1, 1, 0, -3, 2], [2, 0, 0, 2, -1]])
_ROWS = np.arange(5)


def _sums(i: Any, states: Any, constants: Any) -> Any:
    m, cube = states
    along = pt.cos(cube * 2).sum(axis=1) + cube.max(axis=1)
    return [
        m * 0.5 + (m**2).sum(axis=0) - m.prod(axis=1)[:, None],
        cube * 0.5 + pt.tanh(cube.min(axis=(1, 2)))[:, None, None] + along[:, None],
    ], [pt.sin(cube).sum(axis=(0, 2)), (m > 0).all(axis=1) | pt.any(m > 1, axis=1)]


def _integers(i: Any, states: Any, constants: Any) -> Any:
    (k,) = states
    return [(k * 3 + k.sum(axis=0) + k.max(axis=1)[:, None]) % 11], [
        (k % 2).astype("int8").sum(axis=1),
        k.min(axis=0),
    ]


def _logsumexp(i: Any, states: Any, constants: Any) -> Any:
    (m, cube), (v,) = states, constants
    return [
        m - pt.logsumexp(m, axis=1, keepdims=True) * v[:, None],
        pt.special.softmax(cube * 2, axis=1),
    ], [pt.logsumexp(m[:, None, :] + cube.sum(axis=2)[:, :, None], axis=1)]


def _picked(i: Any, states: Any, constants: Any) -> Any:
    (m, v), (at, rows) = states, constants
    c = at[i]
    chosen = m[rows, c] * 0.5 - v
    return [m[rows, c].inc(v * (1 - chosen)), pt.cos(chosen)], [m[:, c[:3]] * 2, m[c] - m[rows]]


def _written(i: Any, states: Any, constants: Any) -> Any:
    (m, v), (at, rows) = states, constants
    c = at[i]
    return [
        m[rows, c].set(pt.tanh(v)) * 0.9,
        v[c].inc(pt.sin(v)) * 0.5,
    ], [m[:, c].inc(m[:, rows % 3] * 2), v[c].inc(0.5), v[c].set(v * 2)]


def _of_parts(i: Any, states: Any, constants: Any) -> Any:
    (m, cube), (v,) = states, constants
    swapped = cube.transpose(2, 0, 1)
    return [
        pt.exp(-(m.T[:, 1:] ** 2)).sum(axis=1) * m + v[:, None],
        pt.log1p(pt.exp(swapped * 3)).transpose(1, 2, 0) * 0.5,
    ], [pt.sqr(cube[:, 1] + v[:, None]), (cube[1:4, :, 0] * 2).sum(axis=1)]


def _costly(i: Any, states: Any, constants: Any) -> Any:
    """A slow function that two others read is computed once."""
    (m,) = states
    slow = pt.sin(m)
    return [pt.exp(slow - 1) + pt.log(slow + 2) + pt.tanh(m) * pt.expm1(m * 0.1)], []


def _of_other_shapes(i: Any, states: Any, constants: Any) -> Any:
    (m, row), (v,) = states, constants
    return [pt.exp(v[:, None] * 0.1) * m * 0.5 + pt.tanh(row), pt.sigmoid(row) + 0.1], []


def _masked(i: Any, states: Any, constants: Any) -> Any:
    (m,), (mask,) = states, constants
    new = m - pt.log(pt.exp(m).sum(axis=1, keepdims=True))
    return [pt.switch(mask[i][:, None], new, m)], []


STEPS: dict[str, Program] = {
    "sums": Program(_sums, [_M, _CUBE]),
    "integers": Program(_integers, [np.arange(12).reshape(4, 3)]),
    "logsumexp": Program(_logsumexp, [_M, _CUBE], [_V]),
    "picked": Program(_picked, [_M, _V], [_AT, _ROWS]),
    "written": Program(_written, [_M, _V], [_AT, _ROWS]),
    "of parts": Program(_of_parts, [_M, _CUBE], [_V]),
    "costly": Program(_costly, [_M]),
    "of other shapes": Program(_of_other_shapes, [_M, _M[:1]], [_V]),
    "masked": Program(_masked, [_M], [rng.random((3, 5)) > 0.4]),
}


@cache
def check(name: str, is_known: bool, change: Callable[[np.ndarray], np.ndarray] = np.copy) -> Any:
    """Compare a loop with its steps one after the other; return what Numba runs."""
    program = STEPS[name]
    values = [change(np.asarray(v)) for v in program.arguments]
    inputs = [
        pt.tensor(dtype=v.dtype, shape=tuple(n if is_known or n == 1 else None for n in v.shape))
        for v in map(np.asarray, program.arguments)
    ]
    found, functions = [], []
    for mode, outputs in (
        ("NUMBA", program.looped(inputs, 3)),
        ("FAST_COMPILE", program.unrolled(inputs, 3)),
    ):
        functions.append(pytensor.function(inputs, outputs, mode=mode, on_unused_input="ignore"))
        found.append(functions[-1](*values))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)
        assert np.asarray(one).dtype == np.asarray(other).dtype
    return functions[0].maker.fgraph


def strided(value: np.ndarray) -> np.ndarray:
    """Return an array that is not contiguous."""
    wide = np.zeros([2 * n for n in value.shape], value.dtype)
    part: np.ndarray = wide[(slice(None, None, 2),) * value.ndim]
    part[...] = value
    return part


@pytest.mark.deep
@pytest.mark.parametrize("name", STEPS)
def test_values(name: str) -> None:
    check(name, is_known=True)


@pytest.mark.deep
@pytest.mark.parametrize("name", STEPS)
def test_values_of_unknown_shapes(name: str) -> None:
    check(name, is_known=False)


@pytest.mark.deep
@pytest.mark.parametrize("name", ["logsumexp", "picked", "written", "of parts"])
@pytest.mark.parametrize("layout", [strided, np.asfortranarray])
def test_layouts(name: str, layout: Any) -> None:
    check(name, is_known=True, change=layout)


def test_nothing_is_fused_that_kernels_compute() -> None:
    """The tests above try what they say."""
    ops = [node.op for node in walk(check("masked", is_known=True))]
    assert not any(isinstance(op, FusedElemwise) for op in ops)
    assert any(isinstance(op, CAReduce) for op in ops)
    assert any(isinstance(getattr(op, "scalar_op", None), WholeArrayFunction) for op in ops)


def looped(step: Callable[..., Any], start: Any, *constants: Any, steps: int = 2) -> Any:
    """Return the last state of a loop."""
    state, inner = start.type(), [c.type() for c in constants]
    body = Body(
        index=pt.lscalar("i"), states=[state], constants=inner, next_states=[step(state, *inner)]
    )
    (last,) = Loop.over(steps, body, [start], dict(zip(inner, constants, strict=True)))
    return last


def test_nan_is_the_largest_and_the_smallest() -> None:
    m = pt.dmatrix("m", shape=(2, 3))
    last = looped(lambda s: s * 0 + s.max(axis=1)[:, None] + s.min(axis=0), m, steps=1)
    function = pytensor.function([m], last, mode="NUMBA")
    for place in np.ndindex(2, 3):
        value = np.arange(6.0).reshape(2, 3)
        value[place] = np.nan
        expected = value * 0 + value.max(axis=1)[:, None] + value.min(axis=0)
        np.testing.assert_array_equal(function(value), expected)


@pytest.mark.deep
def test_indices_that_are_not_there() -> None:
    m, at = pt.dmatrix("m", shape=(4, 3)), pt.lvector("at")
    rows = np.arange(4)
    reads = looped(lambda s, at: s * 0.5 + (s[rows, at] * 2)[:, None], m, at)
    writes = looped(lambda s, at: (s * 0.5)[rows, at].inc(1.0 + s[:, 0]), m, at)
    for last in (reads, writes):
        function = pytensor.function([m, at], last, mode="NUMBA")
        function(np.ones((4, 3)), [0, 2, -3, 1])
        for wrong in (3, -4):
            with pytest.raises(IndexError):
                function(np.ones((4, 3)), [0, 2, wrong, 1])
        with pytest.raises(ValueError, match="arrays of indices have different lengths"):
            function(np.ones((4, 3)), [0, 2, 1])


def test_lengths_that_a_type_promises_are_checked() -> None:
    """The loops of a kernel run to them, and check no index."""
    m, v = pt.dmatrix("m", shape=(4, 3)), pt.dvector("v", shape=(4,))
    last = looped(lambda s, c: pt.tanh(s * c[:, None]), m, v)
    function = pytensor.function([m, v], last, mode="NUMBA", trust_input=True)
    function(np.ones((4, 3)), np.ones(4))
    for shapes in (((5, 3), 4), ((4, 2), 4), ((4, 3), 3)):
        with pytest.raises(ValueError, match="another shape than its type says"):
            function(np.ones(shapes[0]), np.ones(shapes[1]))


@pytest.mark.deep
def test_what_is_picked_is_read_before_its_array_is_overwritten() -> None:
    """The next state is written in place of the state, from which two steps read."""
    m, at = pt.dmatrix("m", shape=(4, 3)), pt.constant(np.array([0, 2, 1, 1]))
    rows = np.arange(4)

    def step(s: Any) -> Any:
        new = s[rows, at].set(0.25)
        return new * 0.5 + (s[rows, at] * pt.exp(new[:, :1][:, 0]))[:, None]

    last = looped(step, m)
    value = rng.normal(size=(4, 3))
    found = pytensor.function([m], last, mode="NUMBA")(value)
    expected = pytensor.function([m], step(step(m)), mode="FAST_COMPILE")(value)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_whole_arrays(name: str) -> None:
    """Vectors have eight entries: what is left, and what is not there, is computed too."""
    in_place = IN_PLACE[name]

    @njit
    def run(array: Any) -> None:
        in_place(array)

    reference = {
        "exp": np.exp,
        "expm1": np.expm1,
        "log": np.log,
        "log1p": np.log1p,
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "tanh": np.tanh,
    }[name]
    whole = np.linspace(0.1, 3, 40)
    special = np.array([0.0, -0.0, np.inf, 1e-310, 1e300, 0.5, np.nan, 1.0, 2.0, -np.inf, -0.5])
    for n in (0, 1, 3, 7, 8, 9, 16, 23):
        array = np.full(30, 7.5)
        array[:n] = whole[:n]
        part = array[:n].reshape(n, 1)
        run(part)
        np.testing.assert_allclose(part[:, 0], reference(whole[:n]), rtol=1e-14)
        assert (array[n:] == 7.5).all()
    with np.errstate(all="ignore"):
        expected = reference(special)
    run(special)
    np.testing.assert_allclose(special, expected, rtol=1e-14)
