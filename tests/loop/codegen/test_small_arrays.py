"""Small arrays of known lengths, which loops have on the stack of their function."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from llvmlite import ir
from pytensor.conditional.op import ifelse
from pytensor.graph.basic import Variable
from pytensor.scan.utils import until

import scanopt_cli as so
from scanopt_cli.loop.codegen.buffers import Stack
from scanopt_cli.loop.codegen.known_products import known_product
from support.compiled_ways import NUMBA, VM
from support.direct_code import check, no_leaks
from support.graph_building import scan
from support.tiers import deep

V = pt.tensor("v", dtype="float64", shape=(3,))
M = pt.tensor("m", dtype="float64", shape=(3, 3))
ROWS = pt.tensor("rows", dtype="float64", shape=(None, 3))
LONG = pt.tensor("wide", dtype="float64", shape=(70,))
N = pt.lscalar("n")
rng = np.random.default_rng(5)
VALUES = {
    V: rng.normal(size=3),
    M: rng.normal(size=(3, 3)) / 2,
    ROWS: rng.normal(size=(6, 3)),
    LONG: rng.normal(size=70),
}


def _lasts(made: Any) -> list[Any]:
    return [one[-1] for one in (made if isinstance(made, list | tuple) else [made])]


def _nested() -> list[Any]:
    def outer(m: Any, v: Any) -> Any:
        inner = scan(lambda u, m: pt.tanh(m @ u), outputs_info=[v], non_sequences=[m], n_steps=3)
        return m + pt.outer(inner[-1], v), inner[1] * 0.9

    return _lasts(scan(outer, outputs_info=[M, V], n_steps=N))


def _branches() -> list[Any]:
    def step(v: Any, m: Any) -> Any:
        return ifelse(pt.gt(v.sum(), 0), m @ v - 0.5, v + 0.3), pt.switch(v > 0, m, m.T)

    return _lasts(scan(step, outputs_info=[V, M], n_steps=N))


def _until() -> list[Any]:
    def step(v: Any) -> Any:
        return v * 1.5, until(pt.gt(abs(v).max(), 4))

    return [scan(step, outputs_info=[V], n_steps=N + 1)]


# Loops of N steps, at least one.
LOOPS: dict[str, Callable[[], list[Any]]] = {
    "swapped": lambda: _lasts(scan(lambda a, b: (b, a * 0.5), outputs_info=[V, V + 1], n_steps=N)),
    "three in turn": lambda: _lasts(
        scan(lambda a, b, c: (b, c, a), outputs_info=[V, V + 1, V * 2], n_steps=N)
    ),
    "swapped and transposed": lambda: _lasts(
        scan(lambda a, b: (b.T, a[::-1]), outputs_info=[M, M + 1], n_steps=N)
    ),
    "its own transpose": lambda: _lasts(
        scan(lambda a: a.T, outputs_info=[pt.outer(LONG[:5], LONG[5:10])], n_steps=N)
    ),
    "reversed rows": lambda: [scan(lambda a: a[::-1] * 1.1, outputs_info=[M], n_steps=N)],
    "written in place": lambda: _lasts(
        scan(lambda a: a[1].set(a[0] * 0.5)[0].inc(0.1), outputs_info=[M], n_steps=N)
    ),
    "written where a number says": lambda: [
        scan(
            lambda i, a: a[i % 3].inc(a[0] * 0.5),
            sequences=[pt.arange(N)],
            outputs_info=[M],
        )
    ],
    "by an Op without a rule": lambda: _lasts(
        scan(lambda a, m: (pt.cumsum(a) * 0.3, pt.sort(m, axis=0)), outputs_info=[V, M], n_steps=N)
    ),
    "with a long one": lambda: _lasts(
        scan(lambda a, b: (b[:3], b[1:].sum() * 0.01 + b), outputs_info=[V, LONG], n_steps=N)
    ),
    "rows of a sequence": lambda: [
        scan(lambda r, a: r + 0.5 * a, sequences=[ROWS[:N]], outputs_info=[V])
    ],
    "a constant beside": lambda: [
        scan(lambda a, m: pt.tanh(m.T @ a), outputs_info=[V], non_sequences=[M], n_steps=N)
    ],
    "empty": lambda: _lasts(scan(lambda a, v: (a[:0], v * 2), outputs_info=[V[:0], V], n_steps=N)),
    "truth values": lambda: _lasts(
        scan(lambda a, v: (~a, pt.switch(a, v, -v) + 0.1), outputs_info=[V > 0, V], n_steps=N)
    ),
    "integers": lambda: [
        scan(lambda a: a * 3 % 7, outputs_info=[pt.cast(V * 5, "int64")], n_steps=N)
    ],
    "nested": _nested,
    "branches": _branches,
    "until": _until,
}


def compiled(outputs: list[Any], mode: Any) -> Any:
    with so.enabled():
        return pytensor.function([*VALUES, N], outputs, mode=mode, on_unused_input="ignore")


@pytest.mark.parametrize("name", LOOPS)
def test_loops(name: str) -> None:
    outputs = LOOPS[name]()
    function = compiled(outputs, NUMBA)
    plain = pytensor.function([*VALUES, N], outputs, mode=VM, on_unused_input="ignore")
    for n in (1, 2, 3, 6):
        found, wanted = function(*VALUES.values(), n), plain(*VALUES.values(), n)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
            assert np.shape(one) == np.shape(other)
    with no_leaks():
        function(*VALUES.values(), 6)


@pytest.mark.parametrize(
    "name", ["swapped and transposed", "written in place", "nested", *deep(*LOOPS)]
)
def test_results_are_no_part_of_the_stack(name: str) -> None:
    """What a call returned stays as it is when others are made."""
    function = compiled(LOOPS[name](), NUMBA)
    first = function(*VALUES.values(), 4)
    kept = [np.array(v) for v in first]
    for n in (5, 3, 6):
        function(*(v * 1.7 for v in VALUES.values()), n)
    for one, other in zip(first, kept, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("name", "order"),
    [
        *(("a constant beside", 1), ("rows of a sequence", 2), ("nested", 1)),
        *deep(("a constant beside", 2), ("nested", 2)),
    ],
)
def test_gradients(name: str, order: int) -> None:
    total = sum((v**2).sum() for v in LOOPS[name]())
    wrt: list[Variable] = [V, M]
    slopes = pt.grad(total, wrt, disconnected_inputs="ignore")
    if order == 2:
        slopes = pt.grad(sum((s**2).sum() for s in slopes), wrt, disconnected_inputs="ignore")
    function = compiled(slopes, NUMBA)
    plain = pytensor.function([*VALUES, N], slopes, mode=VM, on_unused_input="ignore")
    for one, other in zip(function(*VALUES.values(), 5), plain(*VALUES.values(), 5), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-10)


# Lengths of two matrices: vectors of 1 to 8 and more entries, none, and one beyond what is written.
LENGTHS = [
    *((1, 1, 1), (1, 5, 1), (3, 3, 3), (4, 4, 4), (2, 3, 5), (5, 2, 1), (1, 4, 7)),
    *deep((3, 3, 8), (8, 8, 8), (10, 10, 10), (2, 2, 9), (2, 3, 17), (3, 0, 2), (0, 3, 2)),
    *deep((1, 64, 1), (1, 65, 1), (64, 1, 1), (65, 1, 1), (16, 16, 8), (17, 16, 8), (1, 1, 300)),
]


@pytest.mark.tiered(every=4)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("n", "k", "m"), LENGTHS)
def test_products_of_known_lengths(n: int, k: int, m: int, dtype: str) -> None:
    """Of matrices as they are, and of transposes of others."""
    left, right = (rng.normal(size=at).astype(dtype) for at in ((n, k), (k, m)))
    given = [left, right, left.T.copy(), right.T.copy()]

    def build(left: Any, right: Any, left_turned: Any, right_turned: Any) -> list[Any]:
        pairs = product((left, left_turned.T), (right, right_turned.T))
        return [pt.dot(*pair) for pair in pairs]

    check(
        build, [v.shape for v in given], [given], lambda *_: [left @ right] * 4, layouts=("rows",)
    )


@pytest.mark.tiered(every=4)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("size", [3, 9, *deep(1, 2, 7, 8, 12, 16, 17)])
def test_functions_of_few_entries(size: int, dtype: str) -> None:
    special = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-310, 800.0, -800.0, -1.0]
    cases = [
        [np.resize(np.array(values), size).astype(dtype)]
        for values in (special, special[::-1], rng.normal(size=size))
    ]

    def build(x: Any) -> list[Any]:
        return [pt.exp(x), pt.log(x), pt.tanh(x), pt.sigmoid(x)]

    with np.errstate(all="ignore"):
        check(build, [(size,)], cases, layouts=("rows", "strided"))


@pytest.mark.tiered(every=4)
@pytest.mark.parametrize("length", [8, 16, 31, *deep(4, 5, 12, 15, 17, 20, 24, 32, 33, 64)])
def test_axes_of_some_vectors(length: int) -> None:
    """What is done to all entries, one after the other, also in the order of the other states.

    As long as they are few, loops over vectors are written out.
    """
    a, b = (pt.tensor(name, dtype="float64", shape=(length,)) for name in "ab")
    m = pt.tensor("m", dtype="float64", shape=(2, length))

    def step(a: Any, b: Any, m: Any, still: Any) -> Any:
        turned = pt.concatenate([m[:, 1:], m[:, :1]], axis=1)
        new = pt.exp(-(a**2)) + pt.log(b**2 + 0.1) * still
        return b, new / (1 + b.max()), turned * 0.5 + new[::-1] * b.sum()

    states = scan(step, outputs_info=[a, b, m], non_sequences=[pt.log(b)], n_steps=N)
    lasts = _lasts(states)
    total = sum((state**2).sum() for state in states)
    outputs = [*lasts, *pt.grad(total, [a, b, m])]
    made = [rng.normal(size=length), rng.uniform(0.5, 2, length), rng.normal(size=(2, length))]
    with so.enabled():
        function = pytensor.function([a, b, m, N], outputs, mode=NUMBA)
    plain = pytensor.function([a, b, m, N], outputs, mode=VM)
    for special in (1.0, 0.0, np.inf, np.nan):
        made[1][length // 2] = special
        with np.errstate(all="ignore"):
            for n in (1, 2, 5):
                for one, other in zip(function(*made, n), plain(*made, n), strict=True):
                    np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-10)


def test_a_function_takes_no_more_of_the_stack_than_threads_have() -> None:
    kind = ir.FunctionType(ir.VoidType(), ())
    builder = ir.IRBuilder(ir.Function(ir.Module(), kind, "f").append_basic_block())
    stack = Stack()
    for _ in range(256):
        assert stack.room(builder, ir.DoubleType(), 8, (8, 4)) is not None
    assert stack.room(builder, ir.DoubleType(), 8, (8, 4)) is None


@pytest.mark.parametrize("shape", [(41,), (4, 11), (3, object())])
def test_twin_what_is_not_on_the_stack(shape: Any) -> None:
    assert Stack().room(None, ir.DoubleType(), 8, shape) is None


def test_twin_products_of_unknown_lengths_are_not_written() -> None:
    array = type("Array", (), {"shape": (object(), 3), "strides": (24, 8)})()
    assert known_product(None, array, array) is None  # type: ignore[arg-type]
