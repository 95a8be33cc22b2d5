"""Graphs of which each rule of `check` has something to say, and their twins."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph

import scanopt_cli as so
from support.seeded_loops import MORE_VALUES, SEEDED_LOOPS
from support.seeded_numbers import NUMBERS

scan = partial(pytensor.scan, return_updates=False)
type Graph = tuple[list[Any], list[Any]]

X, Y = pt.dvectors("x", "y")
V = pt.dscalar("v")
A, B = pt.dmatrices("a", "b")
N = pt.lscalar("n")
LONG = pt.dvector("long", shape=(5,))


def drawing(*, carried: bool) -> Graph:
    rng = pytensor.shared(np.random.default_rng(3), name="rng")
    after = None
    if carried:

        def step(rng: Any) -> Any:
            return pt.random.normal(rng=rng, return_next_rng=True)

        after, draws = scan(step, outputs_info=[rng, None], n_steps=4)
    else:
        draws = scan(
            lambda rng: pt.random.normal(rng=rng, return_next_rng=True)[1],
            non_sequences=[rng],
            n_steps=4,
        )
    return [], [draws] if after is None else [draws, after]


def drawing_twice(*, apart: bool) -> Graph:
    rng = pytensor.shared(np.random.default_rng(3), name="rng")

    def step(rng: Any) -> Any:
        after, a = pt.random.normal(rng=rng, return_next_rng=True)
        last, b = pt.random.uniform(rng=after if apart else rng, return_next_rng=True)
        return (last if apart else after), a - b

    after, draws = scan(step, outputs_info=[rng, None], n_steps=4)
    return [], [draws, after]


def dropping(*, kept: bool) -> Graph:
    inputs, (draws, after) = drawing(carried=True)
    return inputs, [draws, after] if kept else [draws]


def differentiated(*, trimmed: bool) -> Graph:
    ys = scan(lambda s, w: pt.tanh(s * w), outputs_info=[V], non_sequences=[X[0]], n_steps=5)
    graph = so.optimize(([V, X], [ys[-1]]), "save-mem").graph if trimmed else None
    inputs, outputs = ([V, X], [ys[-1]]) if graph is None else (graph.inputs, graph.outputs)
    return inputs, [pt.grad(outputs[0], inputs[0])]


def last_row(*, steps: Any) -> Graph:
    ys = scan(lambda s: s * 0.5, outputs_info=[V], n_steps=steps)
    return [V, N], [ys[-1]]


def precisions(*, mixed: bool) -> Graph:
    start = pt.fvector("start")
    half = np.float64(0.5) if mixed else np.float32(0.5)
    ys = scan(lambda s: (pt.tanh(s) * half).astype("float32"), outputs_info=[start], n_steps=4)
    return [start], [ys]


def wrapping(*, used: bool) -> Graph:
    p, q = pt.dscalars("p", "q")
    op = OpFromGraph([p, q], [pt.exp(p) * q if used else pt.exp(p)])
    return [V, X], [op(V, X[0])]


def unused(*, read: bool) -> Graph:
    ys, logs = scan(lambda v, s: [s * v, pt.log(v)], sequences=[X], outputs_info=[V, None])
    return [X, V], [ys, logs] if read else [ys]


def uniform(*, equal: bool) -> Graph:
    rows = pt.full((5,), V) if equal else LONG
    ys = scan(lambda c, s: s * c + 1, sequences=[rows], outputs_info=[X], n_steps=5)
    return [V, X, LONG], [ys]


def product(*, invariant: bool) -> Graph:
    if invariant:
        ys = scan(
            lambda s, a, b: pt.tanh(a @ b) * s, outputs_info=[A], non_sequences=[A, B], n_steps=3
        )
    else:
        ys = scan(lambda s, a: pt.tanh(a @ s), outputs_info=[B], non_sequences=[A], n_steps=3)
    return [A, B], [ys]


def mapped(*, alone: bool) -> Graph:
    if alone:
        return [X, V], [scan(lambda x, v: pt.exp(x) * v, sequences=[X], non_sequences=[V])]
    return [X, V], [scan(lambda x, s: pt.exp(x) * s + x, sequences=[X], outputs_info=[V])]


def summed(*, running: bool) -> Graph:
    def step(x: Any, s: Any) -> Any:
        return s + pt.exp(x) if running else s + pt.exp(x) * s

    return [X, V], [scan(step, sequences=[X], outputs_info=[V])]


def apart(*, alike: bool) -> Graph:
    ys = scan(lambda x, s: s * x, sequences=[X], outputs_info=[V])
    zs = scan(lambda x, s: s * x + 1, sequences=[X if alike else Y], outputs_info=[V])
    return [X, Y, V], [ys, zs]


def twice(*, equal: bool) -> Graph:
    ys, zs = scan(
        lambda x, s, t: [pt.sin(s * x), pt.sin(t * x)],
        sequences=[X],
        outputs_info=[V, V if equal else V + 1],
    )
    return [X, V], [ys, zs]


def backward(*, reverse: bool) -> Graph:
    ys = scan(lambda s, w: pt.tanh(s * w), outputs_info=[V], non_sequences=[X[0]], n_steps=5)
    return [V, X], [pt.grad(ys[-1], V) if reverse else ys[-1]]


SEEDED: dict[str, tuple[str, Callable[[], Graph], Callable[[], Graph]]] = {
    "draws": ("R001", partial(drawing, carried=False), partial(drawing, carried=True)),
    "two draws": ("R002", partial(drawing_twice, apart=False), partial(drawing_twice, apart=True)),
    "a lost generator": ("R003", partial(dropping, kept=False), partial(dropping, kept=True)),
    "a trimmed loop": (
        "C001",
        partial(differentiated, trimmed=True),
        partial(differentiated, trimmed=False),
    ),
    "steps": ("C002", partial(last_row, steps=N), partial(last_row, steps=4)),
    "precisions": ("N003", partial(precisions, mixed=True), partial(precisions, mixed=False)),
    "an unread input": ("O001", partial(wrapping, used=False), partial(wrapping, used=True)),
    "an unread output": ("P001", partial(unused, read=False), partial(unused, read=True)),
    "equal rows": ("P002", partial(uniform, equal=True), partial(uniform, equal=False)),
    "a product": ("P003", partial(product, invariant=True), partial(product, invariant=False)),
    "a map": ("P004", partial(mapped, alone=True), partial(mapped, alone=False)),
    "a running sum": ("P004", partial(summed, running=True), partial(summed, running=False)),
    "two loops": ("P006", partial(apart, alike=True), partial(apart, alike=False)),
    "two states": ("P006", partial(twice, equal=True), partial(twice, equal=False)),
    "a mit_mot": ("P007", partial(backward, reverse=True), partial(backward, reverse=False)),
    **SEEDED_LOOPS,
    **NUMBERS,
}
VALUES: dict[str, Any] = {
    "x": np.array([0.3, 0.5, -0.2]),
    "y": np.array([1.0, 0.5, 2.0, -1.0]),
    "v": np.array(0.7),
    "a": np.array([[0.3, 0.1], [0.2, 0.5]]),
    "b": np.array([[1.0, 0.5], [0.2, 0.1]]),
    "n": np.array(4),
    "long": np.arange(5.0),
    "start": np.array([0.1, 0.2], "float32"),
    **MORE_VALUES,
}


def dropped(*, is_known: bool) -> Graph:
    if is_known:
        return dropping(kept=False)
    rng = pt.random.rng("rng")
    _, draws = scan(
        lambda rng: pt.random.normal(rng=rng, return_next_rng=True),
        outputs_info=[rng, None],
        n_steps=4,
    )
    return [rng], [draws]
