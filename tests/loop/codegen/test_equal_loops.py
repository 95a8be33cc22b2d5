"""Equal loops of a graph are one function, which each of them calls; others are written apart."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.conditional.op import ifelse

from scanopt_cli import loop
from support.compiled_ways import NUMBA
from support.direct_code import no_leaks

type Build = Callable[..., Sequence[Any]]

_RNG = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def _nothing_is_read_from_disk() -> Iterator[None]:
    """Have each test compile, so that there is code to look at."""
    with pytensor.config.change_flags(numba__cache=False):
        yield


def count_functions(compiled: Any) -> int:
    """Return how many functions of loops LLVM compiled: of which it inlines those called once."""
    (code,) = compiled.vm.jit_fn.inspect_llvm().values()
    return len(re.findall(r'^define internal .*@"?equal_loops', code, re.MULTILINE))


def compare(inputs: Sequence[Any], outputs: Sequence[Any], values: Sequence[Any]) -> Any:
    """Check what a graph computes against a virtual machine's values; return the function."""
    compiled = pytensor.function(list(inputs), list(outputs), mode=NUMBA, trust_input=True)
    plain = pytensor.function(list(inputs), list(outputs), mode="FAST_COMPILE")
    kept = [np.copy(v) for v in values]
    wanted, found = plain(*values), compiled(*values)
    with no_leaks():
        compiled(*values)
    for new, old in zip(found, wanted, strict=True):
        assert (new.shape, new.dtype) == (np.shape(old), old.dtype)
        np.testing.assert_allclose(new, old, rtol=2e-5 if new.dtype == np.float32 else 1e-11)
    for after, before in zip(values, kept, strict=True):
        np.testing.assert_array_equal(after, before)
    return compiled


def _map(x: Any, row: Any, rate: Any) -> Any:
    new = pt.tanh(x * rate + row)
    return new, new * 2


def _matrix(x: Any, row: Any, rate: Any) -> Any:
    new = pt.tanh(x @ x.T * rate + row)
    return new, new[0]


def _two(build: Any, start: Any, rate: Any, *rows: Any) -> list[Any]:
    return [v for one in rows for v in loop.scan(build, start, one, rate)]


STATES = {
    "numbers": (_map, (), ()),
    "arrays of known lengths": (_map, (3,), (3,)),
    "arrays": (_map, (None,), (3,)),
    "matrices": (_matrix, (2, 2), (2, 2)),
    "matrices of any lengths": (_matrix, (None, None), (2, 2)),
}


@pytest.mark.parametrize("name", STATES)
def test_equal_loops_share_a_function(name: str) -> None:
    """Last values and traces of loops over rows of their own, of one start that both read."""
    step, kind, shape = STATES[name]
    start = pt.tensor("start", dtype="float64", shape=kind)
    rate = pt.dscalar("rate")
    rows = [pt.tensor(f"rows{i}", dtype="float64", shape=(None, *kind)) for i in range(3)]
    outputs = _two(step, start, rate, *rows)
    values = [_RNG.normal(size=(n, *shape)) for n in (4, 0, 7)]
    compiled = compare(
        [start, rate, *rows], outputs, [_RNG.normal(size=shape), np.array(0.3), *values]
    )
    assert count_functions(compiled) == 1


def _twins(
    one: Callable[[Any, Any], Any], other: Callable[[Any, Any], Any], dtypes: str = "dd"
) -> Any:
    starts = [pt.scalar(f"start{i}", dtype=dtype) for i, dtype in enumerate(dtypes)]
    rows = [pt.vector(f"rows{i}", dtype=dtype) for i, dtype in enumerate(dtypes)]
    outputs = [
        loop.scan(step, start, row)[0]
        for step, start, row in zip((one, other), starts, rows, strict=True)
    ]
    values = [np.array(0.4, v.dtype) for v in starts]
    values += [_RNG.normal(size=n).astype(v.dtype) for n, v in zip((4, 6), rows, strict=True)]
    return compare([*starts, *rows], outputs, values)


def _times(factor: float) -> Callable[[Any, Any], Any]:
    def step(x: Any, row: Any) -> Any:
        return (pt.tanh(x * np.asarray(factor, x.dtype) + row),) * 2

    return step


def test_twins() -> None:
    assert count_functions(_twins(_times(0.5), _times(0.5))) == 1


def test_other_constants_in_the_body() -> None:
    assert count_functions(_twins(_times(0.5), _times(0.25))) == 0


def test_other_dtypes() -> None:
    assert count_functions(_twins(_times(0.5), _times(0.5), "df")) == 0


def test_other_order_of_what_a_step_reads() -> None:
    def turned(x: Any, row: Any) -> Any:
        return (pt.tanh(row * np.float64(0.5) + x),) * 2

    assert count_functions(_twins(_times(0.5), turned)) == 0


def _last(x: Any, _row: Any) -> Any:
    return pt.sin(x) * 2, None


def test_known_numbers_of_steps() -> None:
    """Loops of equal bodies, one of which has a number of steps that is known."""
    x, n = pt.dscalar("x"), pt.lscalar("n")
    many, some = (loop.scan(_last, x, max_steps=steps)[0] for steps in (n, 900))
    compiled = compare([x, n], [many, some], [np.array(0.3), np.array(5)])
    assert count_functions(compiled) == 0
    others = [loop.scan(_last, x, max_steps=steps)[0] for steps in (n, n * 2)]
    compiled = compare([x, n], others, [np.array(0.3), np.array(5)])
    assert count_functions(compiled) == 1


def test_while_loops_are_no_other_loops() -> None:
    n, m, x = pt.lscalar("n"), pt.lscalar("m"), pt.dscalar("x")

    def until(limit: Any, steps: Any) -> Any:
        return loop.while_loop(
            lambda x, limit: x < limit, lambda x, _limit: x * 2 + 1, x, limit, max_steps=steps
        )

    outputs = [until(pt.cast(v, "float64"), steps) for v, steps in ((n, m), (m, n))]
    compiled = compare([n, m, x], outputs, [np.array(7), np.array(40), np.array(0.5)])
    assert count_functions(compiled) == 1


def test_initial_values_that_may_be_overwritten_and_others() -> None:
    """One loop may overwrite its start, which nobody else reads; the other one copies an input."""
    x, rows, other = pt.dvector("x"), pt.dmatrix("rows"), pt.dmatrix("other")
    outputs = [
        loop.scan(lambda x, row: (pt.tanh(x + row), None), start, several)[0]
        for start, several in ((x, rows), (pt.exp(x), other))
    ]
    values = [_RNG.normal(size=3), _RNG.normal(size=(4, 3)), _RNG.normal(size=(5, 3))]
    compiled = compare([x, rows, other], outputs, values)
    assert count_functions(compiled) == 0


def test_starts_that_are_made_for_the_loops() -> None:
    """The function gives the memory of the start up, or returns it, for each of its callers."""
    x, rows, other = pt.dvector("x"), pt.dmatrix("rows"), pt.dmatrix("other")
    outputs = [
        loop.scan(lambda x, row: (pt.tanh(x + row), None), start, several)[0].sum()
        for start, several in ((pt.log1p(x**2), rows), (pt.exp(x), other))
    ]
    values = [_RNG.normal(size=3), _RNG.normal(size=(4, 3)), _RNG.normal(size=(5, 3))]
    compiled = compare([x, rows, other], outputs, values)
    assert count_functions(compiled) == 1
    values[1], values[2] = values[1][:0], values[2][::-1, ::-1]
    np.testing.assert_allclose(compiled(*values)[0], np.log1p(values[0] ** 2).sum())


def test_states_that_are_written_in_place() -> None:
    x, n, m = pt.dvector("x"), pt.lscalar("n"), pt.lscalar("m")

    def loops(start: Any, steps: Any) -> Any:
        def step(x: Any, i: Any) -> Any:
            return pt.set_subtensor(x[i], x[i - 1] * 2 + 1), None

        return loop.scan(step, start, pt.arange(steps))[0]

    compiled = compare(
        [x, n, m],
        [loops(pt.exp(x), n), loops(pt.cosh(x), m)],
        [_RNG.normal(size=5), *map(np.array, (3, 5))],
    )
    assert count_functions(compiled) == 1


def test_an_input_twice_and_two_inputs() -> None:
    """What is known to be the same array in one loop is not in the other one."""
    x, one, other = pt.dscalar("x"), pt.dvector("one"), pt.dvector("other")

    def loops(*rows: Any) -> Any:
        return loop.scan(lambda x, v: (pt.tanh(x * v[0] + v[1]), None), x, rows)[0]

    values = [np.array(0.3), _RNG.normal(size=4), _RNG.normal(size=4)]
    compiled = compare([x, one, other], [loops(one, one), loops(one, other)], values)
    assert count_functions(compiled) == 0


def test_loops_inside() -> None:
    """What a function does in each step is in it, a loop as well, which stays where it is."""
    x = pt.dvector("x")
    rows = [pt.dmatrix(f"rows{i}") for i in range(2)]

    def step(x: Any, row: Any) -> Any:
        last, _ = loop.scan(lambda z, v: (pt.cos(z) * v, None), x, row)
        return pt.tanh(last + x), last

    outputs = [v for several in rows for v in loop.scan(step, x, several)]
    values = [_RNG.normal(size=3), _RNG.normal(size=(4, 2)), _RNG.normal(size=(3, 5))]
    compiled = compare([x, *rows], outputs, values)
    assert count_functions(compiled) == 1


def test_equal_loops_inside_of_one() -> None:
    """Loops in a step share none: their memory is allocated before the loop around them."""
    x, rows = pt.dvector("x"), pt.dmatrix("rows")

    def inner(x: Any, rows: Any) -> Any:
        return loop.scan(lambda z, v: (pt.cos(z) * v, None), x, rows)[0]

    def step(x: Any, row: Any) -> Any:
        return inner(inner(x, row), row * 2), None

    last, _ = loop.scan(step, x, rows)
    compiled = compare([x, rows], [last], [_RNG.normal(size=3), _RNG.normal(size=(4, 2))])
    assert count_functions(compiled) == 0


def test_loops_in_branches() -> None:
    x, flag = pt.dscalar("x"), pt.bscalar("flag")
    rows = [pt.dvector(f"rows{i}") for i in range(2)]
    one, other = (loop.scan(_times(0.5), x, several)[0] for several in rows)
    outputs = [ifelse(flag, one, other), ifelse(flag, other * 2, one)]
    for choice in (0, 1):
        values = [np.array(0.3), np.array(choice, "int8"), _RNG.normal(size=4), _RNG.normal(size=6)]
        compare([x, flag, *rows], outputs, values)


@pytest.mark.parametrize("place", [0, 1])
def test_errors(place: int) -> None:
    """Each caller passes on what the function raises, and computes nothing after it."""
    x = pt.dscalar("x")
    steps = [pt.lscalar(f"n{i}") for i in range(2)]
    row = pt.dvector("row")

    def of(n: Any) -> Any:
        return loop.scan(lambda x, i, row: (x * row[i], None), x, pt.arange(n), row)[0]

    inputs, outputs = [x, row, *steps], [of(n) for n in steps]
    function = pytensor.function(inputs, outputs, mode=NUMBA)
    assert function(1.5, np.arange(1.0, 4), 2, 3) == [3.0, 9.0]
    assert count_functions(function) == 1
    counts = [2, 2]
    counts[place] = 4
    with pytest.raises(IndexError, match=r"out of bounds|not there"):
        function(1.5, np.arange(1.0, 4), *counts)
    assert function(1.5, np.arange(1.0, 4), 2, 3) == [3.0, 9.0]


_PROGRAM = """
import json, sys
import numpy as np, pytensor, pytensor.tensor as pt
import scanopt_cli as so

x, rows = pt.dscalar("x"), [pt.dvector(f"rows{i}") for i in range(2)]
def step(row, x, rate):
    return pt.tanh(x * rate + row)
parts = [
    pytensor.scan(step, sequences=[v], outputs_info=[x], non_sequences=[x], return_updates=False)
    for v in rows
]
total = sum(part.sum() for part in parts)
with so.enabled() as block:
    f = pytensor.function([x, *rows], [total, pt.grad(total, x)], mode="NUMBA")
values = f(0.3, np.arange(4.0), np.arange(7.0))
stages = block.records()[0].compilation().stages
print(json.dumps([[float(v).hex() for v in values], stages.writing > 0]))
"""


def test_a_second_process_reads_the_function(tmp_path: Any) -> None:
    flags = f'{os.environ.get("PYTENSOR_FLAGS", "")},base_compiledir="{tmp_path}"'.strip(",")
    environment = {**os.environ, "PYTENSOR_FLAGS": flags, "SCANOPT_CACHE": str(tmp_path)}
    found = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", _PROGRAM],
                env=environment,
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )
        for _ in range(2)
    ]
    assert found[0][0] == found[1][0]
    assert [was_written for _, was_written in found] == [True, False]


def test_threads() -> None:
    """A function keeps nothing from call to call."""
    x, rate = pt.dvector("x"), pt.dscalar("rate")
    rows = [pt.dmatrix(f"rows{i}") for i in range(2)]
    compiled = pytensor.function(
        [x, rate, *rows], _two(_map, x, rate, *rows), mode=NUMBA, trust_input=True
    )
    values = [np.ones(3), np.array(0.3), _RNG.normal(size=(200, 3)), _RNG.normal(size=(300, 3))]
    code = compiled.vm.jit_fn
    wanted = code(*values)
    with ThreadPoolExecutor(4) as pool:
        several = list(pool.map(lambda _: code(*values), range(40)))
    for found in several:
        for new, old in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(new, old)
