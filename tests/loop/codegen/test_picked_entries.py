"""Entries that arrays of indices pick and write: vectors, one index for all, and numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import scanopt_cli.loop.codegen.functions  # noqa: F401  # registers what it compiles
from scanopt_cli.loop import scan
from support.compiled_ways import VM
from support.direct_code import compare, no_leaks

INDICES = {
    "one and one": ([1], [2]),
    "one and several": ([1], [0, 2, 3]),
    "several and one": ([2, 0], [3]),
    "a number and several": (1, [0, 3, 3]),
    "several and a number": ([0, 2, 0], -1),
    "several": ([0, 2], [-1, 0]),
}


def constant(index: Any) -> Any:
    return pt.constant(np.asarray(index, dtype="uint8" if np.min(index) >= 0 else "int8"))


@pytest.mark.parametrize("case", INDICES)
@pytest.mark.parametrize("rest", [(), (2,)])
def test_reads_and_writes(case: str, rest: tuple[int, ...]) -> None:
    rows, columns = (constant(index) for index in INDICES[case])
    x = pt.tensor("x", dtype="float64", shape=(3, 4, *rest))
    y = pt.tensor("y", dtype="float64", shape=(1, *rest))
    picked = x[rows, columns]
    added, put = pt.inc_subtensor(picked, y), pt.set_subtensor(picked, y)
    unknown = pt.tensor("z", dtype="float64", shape=(None, None, *rest))

    def step(carry: Any, _: Any) -> Any:
        read = carry[rows, columns]
        return pt.inc_subtensor(read, 2 * read), None

    last, _ = scan(step, x, max_steps=3)
    outputs = [picked, 3 * picked, picked.sum(axis=0), added, put, last, unknown[rows, columns]]
    values = [np.arange(12.0 * (rest or (1,))[0]).reshape(3, 4, *rest), np.full((1, *rest), 7.0)]
    values.append(values[0] + 1)
    wanted = pytensor.function([x, y, unknown], outputs, mode=VM)(*values)
    f = pytensor.function([x, y, unknown], outputs, mode="NUMBA")
    compare(f(*values), wanted)
    with no_leaks():
        compare(f(*values), wanted)
    with pytest.raises(IndexError):
        f(*values[:2], values[2][:1, :1])


def test_what_has_gaps_is_reshaped() -> None:
    x = pt.tensor("x", dtype="float64", shape=(3, 2))
    y, n = pt.matrix("y"), pt.lscalar("n")
    last, _ = scan(lambda c, _: (c.T.reshape((3, 2)) + 1, None), x, max_steps=3)
    outputs = [x.T.reshape((6,)), y[::-1].reshape((-1,)), y.T.reshape((n, 2, 1)), last]
    values = np.arange(6.0).reshape(3, 2), np.arange(8.0).reshape(4, 2), 4
    wanted = pytensor.function([x, y, n], outputs, mode=VM)(*values)
    f = pytensor.function([x, y, n], outputs, mode="NUMBA")
    compare(f(*values), wanted)
    with no_leaks():
        compare(f(*values), wanted)
    with pytest.raises(ValueError, match="reshape"):
        f(*values[:2], 3)


def test_the_only_entry_of_an_array() -> None:
    x, y = (pt.tensor(name, dtype="float64", shape=(1, 1)) for name in "xy")
    zero = constant([0])
    last, _ = scan(lambda c, _: (pt.inc_subtensor(c[zero, zero], 2.0), None), x, max_steps=3)
    picked = x[zero, zero]
    several = x[constant([0, 0, -1]), zero]
    written = [pt.set_subtensor(picked, y[0]), pt.inc_subtensor(picked, y[0])]
    outputs = [picked, several, *written, pt.inc_subtensor(several, 1.5), last, x[zero]]
    values = np.full((1, 1), 3.0), np.full((1, 1), 4.0)
    wanted = pytensor.function([x, y], outputs, mode=VM)(*values)
    f = pytensor.function([x, y], outputs, mode="NUMBA")
    compare(f(*values), wanted)
    with no_leaks():
        compare(f(*values), wanted)
    out, _ = scan(lambda c, _: (c[constant([1]), zero].reshape((1, 1)), None), x, max_steps=2)
    with pytest.raises(IndexError):
        pytensor.function([x], out, mode="NUMBA")(values[0])
