"""Ranges of integers, parts by their sizes, and the positions of the largest entries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.tensor.math import Argmax

from scanopt_cli.loop import scan
from support.direct_code import check, compare, inside, laid_out, only_rules, outside
from support.tiers import deep

AXES: dict[str, tuple[tuple[int, ...], tuple[int, ...] | None]] = {
    "all": ((3, 4), None),
    "rows": ((3, 4), (1,)),
    "columns": ((3, 4), (0,)),
    "vector": ((5,), (0,)),
    "one entry": ((1, 1), (0,)),
    "one of all": ((3, 1), (1,)),
    "first and last": ((2, 3, 4), (0, 2)),
    "last two": ((2, 3, 4), (1, 2)),
    "none left out": ((0, 3), (1,)),
}


def by_vm(inputs: list[Any], outputs: list[Any]) -> Any:
    return pytensor.function(inputs, outputs, mode=Mode("vm", "fast_compile"))


@pytest.mark.tiered(every=4)
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("name", AXES)
def test_argmax(name: str, *, known: bool) -> None:
    shape, axis = AXES[name]
    rng = np.random.default_rng(len(name))
    cases = [rng.integers(0, 3, size=shape).astype("float64"), rng.normal(size=shape)]
    for value in [c.copy() for c in cases if c.size]:
        value.flat[[value.size // 2, -1]] = np.nan
        cases.append(value)
    static = shape if known else (None,) * len(shape)
    x = pt.tensor("x", dtype="float64", shape=static)
    wanted = by_vm([x], [Argmax(axis)(x)])
    direct, stepped = (make([x], Argmax(axis)) for make in (outside, inside))
    for value in cases:
        for layout in ("rows", "columns", "reversed", "strided"):
            given = laid_out(value, layout)
            compare(direct(given), wanted(given))
            stacked = laid_out(np.stack([value, -value, value]), layout)
            (found,) = stepped(stacked)
            for row, entries in zip(found, (value, -value, value), strict=True):
                compare([row], wanted(entries))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", *deep("float32", "int32")])
def test_argmax_of_a_dtype(dtype: str) -> None:
    x = pt.tensor("x", dtype=dtype, shape=(None, None))
    values = np.random.default_rng(1).integers(-100, 100, size=(4, 5)).astype(dtype)
    for axis in (None, (0,), (1,)):
        compare(outside([x], Argmax(axis))(values), by_vm([x], [Argmax(axis)(x)])(values))


def test_argmax_of_nothing() -> None:
    x = pt.dmatrix("x")
    f = outside([x], Argmax((1,)))
    with pytest.raises(ValueError, match="attempt to get argmax of an empty sequence"):
        f(np.zeros((2, 0)))


RANGES = [(0, 5, 1), (0, 0, 1), (5, 0, 1), (2, 9, 3), (2, 8, 3), (9, 2, -3), (-3, 4, 2), (4, 9, -1)]


@pytest.mark.parametrize("dtype", ["int64", "int32", "float64"])
def test_ranges(dtype: str) -> None:
    bounds = [pt.lscalar(name) for name in ("start", "stop", "step")]

    def build(*given: Any) -> Any:
        return pt.arange(*given, dtype=dtype)

    wanted = by_vm(bounds, [build(*bounds)])
    direct = outside(bounds, build)
    for at in RANGES:
        values = [np.array(n) for n in at]
        compare(direct(*values), wanted(*values))
    with pytest.raises(ValueError, match="Maximum allowed size exceeded"):
        direct(*(np.array(n) for n in (0, 3, 0)))


def test_bounds_too_far_apart_to_count() -> None:
    """Their distance has more bits than an integer, but the range has a few entries."""
    bounds = [pt.lscalar(name) for name in ("start", "stop", "step")]
    far = outside(bounds, pt.arange)
    each = outside(bounds[:2], lambda start, stop: pt.arange(start, stop))
    for at in ((-(2**62), 2**62, 2**60), (2**62, -(2**62) - 1, -(2**61)), (2**62, -(2**63), 5)):
        values = [np.array(n) for n in at]
        compare(far(*values), [np.arange(*at)])
    compare(each(np.array(2**62), np.array(-(2**63))), [np.arange(0)])
    with pytest.raises(ValueError, match="Maximum allowed size exceeded"):
        each(np.array(-(2**62)), np.array(2**62))
    constant = outside(bounds[2:], lambda step: pt.arange(pt.constant(-(2**62)), 2**62, step))
    compare(constant(np.array(2**60)), [np.arange(-(2**62), 2**62, 2**60)])


def test_ranges_in_steps() -> None:
    n, x = pt.lscalar("n"), pt.dvector("x")

    def step(carry: Any, x: Any, n: Any) -> Any:
        return carry + (pt.arange(n) * x).sum() + pt.arange(1, 7, 2).sum(), None

    total, _ = scan(step, pt.constant(np.array(0.0)), x, constants=n)
    f = pytensor.function([n, x], total, mode="NUMBA")
    with only_rules():
        assert f(4, np.arange(3.0)) == 6 * 3 + 9 * 3
    assert f(0, np.arange(3.0)) == 9 * 3
    assert f(-2, np.arange(3.0)) == 9 * 3


def test_ranges_of_small_integers() -> None:
    bounds = [pt.scalar(name, dtype="uint8") for name in ("start", "stop")]
    made = outside(bounds, lambda start, stop: pt.arange(start, stop, dtype="uint8"))
    compare(made(np.array(3, "uint8"), np.array(9, "uint8")), [np.arange(3, 9, dtype="uint8")])
    compare(made(np.array(9, "uint8"), np.array(3, "uint8")), [np.zeros(0, "uint8")])


@pytest.mark.tiered(every=4)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("known", [False, True])
def test_split(axis: int, *, known: bool) -> None:
    shape, sizes = ((6, 5), (5, 6))[axis], np.array([2, 0, 4])

    def build(x: Any) -> Any:
        constant = pt.constant(sizes)
        return [2 * v for v in pt.split(x, constant, n_splits=3, axis=axis)]

    static = shape if known else (None, None)
    check(
        build,
        [static],
        [[np.random.default_rng(0).normal(size=shape)]],
        lambda x: [2 * v for v in np.split(x, np.cumsum(sizes)[:-1], axis)],
    )


def test_split_by_sizes_that_are_not_known() -> None:
    x, sizes = pt.dvector("x"), pt.lvector("sizes")
    f = outside([x, sizes], lambda x, sizes: pt.split(x, sizes, n_splits=2, axis=0))
    values = np.arange(5.0)
    compare(f(values, np.array([2, 3])), [values[:2], values[2:]])
    compare(f(values[::-1], np.array([5, 0])), [values[::-1], values[:0]])
    for wrong, error in {
        (2, 2): "Split sizes sum to",
        (-1, 6): "Split sizes cannot be negative",
        (2, 2, 1): "Length of splits is not equal to n_splits",
    }.items():
        with pytest.raises(ValueError, match=error):
            f(values, np.array(wrong))


def test_parts_of_a_split_are_written() -> None:
    """A part is in the memory of the whole, which others read still."""
    x = pt.dvector("x")

    def step(carry: Any, _: Any) -> Any:
        one, other = pt.split(carry, pt.constant([2, 3]), n_splits=2, axis=0)
        return pt.concatenate([pt.set_subtensor(other[0], one.sum()), one]) + carry, None

    last, _ = scan(step, x, max_steps=4)
    wanted = by_vm([x], [last])(np.arange(5.0))
    compare(pytensor.function([x], [last], mode="NUMBA")(np.arange(5.0)), wanted)
