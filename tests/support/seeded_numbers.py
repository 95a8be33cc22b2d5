"""Graphs for the rules C003, C004, N001 and N002: seeded ones, and twins that are clean."""

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
A, B = pt.dmatrices("a", "b")
N = pt.lscalar("n")
LONG = pt.dvector("long", shape=(5,))
FIRST, SECOND = X[0], X[1]


def second_start(*, alone: bool) -> Graph:
    """The gradient by the second of two starts; or by both."""
    starts = {"initial": pt.stack([FIRST, SECOND]), "taps": [-2, -1]}
    last = scan(lambda y2, y1: y1 * y2 + V, outputs_info=[starts], n_steps=N)[-1]
    gradients = pt.grad(last, [SECOND] if alone else [FIRST, SECOND])
    return [X, V, N], [*gradients]


def counted(*, steps: Any) -> Graph:
    """A counter of int8, in units of a float."""
    ys = scan(lambda c: c + np.int8(3), outputs_info=[np.int8(0)], n_steps=steps)
    return [V, N], [ys[-1] * V]


def of_lengths(*, differ: bool) -> Graph:
    """A loop over the steps and the steps before, or over these and all."""
    before = X if differ else X[:-1]
    ys = scan(lambda y, z, s: s + y * z, sequences=[X[1:], before], outputs_info=[V])
    return [X, V], [ys]


def unit_vector(row: Any, *, guarded: Any) -> Any:
    """Return a vector of length 1, and of a vector of zeros itself."""
    square = (row**2).sum()
    length = pt.sqrt(pt.switch(square > 0, square, 1.0) if guarded else square)
    return pt.switch(square > 0, row / length, row)


def normed(*, guarded: bool) -> Graph:
    """A loop over the directions of the rows of a matrix."""
    ys = scan(
        lambda row, s: s * 0.5 + unit_vector(row, guarded=guarded),
        sequences=[A],
        outputs_info=[X[:2]],
    )
    return [A, X], [ys[-1].sum()]


def log_summed(*, shifted: bool) -> Graph:
    """The forward algorithm, in log space."""

    def step(row: Any, s: Any) -> Any:
        terms = s[:, None] + B
        if not shifted:
            return row + pt.log(pt.exp(terms).sum(axis=0))
        most = terms.max(axis=0)
        return row + pt.log(pt.exp(terms - most).sum(axis=0)) + most

    return [A, B, X], [scan(step, sequences=[A], outputs_info=[X[:2]])[-1].sum()]


def mixed(*, several: bool) -> Graph:
    """The log of a sum over the rows of a loop, of exponentials one by one, or of all at once."""
    ys = scan(lambda row, s: s * 0.5 + row, sequences=[A], outputs_info=[X[:2]])[-1]
    total = pt.exp(ys[0]) + pt.exp(ys[1]) if several else pt.exp(ys).sum()
    return [A, X], [pt.log(total)]


def likelihood(*, steps: Any) -> Graph:
    """A product of probabilities."""
    ys = scan(lambda s, c: s * pt.sigmoid(s - c), outputs_info=[V], non_sequences=[V], n_steps=2)
    zs = scan(lambda q, s: s * pt.sigmoid(q), sequences=[LONG], outputs_info=[V], n_steps=steps)
    return [LONG, V, N], [ys[-1] + pt.log(zs[-1])]


NUMBERS: dict[str, tuple[str, Callable[[], Graph], Callable[[], Graph]]] = {
    "a gradient of a start": (
        "C003",
        partial(second_start, alone=True),
        partial(second_start, alone=False),
    ),
    "a small counter": ("C004", partial(counted, steps=N), partial(counted, steps=42)),
    "two lengths": ("C004", partial(of_lengths, differ=True), partial(of_lengths, differ=False)),
    "a norm": ("N001", partial(normed, guarded=False), partial(normed, guarded=True)),
    "a log-sum": ("N002", partial(log_summed, shifted=False), partial(log_summed, shifted=True)),
    "a log-sum outside": ("N002", partial(mixed, several=True), partial(mixed, several=False)),
    "probabilities": ("N002", partial(likelihood, steps=N), partial(likelihood, steps=5)),
}
UNFIXED = {"two lengths", "probabilities"}
"""What no pass mends."""


# What PyTensor compiles wrongly: outputs, and the arguments by input.

S = pt.dvector("s")
START = pt.dmatrix("start")
P, Q = pt.dtensor3("p"), pt.dtensor3("q")
STOP = pt.bscalar("stop")
K = pt.lscalar("k")
type Case = tuple[Any, dict[Any, Any]]

_MATRICES = {P: np.ones((4, 2, 2)), Q: np.ones((4, 2, 2)), START: np.zeros((2, 2))}


def summed(order: str) -> Case:
    """The last row of the buffer of a sum of the terms that ``order`` names."""

    def step(p: Any, q: Any, state: Any) -> Any:
        terms = {"s": state, "d": pt.dot(p, q), "p": p}
        return pt.add(*(terms[letter] for letter in order))

    sums = scan(step, sequences=[P, Q], outputs_info=[START])
    return sums.owner.inputs[0][-1], _MATRICES


def invariant(*, varies: bool = False, last: bool = False, steps: int = 5) -> Case:
    """A state that each step sets to the same value."""
    ys = scan(
        lambda y, w: w + 1 + (y if varies else 0),
        outputs_info=[V],
        non_sequences=[V],
        n_steps=steps,
    )
    return ys[-1] if last else ys.sum(), {V: 0.5}


def stopped(*, varies: bool = False) -> Case:
    """A while loop that computes the same in each step, and whether to stop."""
    if varies:
        ys = scan(lambda q, c: (q * 2, until(c)), sequences=[S], non_sequences=[STOP], n_steps=5)
    else:
        ys = scan(lambda w, c: (w * 2, until(c)), non_sequences=[V, STOP], n_steps=5)
    return ys, {V: 1.0, STOP: 1, S: np.arange(1.0, 6.0)}


def reaching(far: int) -> Case:
    """A map of states that reach back two steps, and ``far`` steps."""
    taps = [
        {"initial": pt.zeros(2), "taps": [-2, -1]},
        {"initial": pt.ones(far), "taps": [-far, -1]},
    ]
    ys = scan(lambda q, *_: (q * 2, q * 3), sequences=[S], outputs_info=taps)
    return pt.stack(ys), {S: np.array([1.0, 2.0])}


def doubling(read: Callable[[Any], Any], *, steps: Any = 20) -> Case:
    """Rows of a while loop that stops after five steps."""
    ys = scan(lambda y: (y * 2, until(y > 10)), outputs_info=[V], n_steps=steps)
    return read(ys), {V: 1.0, N: 20}


def last_rows(*, steps: Any = N, of_state: bool = False, rows: int = 3) -> Case:
    """The last rows of a map, or of a state."""
    ys, zs = scan(lambda y: (y + 1, 2 * y), outputs_info=[V, None], n_steps=steps)
    return (ys if of_state else zs)[-rows:], {V: 1.0, N: 2}


def two_recurrences(*, apart: bool = False, equal: bool = False) -> Case:
    """Two recurrences that start equal, and the same function of both."""
    second = S + 1 if apart else S
    *_, one, two = scan(
        lambda a2, a1, b2, b1: (a1 + a2, b1 + b2 if equal else b1 * b2, 3 * a1, 3 * b1),
        outputs_info=[
            {"initial": S, "taps": [-2, -1]},
            {"initial": second, "taps": [-2, -1]},
            None,
            None,
        ],
        n_steps=4,
    )
    return pt.stack([one, two]), {S: np.array([1.0, 2.0])}


def two_searches(*, bounds: tuple[float, float] = (5.0, 5.0), by: tuple[int, int] = (2, 3)) -> Case:
    """How many steps two while loops take that start equal."""
    one, two = (
        scan(lambda y, f=f, b=b: (y * f, until(y > b)), outputs_info=[V], n_steps=9)
        for f, b in zip(by, bounds, strict=True)
    )
    return pt.stack([one.shape[0], two.shape[0]]), {V: 1.0}


def of_starts(wrt: str) -> Case:
    """The gradient of a recurrence of three taps by some of its starts."""
    a, b, c = pt.dscalars("first", "second", "third")
    starts = {"a": a, "b": b, "c": c}
    taps = {"initial": pt.stack([a, b, c]), "taps": [-3, -2, -1]}
    last = scan(lambda y3, y2, y1: y1 * y2 + y3**2, outputs_info=[taps], n_steps=N)[-1]
    found = pt.stack(pt.grad(last, [starts[letter] for letter in wrt]))
    return found, {a: 0.7, b: 1.1, c: 0.9, N: 4}


MISCOMPILED: dict[str, Callable[[], Case]] = {
    "a sum of three": partial(summed, "sdp"),
    "a sum of three, product last": partial(summed, "spd"),
    "a sum of three, state last": partial(summed, "pds"),
    "an invariant state": invariant,
    "an invariant while loop": stopped,
    "states that reach back differently": partial(reaching, 3),
    "a row of a while loop": partial(doubling, lambda ys: ys[1]),
    "rows of a while loop": partial(doubling, lambda ys: ys[2:4]),
    "a while loop from a row on": partial(doubling, lambda ys: ys[3:]),
    "the last rows of a map": last_rows,
    "recurrences that start equal": two_recurrences,
    "searches that start equal": two_searches,
    "the gradient by a start": partial(of_starts, "b"),
    "the gradient by the last start": partial(of_starts, "c"),
    "the gradient by two starts": partial(of_starts, "bc"),
}
"""What PyTensor compiles wrongly."""
COMPILED_RIGHT: dict[str, Callable[[], Case]] = {
    "a sum of two": partial(summed, "sd"),
    "a sum of three without a product": partial(summed, "spp"),
    "a state that varies": partial(invariant, varies=True),
    "the last row of an invariant state": partial(invariant, last=True),
    "an invariant state of no steps": partial(invariant, steps=0),
    "a while loop over a sequence": partial(stopped, varies=True),
    "states that reach back alike": partial(reaching, 2),
    "the last row of a while loop": partial(doubling, lambda ys: ys[-1]),
    "all rows of a while loop": partial(doubling, lambda ys: ys),
    "rows of a while loop of unknown steps": partial(doubling, lambda ys: ys[2:4], steps=N),
    "the last rows of a map of enough steps": partial(last_rows, steps=5),
    "the last rows of a state": partial(last_rows, of_state=True),
    "the last row of a map, as a slice": partial(last_rows, rows=1, steps=3),
    "recurrences that start apart": partial(two_recurrences, apart=True),
    "recurrences that are equal": partial(two_recurrences, equal=True),
    "searches with other bounds": partial(two_searches, bounds=(5.0, 7.0)),
    "searches that are equal": partial(two_searches, by=(2, 2)),
    "the gradient by the first start": partial(of_starts, "a"),
    "the gradient by the first two starts": partial(of_starts, "ab"),
    "the gradient by all starts": partial(of_starts, "abc"),
}
"""Their twins."""
