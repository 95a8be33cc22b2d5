"""Functions in vector instructions: as accurate as the C library's, and used where they pay."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numba import njit
from pytensor.compile.mode import Mode
from pytensor.graph.fg import FunctionGraph
from pytensor.scalar.basic import Composite, add, cast, float64
from pytensor.scalar.basic import exp as scalar_exp
from pytensor.scalar.basic import log as scalar_log
from pytensor.scalar.basic import tanh as scalar_tanh
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli import loop
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.loop.vector_math import FUNCTIONS, VectorFunction, use_vector_functions
from support.evaluating import PLAIN
from support.llvm_functions import IN_LLVM, IN_PLACE
from support.tiers import deep, examples

NAMES = sorted(FUNCTIONS)
# In units in the last place of the exact value.
ERRORS = {"exp": 1.01, "expm1": 2.0, "log": 1.0, "log1p": 2.0, "sigmoid": 2.5, "tanh": 2.6}
_QUICK = [("exp", 9), ("log", 4)]
SPECIAL = np.array(
    [
        *(np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.0, -0.999),
        *(5e-324, -5e-324, 2.3e-308, 1e308, -1e308, 22.1, -22.1, 36.8, -36.8),
        *(709.78, 709.79, -708.5, -740.0, -745.1, -745.2, -800.0),
    ]
)


def compiled(name: str, values: np.ndarray) -> np.ndarray:
    function: Any = IN_LLVM[name]

    @njit(error_model="numpy")
    def entries(values: Any) -> Any:
        made = np.empty_like(values)
        for i in range(values.size):
            made[i] = function(values[i])
        return made

    found: np.ndarray = entries(values)
    return found


def arguments(name: str) -> np.ndarray:
    rng, n = np.random.default_rng(0), examples(20_000, 1_000_000)
    sizes = 10.0 ** rng.uniform(-300, 2.8, n)
    near_one = 1 + rng.uniform(-1, 1, n) * 10.0 ** rng.uniform(-15, 0, n)
    values = np.concatenate([3 * rng.normal(size=n), rng.uniform(-1, 1, n) * sizes, near_one])
    if name == "log":
        return np.abs(np.concatenate([values, 10.0 ** rng.uniform(-320, 308, n)]))
    return values[values > -1] if name == "log1p" else values


# NumPy's long doubles are doubles on some machines (ARM, Windows); those of CI have 64 bits.
@pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 60, reason="this machine has no more exact numbers"
)
@pytest.mark.parametrize("name", NAMES)
def test_errors_are_of_the_last_digit(name: str) -> None:
    values = arguments(name)
    with np.errstate(all="ignore"):
        exact = FUNCTIONS[name].impl(values.astype(np.longdouble))
        is_normal = (np.abs(exact) > 2.3e-308) & (np.abs(exact) < 1.7e308)
        units = np.spacing(np.abs(exact).astype(float))
        errors = np.abs(compiled(name, values) - exact) / units
    assert np.max(errors[is_normal]) <= ERRORS[name]
    small = np.abs(exact) <= 2.3e-308
    assert np.max(np.abs(compiled(name, values) - exact)[small], initial=0.0) <= 1e-323


@pytest.mark.parametrize("name", NAMES)
def test_special_values(name: str) -> None:
    with np.errstate(all="ignore"):
        expected = FUNCTIONS[name].impl(SPECIAL)
    found = compiled(name, SPECIAL)
    np.testing.assert_allclose(found, expected, rtol=1e-15, atol=1e-323)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(expected[known]))


@pytest.mark.parametrize("name", NAMES)
def test_single_precision(name: str) -> None:
    """The result is the float32 that is nearest to that of float64, in arrays of any length."""
    limits = np.float32([88.7, 88.8, -87.3, -103.9, -104.1, 1e-45, -1e-45, 3e38, -3e38])
    with np.errstate(all="ignore"):
        values = np.concatenate([SPECIAL.astype("float32"), limits, np.float32(arguments(name))])
        expected = compiled(name, values.astype("float64")).astype("float32")
    np.testing.assert_array_equal(compiled(name, values), expected)
    function: Any = IN_PLACE[name]

    @njit
    def in_place(values: Any) -> None:
        function(values)

    for size in (1, 7, 8, 40):
        part, wanted = values[:size].copy(), expected[:size]
        in_place(part)
        np.testing.assert_array_equal(part, wanted)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        *_QUICK,
        *deep(*(each for each in product(NAMES, (1, 4, 9)) if each not in _QUICK)),
    ],
)
def test_several_in_one_vector(name: str, count: int) -> None:
    function: Any = IN_LLVM[name]

    @njit
    def of_several(values: Any) -> Any:
        return function(values)

    for start in range(0, SPECIAL.size, count):
        values = np.resize(SPECIAL[start : start + count], count)
        np.testing.assert_array_equal(of_several(tuple(values)), compiled(name, values))


@pytest.mark.parametrize("name", NAMES)
def test_vectors_of_usual_numbers(name: str) -> None:
    """Code that is for vectors without special numbers gives what that for any number does."""
    function: Any = IN_PLACE[name]

    @njit
    def in_place(values: Any) -> None:
        function(values)

    usual = np.abs(arguments(name)) + 1e-300
    mixed = usual.copy()
    mixed[::13] = np.resize(SPECIAL, mixed[::13].size)
    for values in (usual, mixed):
        expected = compiled(name, values)
        in_place(values)
        np.testing.assert_array_equal(values, expected)


def numbers_of(function: Any, count: int) -> tuple[Elemwise, list[np.ndarray]]:
    """Return fused arithmetic of numbers, and values for them."""
    numbers = [float64() for _ in range(count)]
    made = function(*numbers)
    fused = Elemwise(Composite(numbers, made if isinstance(made, list) else [made]))
    return fused, [np.array(0.3 + i / 7) for i in range(count)]


def dependent(*xs: Any) -> list[Any]:
    """Four exponentials, of which two are of logarithms, and the other way round."""
    exps, logs = [scalar_exp(x) for x in xs[:2]], [scalar_log(x) for x in xs[2:]]
    return [*exps, *logs, *(scalar_exp(x) for x in logs), *(scalar_log(x + 1.0) for x in exps)]


GATHERED: dict[str, tuple[Any, int, list[tuple[str, int]]]] = {
    "one after the other": (
        lambda x: scalar_exp(scalar_exp(scalar_exp(scalar_exp(-x)))),
        1,
        [],
    ),
    "three": (lambda *xs: add(*map(scalar_exp, xs)), 3, []),
    "four": (lambda *xs: add(*map(scalar_exp, xs)), 4, [("exp", 4)]),
    "of two functions": (
        lambda *xs: scalar_log(add(*map(scalar_exp, xs))) + add(*map(scalar_log, xs)),
        5,
        [("exp", 5), ("log", 5)],
    ),
    "of each other": (
        lambda *xs: [*dependent(*xs[:4]), *dependent(*xs[4:])],
        8,
        [("exp", 4), ("exp", 4), ("log", 4), ("log", 4)],
    ),
    "of another dtype": (
        lambda *xs: add(*(scalar_exp(cast(x, "float32")) for x in xs)),
        4,
        [("exp", 4)],
    ),
    "of two dtypes": (
        lambda *xs: add(
            *map(scalar_exp, xs[:3]), *(scalar_exp(cast(x, "float32")) for x in xs[3:])
        ),
        6,
        [],
    ),
}


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("name", GATHERED)
def test_numbers_are_computed_together(name: str) -> None:
    function, count, expected = GATHERED[name]
    fused, values = numbers_of(function, count)
    scalars = [pt.dscalar() for _ in range(count)]
    results: Any = fused(*scalars, return_list=True)
    graph = FunctionGraph(scalars, results, clone=True)
    use_vector_functions(graph)
    (node,) = graph.apply_nodes
    ops = [inner.op for inner in node.op.scalar_op.fgraph.toposort()]
    found = [(op.function, op.nin) for op in ops if isinstance(op, VectorFunction)]
    assert sorted(found) == expected
    compiled_both = [
        pytensor.function(list(inputs), list(outputs), mode=mode)
        for inputs, outputs, mode in (
            (scalars, results, PLAIN),
            (graph.inputs, graph.outputs, Mode("numba", None)),
        )
    ]
    for new, old in zip(*(f(*values) for f in compiled_both), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-6 if "dtype" in name else 1e-14)


def replaced(*outputs: Any) -> list[str]:
    """Return the functions of a graph after the rewrite."""
    graph = FunctionGraph(outputs=list(outputs), clone=True)
    use_vector_functions(graph)
    return functions(graph)


def functions(graph: FunctionGraph) -> list[str]:
    """Return the vector functions of a graph and its bodies."""
    ops = [node.op.scalar_op for node in walk(graph) if isinstance(node.op, Elemwise)]
    scalars = [node.op for op in ops if isinstance(op, Composite) for node in op.fgraph.toposort()]
    return [op.function for op in (*ops, *scalars) if isinstance(op, VectorFunction)]


def test_functions_of_arrays_are_replaced() -> None:
    x = pt.dvector("x")
    every = [pt.exp(x), pt.expm1(x), pt.log(x), pt.log1p(x), pt.sigmoid(x), pt.tanh(x)]
    assert sorted(replaced(*every)) == NAMES


def test_functions_inside_of_fused_arithmetic_are_replaced() -> None:
    number = float64()
    fused = Elemwise(Composite([number], [scalar_exp(number) + scalar_tanh(number)]))
    assert sorted(replaced(fused(pt.dvector("x")))) == ["exp", "tanh"]
    assert replaced(fused(pt.dscalar("x"))) == ["tanh"]


@pytest.mark.parametrize("dtype", ["int64", "complex128"])
def test_other_dtypes_stay(dtype: str) -> None:
    assert replaced(pt.exp(pt.vector("x", dtype=dtype))) == []


def test_work_in_place_stays_in_place() -> None:
    x = pt.dvector("x")
    node = Elemwise(scalar_exp, {0: 0}).make_node(x)
    graph = FunctionGraph([x], node.outputs, clone=False)
    use_vector_functions(graph)
    assert graph.outputs[0].owner.op.inplace_pattern == {0: 0}


@pytest.mark.deep
def test_loops_in_numba_use_them() -> None:
    x = pt.tensor("x", shape=(5,))
    last, trace = loop.scan(
        lambda h, _: (pt.tanh(h) + pt.exp(-(h**2)) * pt.sigmoid(h),) * 2, x, pt.arange(7.0)
    )
    f = pytensor.function([x], [last, trace], mode="NUMBA")
    assert set(functions(f.maker.fgraph)) >= {"exp", "sigmoid", "tanh"}
    h = start = np.linspace(-2, 2, 5)
    for _ in range(7):
        h = np.tanh(h) + np.exp(-(h**2)) / (1 + np.exp(-h))
    np.testing.assert_allclose(f(start)[0], h, rtol=1e-13)
