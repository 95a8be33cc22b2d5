"""Loops to compile where a compilation takes seconds: one of each sort that matters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.scan.utils import until
from pytensor.tensor.random.type import random_generator_type

from support.graph_building import scan

type Program = tuple[list[Any], list[Any], list[list[Any]]]
"""Inputs, outputs, and what to call them with."""


def _numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def matrices() -> Program:
    """A matrix that products are added to, beside one that is always the same and one at rest."""
    xs, h = pt.tensor3("xs", dtype="float64"), pt.dmatrix("h")
    w, v = pt.dmatrix("w"), pt.dvector("v")

    def step(x: Any, sums: Any, same: Any, rest: Any, w: Any, v: Any) -> list[Any]:
        definite = pt.dot(pt.tanh(w), pt.tanh(w).T) + pt.eye(3)
        return [sums + pt.dot(x, w), pt.outer(v, v), rest, pt.linalg.solve(definite, x @ v)]

    results = scan(step, sequences=[xs], outputs_info=[h, h, h, None], non_sequences=[w, v])
    arguments = [[_numbers(n, 3, 3), _numbers(3, 3), _numbers(3, 3), _numbers(3)] for n in (4, 0)]
    return [xs, h, w, v], [results[0][-1], *results[1:]], arguments


def terms() -> Program:
    """Sums of a state and two matrix products, and the gradient of the last one."""
    xs, h, w = pt.dmatrix("xs"), pt.dvector("h"), pt.dmatrix("w")
    states = scan(
        lambda x, h, w: pt.add(h, pt.dot(w, x), pt.dot(pt.tanh(h), w)),
        sequences=[xs],
        outputs_info=[h],
        non_sequences=[w],
    )
    gradient = pt.grad(states[-1].sum(), [xs, h, w])
    arguments = [[_numbers(n, 3), _numbers(3), _numbers(3, 3)] for n in (4, 1)]
    return [xs, h, w], [states, *gradient], arguments


def random_walk() -> Program:
    """A generator that is handed on, a draw that is read and one that is not."""
    rng, x, n = random_generator_type("rng"), pt.dscalar("x"), pt.lscalar("n")

    def step(x: Any, rng: Any) -> list[Any]:
        rng, jump = pt.random.normal(0.0, 1.0, rng=rng, return_next_rng=True)
        rng, unread = pt.random.normal(x, 1.0, rng=rng, return_next_rng=True)
        return [pt.tanh(x) + jump, rng, unread]

    xs, end, _ = scan(step, outputs_info=[x, rng, None], n_steps=n)
    arguments = [[np.random.default_rng(3), np.array(0.3), np.array(n)] for n in (5, 1, 0)]
    return [rng, x, n], [xs, end], arguments


def stopping() -> Program:
    """While loops with equal conditions and different starts, one with an invariant state."""
    x, y, w = pt.dscalars("x", "y", "w")

    def step(x: Any, same: Any, w: Any) -> Any:
        return [x * 1.5, w + 1], until(x > 2)

    loops = [scan(step, outputs_info=[v, v], non_sequences=[w], n_steps=9) for v in (x, y)]
    outputs = [xs[-1] for results in loops for xs in results] + [loops[0][1]]
    values = [[np.array(v) for v in row] for row in ([0.5, 1.4, 0.1], [3.0, 0.2, 0.1])]
    return [x, y, w], outputs, values


def nested() -> Program:
    """A loop over the entries of each row, and the gradient of what it adds up."""
    rows, h, w = pt.dmatrix("rows"), pt.dscalar("h"), pt.dscalar("w")

    def over_row(row: Any, h: Any, w: Any) -> Any:
        entries = scan(
            lambda x, h, w: pt.log(pt.exp(h) + pt.exp(w * x)),
            sequences=[row],
            outputs_info=[h],
            non_sequences=[w],
        )
        return entries[-1]

    states = scan(over_row, sequences=[rows], outputs_info=[h], non_sequences=[w])
    gradient = pt.grad(states.sum(), [rows, w])
    return (
        [rows, h, w],
        [states[-1], *gradient],
        [[_numbers(n, 3), np.array(0.2), np.array(0.7)] for n in (4, 1)],
    )


def second_gradient() -> Program:
    """The gradient of the sum of a gradient, of a state and a map beside it."""
    xs, h, w = pt.dmatrix("xs"), pt.dvector("h"), pt.dmatrix("w")

    def step(x: Any, h: Any, w: Any) -> list[Any]:
        new = pt.logsumexp(w + h[:, None], axis=0) + x
        return [new, pt.special.softmax(new, axis=-1)]

    states, shares = scan(step, sequences=[xs], outputs_info=[h, None], non_sequences=[w])
    first = pt.grad(states[-1].sum() + (shares**2).sum(), [xs, h, w])
    second = pt.grad(pt.add(*(part.sum() ** 2 for part in first)), [xs, h, w])
    arguments = [[_numbers(n, 3), _numbers(3), _numbers(3, 3)] for n in (4, 1)]
    return [xs, h, w], [states[-1], *first, *second], arguments


def first_rows() -> Program:
    """The first rows of loops over longer sequences: of a map, and of what forgets its state."""
    x, v = pt.dvector("x"), pt.dscalar("v")
    mapped = scan(lambda x: pt.exp(x), sequences=[x])
    states = scan(lambda x, h: pt.tanh(x), sequences=[x], outputs_info=[v])
    return [x, v], [mapped[:2], states[0]], [[_numbers(7), np.array(0.5)]]


def counted_inside() -> Program:
    """A loop in a loop whose steps are an input."""
    h, v = pt.dscalars("h", "v")
    n, m = pt.lscalars("n", "m")

    def step(h: Any, v: Any, m: Any) -> Any:
        return scan(lambda z, u: u * z, outputs_info=[v], non_sequences=[h], n_steps=m)[-1]

    states = scan(step, outputs_info=[h], non_sequences=[v, m], n_steps=n)
    values = [np.array(v) for v in (0.5, 0.3, 4, 3)]
    return [h, v, n, m], [states[-1]], [values]


PROGRAMS: dict[str, Callable[[], Program]] = {
    program.__name__: program
    for program in (
        matrices,
        terms,
        random_walk,
        stopping,
        nested,
        second_gradient,
        first_rows,
        counted_inside,
    )
}
