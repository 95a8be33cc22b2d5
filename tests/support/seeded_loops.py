"""Loops that cost more than they have to, each with a twin that does not, for `test_rules`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.scan.utils import until

from support.graph_building import scan

type Graph = tuple[list[Any], list[Any]]

X = pt.dvector("x")
V = pt.dscalar("v")
N = pt.lscalar("n")
A, B = pt.dmatrices("a", "b")
SMALL = pt.tensor("small", shape=(3,), dtype="float64")
MORE_VALUES = {
    "small": np.array([0.5, -0.3, 0.2]),
    "matrix": np.eye(5) * 0.4 + 0.1,
}


def traced(*, steps: Any, last: bool = False) -> Graph:
    ys = scan(lambda s: pt.sin(s), outputs_info=[V], n_steps=steps)
    return [V, N], [ys[-1] if last else ys.sum()]


def until_small(*, last: bool) -> Graph:
    ys = scan(lambda s: (pt.sin(s), until(s < 0.5)), outputs_info=[V], n_steps=20)
    return [V], [ys[-1] if last else pt.grad(ys[-1], V)]


def of_matrix(step: Callable[[Any, Any], Any], length: int | None = None) -> Graph:
    a = A if length is None else pt.tensor("a", shape=(length, length), dtype="float64")
    ys = scan(step, outputs_info=[a], non_sequences=[B], n_steps=4)
    return [a, B], [ys[-1]]


def of_vector(step: Callable[[Any], Any]) -> Graph:
    return [SMALL], [scan(step, outputs_info=[SMALL], n_steps=4)[-1]]


def on_matrix(step: Callable[[Any], Any], *, length: int | None) -> Graph:
    matrix = pt.tensor("matrix", shape=(length, length), dtype="float64")
    return [matrix], [scan(step, outputs_info=[matrix], n_steps=4)[-1]]


def sorted_rows(s: Any) -> Any:
    return pt.sort(s, axis=1) * 0.5


def multiplied(*, of_rows: bool) -> Graph:
    def step(x: Any, s: Any, w: Any) -> Any:
        return pt.tanh(x @ w + s) if of_rows else pt.tanh(x + s @ w)

    ys = scan(step, sequences=[A], outputs_info=[B[0]], non_sequences=[B])
    return [A, B], [ys]


def solving(*, invariant: bool) -> Graph:
    def step(s: Any, a: Any) -> Any:
        return pt.linalg.solve(a if invariant else a + s[0], s, assume_a="sym", b_ndim=1)

    ys = scan(step, outputs_info=[B[0]], non_sequences=[A + A.T], n_steps=3)
    return [A, B], [ys[-1]]


def summed(term: Callable[[Any], Any], start: Any) -> Graph:
    ys = scan(lambda row, s: s + term(row), sequences=[A], outputs_info=[start])
    return [A, B, V], [ys[-1]]


def mapped(step: Callable[[Any, Any], Any]) -> Graph:
    return [A, B], [scan(step, sequences=[A], non_sequences=[B])]


def given_twice(*, other: Any) -> Graph:
    def step(x: Any, y: Any, s: Any) -> Any:
        return pt.sin(s * x) * y

    return [X, V], [scan(step, sequences=[X, other], outputs_info=[V])]


def alike(*, first: int) -> Graph:
    ys = scan(lambda x, s: pt.sin(s * x), sequences=[X], outputs_info=[V], name="one")
    zs = scan(lambda x, s: pt.sin(s * x), sequences=[X[first:]], outputs_info=[V], name="other")
    return [X, V], [ys, zs]


def read(reading: Callable[[Any], Any], steps: Any = N) -> Graph:
    ys = scan(lambda s: pt.sin(s) * 1.5, outputs_info=[V], n_steps=steps)
    return [V, N], [reading(ys)]


def filled(
    reading: Callable[[Any], Any], length: int | None = None, *, differentiated: bool = False
) -> Graph:
    x = pt.tensor("x", shape=(length,), dtype="float64")

    def step(i: Any, rows: Any) -> Any:
        return pt.set_subtensor(rows[i], pt.sin(rows[i - 1]) + 1)

    rows = scan(step, sequences=[pt.arange(3)], outputs_info=[x])
    found = reading(rows)
    return [x], [pt.grad(found.sum(), x) if differentiated else found]


SEEDED_LOOPS: dict[str, tuple[str, Callable[[], Graph], Callable[[], Graph]]] = {
    "products of rows": (
        "P003",
        partial(multiplied, of_rows=True),
        partial(multiplied, of_rows=False),
    ),
    "a matrix to factor": (
        "P003",
        partial(solving, invariant=True),
        partial(solving, invariant=False),
    ),
    "a sum": (
        "P004",
        partial(summed, lambda row: pt.exp(row[0]), V),
        lambda: ([A, V], [scan(lambda r, s: s + r[0] * s, sequences=[A], outputs_info=[V])[-1]]),
    ),
    "a sum of products": (
        "P004",
        partial(summed, lambda row: pt.outer(row, row), B),
        lambda: (
            [A, B],
            [scan(lambda r, s: s + pt.outer(r, s[0]), sequences=[A], outputs_info=[B])[-1]],
        ),
    ),
    "a map of products": (
        "P004",
        partial(mapped, lambda row, b: row @ b),
        lambda: (
            [A, B],
            [scan(lambda s, b: s @ b, outputs_info=[A], non_sequences=[B], n_steps=3)],
        ),
    ),
    "a map of sorted rows": (
        "P004",
        partial(mapped, lambda row, b: pt.sort(row) * b[0]),
        lambda: (
            [A, B],
            [scan(lambda r, s: pt.sort(r) * s + 1, sequences=[A], outputs_info=[B[0]])],
        ),
    ),
    "rows from the end": (
        "P005",
        partial(read, lambda ys: ys[::-1][:3]),
        partial(read, lambda ys: ys[-3:]),
    ),
    "a row that is the last": (
        "P005",
        partial(read, lambda ys: ys[N - 1]),
        partial(read, lambda ys: ys[-1]),
    ),
    "a row of which no pass knows where it is": (
        "P005",
        partial(read, lambda ys: ys[N - 1]),
        partial(read, lambda ys: ys[N - 2]),
    ),
    "the first row and the last": (
        "P005",
        partial(read, lambda ys: ys[0] + ys[-1], steps=1000),
        partial(read, lambda ys: ys[0] + ys.sum(), steps=1000),
    ),
    "the first row of no steps": (
        "P005",
        partial(read, lambda ys: ys[0] + ys[-1]),
        partial(read, lambda ys: ys[0] + ys[-1], steps=20),
    ),
    "an input twice": ("P006", partial(given_twice, other=X), partial(given_twice, other=2 * X)),
    "loops of two names": ("P006", partial(alike, first=0), partial(alike, first=1)),
    "a filled array": (
        "P008",
        partial(filled, lambda rows: rows[:, 0]),
        partial(filled, lambda rows: rows[-1]),
    ),
    "a small filled array": (
        "P008",
        partial(filled, lambda rows: rows[:, 0]),
        partial(filled, lambda rows: rows[:, 0], length=64),
    ),
    "a filled array, read by a gradient of it": (
        "P008",
        partial(filled, lambda rows: rows[-1], differentiated=True),
        partial(filled, lambda rows: rows[-1] * 2),
    ),
    "unknown shapes": (
        "P009",
        partial(of_matrix, lambda s, b: pt.tanh(s @ b)),
        partial(of_matrix, lambda s, b: pt.tanh(s) * b.shape[0], length=2),
    ),
    "shapes that do not help": (
        "P009",
        partial(of_matrix, lambda s, b: pt.tanh(s @ b)),
        partial(of_matrix, lambda s, b: pt.sort(s @ b)),
    ),
    "shapes of an inner loop": (
        "P009",
        partial(of_matrix, lambda s, b: pt.tanh(s @ b)),
        partial(
            of_matrix,
            lambda s, b: scan(lambda t: pt.tanh(t @ b), outputs_info=[s], n_steps=2)[-1] @ b,
        ),
    ),
    "a call of Python": (
        "P010",
        partial(of_vector, lambda s: pt.polygamma(2, s**2 + 1)),
        partial(of_vector, lambda s: pt.psi(s**2 + 1)),
    ),
    "a small array": (
        "P010",
        partial(of_vector, lambda s: pt.sort(s) * 0.5),
        partial(of_vector, lambda s: pt.stack([s.min(), s[1], s.max()]) * 0.5),
    ),
    "rows that are sorted": (
        "P010",
        partial(on_matrix, sorted_rows, length=3),
        partial(on_matrix, sorted_rows, length=5),
    ),
    "an array of unknown shape": (
        "P010",
        partial(on_matrix, sorted_rows, length=3),
        partial(on_matrix, sorted_rows, length=None),
    ),
    "products of matrices": (
        "P010",
        partial(on_matrix, sorted_rows, length=3),
        partial(on_matrix, lambda s: pt.tanh(s @ s), length=3),
    ),
    "a matrix that is decomposed": (
        "P010",
        partial(on_matrix, sorted_rows, length=3),
        partial(on_matrix, pt.linalg.expm, length=3),
    ),
    "steps for JAX": ("J001", partial(traced, steps=N), partial(traced, steps=4)),
    "a trace for JAX": ("J001", partial(traced, steps=N), partial(traced, steps=N, last=True)),
    "a condition for JAX": (
        "J001",
        partial(until_small, last=False),
        partial(until_small, last=True),
    ),
}
WITHOUT_FIX = frozenset(
    {
        "a sum",
        "a map of sorted rows",
        "the first row of no steps",
        "a filled array",
        "a small filled array",
        "a filled array, read by a gradient of it",
    }
)
"""Those of rules with a fix that it does not mend."""
