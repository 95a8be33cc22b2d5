"""Parts of memory that a loop uses again, and of memory that several values may have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.conditional.op import LazyIfElse, ifelse
from pytensor.tensor.random.basic import normal
from pytensor.tensor.random.type import random_generator_type

import scanopt_cli.loop.codegen.functions  # noqa: F401  # registers what it compiles
from scanopt_cli.loop import Body, Loop, scan
from support.direct_code import compare, no_leaks


def agree(inputs: Sequence[Any], outputs: Sequence[Any], *values: Any) -> None:
    """Check that Numba computes what PyTensor does by nodes that overwrite nothing."""
    wanted = pytensor.function(inputs, outputs, mode=Mode("vm", "fast_compile"))(*values)
    f = pytensor.function(inputs, outputs, mode="NUMBA")
    compare(f(*values), wanted)
    with no_leaks():
        compare(f(*values), wanted)


def vector(length: int) -> np.ndarray:
    return np.random.default_rng(length).uniform(0.5, 1.5, length)


def test_next_state_is_a_part_of_a_buffer() -> None:
    x = pt.tensor("x", dtype="float64", shape=(30000,))
    out, _ = scan(lambda c, _: (pt.concatenate([c, 2 * c])[:30000], None), x, max_steps=5)
    agree([x], [out], vector(30000))


def test_next_states_are_a_row_and_a_column_of_a_buffer() -> None:
    x = pt.tensor("x", dtype="float64", shape=(300,))

    def step(carry: Any, _: Any) -> Any:
        product = pt.outer(*carry) / 300
        return (product[0], product[:, 1]), None

    out, _ = scan(step, (x, 2 * x), max_steps=4)
    agree([x], out, vector(300))


def test_next_state_is_a_part_of_a_state() -> None:
    short = pt.tensor(dtype="float64", shape=(3,))
    long = pt.tensor(dtype="float64", shape=(30000,))
    out, _ = scan(lambda carry, _: ((carry[1][:3], carry[1] + 1), None), (short, long), max_steps=5)
    agree([short, long], out, vector(3), vector(30000))


def test_initial_state_is_a_part_of_a_buffer() -> None:
    x = pt.tensor("x", dtype="float64", shape=(64,))

    def step(carry: Any, _: Any) -> Any:
        part = pt.set_subtensor(carry[20], 2 * carry[0])[12:45]
        inner, _ = scan(lambda c, _: (c[::-1] * c, None), part, max_steps=3)
        return carry + inner.sum(), None

    out, _ = scan(step, x, max_steps=2)
    agree([x], [out], vector(64))


@pytest.mark.parametrize("size", [4, 5, 6, 8, 9, 13, 33, 65])
def test_a_step_reads_what_the_step_before_wrote(size: int) -> None:
    """The memory that a step writes is that of the next step's state."""
    x = pt.tensor("x", dtype="float64", shape=(size,))
    out, _ = scan(lambda c, _: (c[::-1] * c + 0.1 * c.sum(), None), x, max_steps=5)
    agree([x], [out], vector(size))


def test_rows_of_arrays_of_one_entry_which_are_numbers() -> None:
    x, rows = pt.dvector("x"), pt.tensor("rows", dtype="float64", shape=(1,))
    one = pt.tensor("one", dtype="float64", shape=(1,))
    last, trace = scan(lambda c, row: (c * 0.5 + row, c.sum()), x, rows)
    agree([x, rows], [last, trace], vector(5), vector(1))
    last, trace = scan(lambda c, _: (c * 0.5, c), one, pt.arange(1))
    agree([one], [last, trace], vector(1))


def test_initial_state_is_a_view_that_a_function_returns() -> None:
    x, n = pt.tensor("x", dtype="float64", shape=(64,)), pt.lscalar("n")

    def step(carry: Any, _: Any, n: Any) -> Any:
        view = pt.set_subtensor(carry[20], 2 * carry[0]).reshape((n, -1))
        inner, _ = scan(lambda c, _: (c[::-1] * c, None), view, max_steps=2)
        other = pt.set_subtensor(carry[21], inner.sum())
        return carry * other * 0.1 + inner.reshape((64,)), None

    out, _ = scan(step, x, constants=n, max_steps=2)
    agree([x, n], [out], vector(64), 8)


def test_outputs_of_a_conditional_are_not_its_inputs() -> None:
    x, n = pt.dvector("x"), pt.lscalar("n")

    def step(carry: Any, _: Any) -> Any:
        one, other = carry
        chosen = ifelse(pt.lt(one[0], 5), one, other)
        return (chosen + 1, pt.set_subtensor(one[1], chosen[0] + one[2])), None

    out, _ = scan(step, (x, 2 * x), max_steps=n)
    agree([x, n], out, np.arange(1.0, 9), 6)


def test_picked_entries_of_complex_arithmetic() -> None:
    x = pt.dvector("x")
    indices = pt.constant(np.array([0, 2, 1]))
    out, _ = scan(lambda c, _: (c + (c[indices] * 1j).imag.sum(), None), x, max_steps=3)
    agree([x], [out, x[indices] * 1j], vector(5))


@pytest.mark.parametrize("step", [2**63 - 1, -(2**63), 3, -3])
def test_slices_of_large_steps(step: int) -> None:
    x, k = pt.dvector("x"), pt.lscalar("k")
    total, _ = scan(lambda c, _: (2 * c, None), pt.constant(np.array(1.0)), max_steps=3)
    f = pytensor.function([x, k], [x[::k], x[3::k], x[:2:k], x[4:1:k], total], mode="NUMBA")
    values, s = vector(5), slice
    slices = [s(None, None, step), s(3, None, step), s(None, 2, step), s(4, 1, step)]
    compare(f(values, step), [*(values[part] for part in slices), 8.0])


def test_a_negative_length_is_an_error_only_if_there_is_a_step() -> None:
    """Memory of a loop is allocated before it."""
    x, n, length = pt.dvector("x"), pt.lscalar("n"), pt.lscalar("length")
    last, _ = scan(
        lambda c, i, constants: (
            c + pt.tanh(pt.cumsum(pt.alloc(c[0], constants[0]))).sum(),
            None,
        ),
        x,
        pt.arange(n),
        constants=(length,),
    )
    function = pytensor.function([x, n, length], last, mode="NUMBA")
    np.testing.assert_array_equal(function([1.0, 2.0], 0, -3), [1.0, 2.0])
    with pytest.raises(ValueError, match="negative"):
        function([1.0, 2.0], 1, -3)


def test_one_index_of_several_vectors_is_for_all() -> None:
    x, i, j = pt.dmatrix("x"), pt.lvector("i"), pt.lvector("j")
    total, _ = scan(lambda c, _: (2 * c, None), pt.constant(np.array(1.0)), max_steps=3)
    outputs = [x[i, j], 2 * x[i, j], x[i, j].sum(), pt.inc_subtensor(x[i, j], 1.0), total]
    values = np.arange(12.0).reshape(3, 4)
    f = pytensor.function([x, i, j], outputs, mode="NUMBA")
    for one, other in (([1], [0, 2]), ([0, 2], [3]), ([2], [2]), ([1], []), ([0, 1], [2, 3])):
        rows, columns = np.array(one, dtype=int), np.array(other, dtype=int)
        picked, added = values[rows, columns], values.copy()
        np.add.at(added, (rows, columns), 1)
        compare(f(values, rows, columns), [picked, 2 * picked, picked.sum(), added, 8.0])
    with pytest.raises(ValueError, match=r"lengths|shape"):
        f(values, np.arange(2), np.arange(3))


def test_array_of_a_negative_length_that_is_known() -> None:
    x, n = pt.dvector("x"), pt.lscalar("n")
    total, _ = scan(lambda c, _: (2 * c, None), pt.constant(np.array(1.0)), max_steps=3)
    outputs = [pt.alloc(x[0], n) * x[0], total]
    f = pytensor.function([x], outputs, givens={n: pt.constant(np.int64(-1))}, mode="NUMBA")
    with pytest.raises(ValueError, match="negative dimensions"):
        f(np.ones(3))


def test_outputs_of_a_branch_are_parts_of_one_array() -> None:
    x, c = pt.dvector("x"), pt.lscalar("c")
    branches = [
        OpFromGraph([x], [made[1:], made[:-1]]) for made in (pt.cumsum(x), pt.cumsum(2 * x))
    ]
    chosen = LazyIfElse(*branches, [x.type, x.type])(c, x)
    others = [pt.cumsum(x * i) for i in range(2, 6)]
    total, _ = scan(lambda c, _: (2 * c, None), pt.constant(np.array(1.0)), max_steps=3)
    f = pytensor.function([x, c], [*chosen, *others, total], mode="NUMBA")
    values = vector(900)
    for condition, factor in ((1, 1), (0, 2)):
        made = np.cumsum(factor * values)
        wanted = [made[1:], made[:-1], *(np.cumsum(values * i) for i in range(2, 6)), 8.0]
        compare(f(values, condition), wanted)


def test_complex_states_which_have_no_rule() -> None:
    z, w, n = pt.zvector("z"), pt.zvector("w"), pt.lscalar("n")
    values = vector(300) * (1 + 2j), vector(301)[:300] * 2j
    last, _ = scan(lambda c, _: (c * 1j + 1, None), z, max_steps=n)
    agree([z, n], [last], values[0], 4)
    for following in ([z, w * 2 + z], [w, z]):
        body = Body(index=pt.lscalar("index"), states=[z, w], next_states=following)
        loop = Loop(body.freeze(), 2)
        agree([z, w, n], loop(n, z, w, return_list=True), *values, 3)


def test_generators_that_a_step_draws_from() -> None:
    rng, n = random_generator_type("rng"), pt.lscalar("n")

    def step(carry: Any, _: Any) -> Any:
        state, total = carry
        following, drawn = normal(0.0, 1.0, rng=state, dtype="float64").owner.outputs
        return (following, total + drawn), None

    (_, total), _ = scan(step, (rng, pt.zeros((), dtype="float64")), max_steps=n)
    f = pytensor.function([rng, n], total, mode="NUMBA")
    given = np.random.default_rng(3)
    wanted = np.random.default_rng(3).normal(size=6).sum()
    with no_leaks():
        for _ in range(3):
            np.testing.assert_allclose(f(given, 6), wanted, rtol=1e-12)


def test_places_of_entries_that_a_condition_picks() -> None:
    x, last = pt.matrix("x"), pt.vector("last")
    _, rows = scan(lambda c, row: (c + row, c * row), last, x)
    picked = rows[x > 1]
    last_places = pt.nonzero(rows > 1)[1]
    agree([x, last], [picked, last_places], vector(12).reshape(4, 3), vector(3))
    number, _ = scan(lambda c, _: (c * 0.5, None), pt.ones((1, 1)), max_steps=3)
    agree([], list(pt.nonzero(number)))
